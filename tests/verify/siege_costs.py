"""What an attack costs: delays as they were and without what others took of the machine, memory, descriptors; a table.

A delay is corrected by no more than what the thread that was late waited for a processor at that time: the daemon's
loop within the sample that has the delay, a probe's own thread, which does nothing else, within its call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
    """The longest of a kind, in seconds; ``own_s``: the longest of those without the wait for a processor."""

    raw_s: float = 0.0
    own_s: float = 0.0

    def add(self, delay_s: float, starved_s: float) -> None:
        """One delay, in which its thread was ready and did not run for ``starved_s``."""
        self.raw_s = max(self.raw_s, delay_s)
        self.own_s = max(self.own_s, delay_s - max(starved_s, 0.0))


Buckets = Mapping[float, float]
"""How many turns of the loop were late by at most so many seconds."""


@dataclass
class Lag(Delay):
    """Of the daemon's loop, sample by sample: upper bounds of the highest buckets that something came into."""

    _last: tuple[Buckets, float] | None = None

    def sample(self, buckets: Buckets, starved_s: float) -> None:
        """``starved_s``: what the loop waited for a processor since its process began."""
        if self._last is not None:
            before, starved_before_s = self._last
            self.add(highest(before, buckets), starved_s - starved_before_s)
        self._last = buckets, starved_s


@dataclass
class Cost:
    """Of one attack. ``counts``: of :class:`tests.verify.hostile_peers.Peers`."""

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
        """As :data:`HEAD` says."""
        counted = (str(self.counts.get(key, 0)) for key in ("opened", "frames", "ended by the other side", "answers"))
        delays = (f"{delay_s:.2f} s" for one in (self.lag, self.broker) for delay_s in (one.raw_s, one.own_s))
        memory = (f"{mb} MB" for mb in self.memory_mb)
        open_at_most = "+".join(map(str, self.descriptors))
        return (
            self.attack, self.at, *counted, str(self.served), str(self.again), *delays, f"{self.lease_part:.0%}",
            *memory, open_at_most,
        )  # fmt: skip


def total(costs: Iterable[Cost]) -> Cost:
    """The worst of each, and all counts together."""
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
    """All attacks, and the worst of them."""
    rows = [HEAD, *(cost.row() for cost in (*costs, total(costs)))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def highest(before: Buckets, after: Buckets) -> float:
    """Bound of the highest bucket that something came into."""
    found, reached, last = 0.0, 0.0, after[max(after)] - before[max(before)]
    for bound in sorted(after):
        if reached < last:
            found = bound
        reached = after[bound] - before[bound]
    return found


def starved_s(thread: str) -> float:
    """How long a thread (``/proc/<thread>``; a process' number: its first) was ready and did not run."""
    return int(Path("/proc", thread, "schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def forget_peak(pid: int) -> None:
    """The highest memory is counted from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def peak_mb(pid: int) -> int:
    """The highest memory of a process since then."""
    [kib] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(kib) * 1_024 // MIB


def descriptors(pid: int) -> int:
    """Files and sockets that a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
