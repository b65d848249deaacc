"""What an attack costs: delays as they were and without what others took of the machine, memory, descriptors; a table.

A delay is corrected by no more than what the thread that was late waited for a processor at that time: the daemon's
loop within the sample that has the delay, a probe's own thread, which does nothing else, within its call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MIB: Final = 1_048_576
HEAD: Final = (
    "attack", "at", "connections", "frames", "refused", "answers", "served", "again", "longest lag", "corrected",
    "broker's call", "corrected", "lease", "daemon", "endpoint", "descriptors",
)  # fmt: skip


@dataclass
class Delay:
    """Keeps the longest delay in seconds; ``own_s`` is the longest one without the wait for a processor."""

    raw_s: float = 0.0
    own_s: float = 0.0

    def add(self, delay_s: float, starved_s: float) -> None:
        """Adds a delay, in which its thread was ready and did not run for ``starved_s``."""
        self.raw_s = max(self.raw_s, delay_s)
        self.own_s = max(self.own_s, delay_s - max(starved_s, 0.0))


Buckets = Mapping[float, float]
"""How many turns of the loop were late by at most so many seconds."""


@dataclass
class Lag(Delay):
    """Keeps the lag of the daemon's loop by samples of a histogram: upper bounds of the highest filled buckets."""

    _last: tuple[Buckets, float] | None = None

    def sample(self, buckets: Buckets, starved_s: float) -> None:
        """Adds a sample; ``starved_s`` is the loop's wait for a processor since its process began."""
        if self._last is not None:
            before, starved_before_s = self._last
            self.add(highest(before, buckets), starved_s - starved_before_s)
        self._last = buckets, starved_s


@dataclass
class Cost:
    """Holds the costs of one attack; ``counts`` come from :class:`tests.verify.hostile_peers.Peers`."""

    attack: str
    at: str
    counts: dict[str, int] = field(default_factory=dict)
    lag: Lag = field(default_factory=Lag)
    broker: Delay = field(default_factory=Delay)
    served: int = 0
    again: int = 0
    """Tries of a broker's call that were not served."""
    lease_part: float = 1.0
    memory_mb: tuple[int, int] = (0, 0)
    """Highest of daemon and endpoint."""
    descriptors: tuple[int, int] = (0, 0)

    def row(self) -> tuple[str, ...]:
        """Returns the columns of :data:`HEAD`."""
        counted = (str(self.counts.get(key, 0)) for key in ("opened", "frames", "ended by the other side", "answers"))
        delays = (f"{delay_s:.2f} s" for one in (self.lag, self.broker) for delay_s in (one.raw_s, one.own_s))
        memory = (f"{mb} MB" for mb in self.memory_mb)
        open_at_most = "+".join(map(str, self.descriptors))
        return (
            self.attack, self.at, *counted, str(self.served), str(self.again), *delays, f"{self.lease_part:.0%}",
            *memory, open_at_most,
        )  # fmt: skip


def total(costs: Iterable[Cost]) -> Cost:
    """Returns the worst of all costs, and the sums of counts."""
    found = Cost("all", "both")
    for cost in costs:
        for key, count in cost.counts.items():
            found.counts[key] = found.counts.get(key, 0) + count
        for ours, theirs in ((found.lag, cost.lag), (found.broker, cost.broker)):
            ours.raw_s, ours.own_s = max(ours.raw_s, theirs.raw_s), max(ours.own_s, theirs.own_s)
        found.served += cost.served
        found.again += cost.again
        found.lease_part = min(found.lease_part, cost.lease_part)
        found.memory_mb = _most(found.memory_mb, cost.memory_mb)
        found.descriptors = _most(found.descriptors, cost.descriptors)
    return found


def _most(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])


def table(costs: list[Cost]) -> str:
    """Returns a table of all attacks and their total."""
    return aligned([HEAD, *(cost.row() for cost in (*costs, total(costs)))])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def highest(before: Buckets, after: Buckets) -> float:
    """Returns the bound of the highest bucket that was filled between two samples."""
    found, reached, last = 0.0, 0.0, after[max(after)] - before[max(before)]
    for bound in sorted(after):
        if reached < last:
            found = bound
        reached = after[bound] - before[bound]
    return found


def starved_s(thread: str) -> float:
    """Returns how long a thread (``/proc/<thread>``; for a process its first) was ready and did not run."""
    return int(Path("/proc", thread, "schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def forget_peak(pid: int) -> None:
    """Resets the peak of memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def peak_mb(pid: int) -> int:
    """Returns the peak of memory of a process since the reset."""
    [kib] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(kib) * 1_024 // MIB


def descriptors(pid: int) -> int:
    """Counts files and sockets that a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
