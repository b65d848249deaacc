"""The shadow's report: counts comparisons, keeps the differences themselves, and saves both on disk.

So its counts outlive the process.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import anyio.to_thread
import msgspec
from msgspec import Struct

from controller.kafka.metrics.values import Counters
from controller.kafka.shadow.judgement import Step, same_isr
from metadata_store.codecs.base import decoded
from state_machines.model.types import Leadership

log = logging.getLogger("regent.shadow")

NAME: Final = "shadow-report.json"
SAVE_S: Final = 60.0
"""Interval between two saves of the report."""
LINE_S: Final = 3_600.0
"""Interval between two log lines of counts."""
DIFFERENCES_MAX: Final = 200
"""Differences that are kept in full, the first ones; the others are only counted."""
SHOWN_MAX: Final = 10
"""Differences that one line of the log may show."""


# -- counts and differences


class Outline(Struct, frozen=True, gc=False):
    """The part of a state znode that is compared."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int

    def __str__(self) -> str:
        return f"leader {self.leader}, ISR {list(self.isr)}, leader epoch {self.leader_epoch}"


class ShadowDifference(Struct, frozen=True, gc=False):
    """A state znode that differs from our decision.

    ``fields`` names the differing ones; ``before`` is the state before both; ``ours`` and ``theirs`` equal it where
    we, or they, wrote nothing. ``event`` caused the decision, ``why`` is the reason of ours.
    """

    path: str
    fields: str
    before: Outline | None
    ours: Outline | None
    theirs: Outline | None
    event: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.fields}; ours: {self.ours or 'none'}; theirs: {self.theirs or 'none'}; "
            f"before: {self.before or 'none'}; event: {self.event}; our reason: {self.why}"
        )


class Compared(NamedTuple):
    """A kind of compared decision: its event, and the rule."""

    event: str
    rule: str

    def __str__(self) -> str:
        return f"{self.event}: {self.rule}"


class Report(Struct, frozen=True):
    """The state of a shadow.

    ``compared``: decisions with an equal counterpart, by event and rule. ``differing``: decisions with another one,
    the first of them in ``differences``. ``uncomparable``: writes of unknown order or base, by reason. ``not_ours``:
    writes of kinds that regent decides only on request, by kind. ``unseen``: decisions that were overwritten before
    they were read; only the later ones were compared. ``isr_changes``: by leaders. ``events``: by kind; a departure is
    the end of a broker's session, also after a clean shutdown. ``waiting``: partitions that await a counterpart.
    ``since_ms``: the begin of counting, over all processes.
    """

    compared: dict[str, int]
    differing: int
    differences: list[ShadowDifference]
    uncomparable: dict[str, int]
    not_ours: dict[str, int]
    unseen: int
    isr_changes: int
    waiting: int
    events: dict[str, int]
    partitions: int
    controller: int | None
    since_ms: int = 0

    @property
    def compared_total(self) -> int:
        """Returns the number of decisions that agree."""
        return sum(self.compared.values())

    def sentence(self) -> str:
        """Returns the counts in one line."""
        compared, uncomparable = self.compared_total + self.differing, sum(self.uncomparable.values())
        counts = {"decisions compared": compared, "differences": self.differing, "uncomparable": uncomparable}
        return ", ".join(f"{count} {name}" for name, count in {**counts, "waiting": self.waiting}.items())

    def lines(self) -> list[str]:
        """Returns the counts and then the differences, as lines of text."""
        lines = [self.sentence()]
        lines += [f"  {count:6} agree    {kind}" for kind, count in sorted(self.compared.items())]
        lines += [f"  {count:6} uncomparable    {why}" for why, count in sorted(self.uncomparable.items())]
        lines += [f"  {count:6} not decided by regent    {kind}" for kind, count in sorted(self.not_ours.items())]
        lines += [f"  difference at {difference}" for difference in self.differences]
        hidden = self.differing - len(self.differences)
        return [*lines, f"  and {hidden} more differences"] if hidden > 0 else lines


class Statistics:
    """Counts the tracker's findings. ``counters`` are the process's, for its metrics."""

    def __init__(self, counters: Counters | None = None) -> None:
        self.compared: Counter[Compared] = Counter()
        self.differing = 0
        self.differences: list[ShadowDifference] = []
        self.uncomparable: Counter[str] = Counter()
        self.not_ours: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.unseen = 0
        self.isr_changes = 0
        self.since_ms = time.time_ns() // 1_000_000
        self._counters = counters or Counters()
        self._news: list[ShadowDifference] = []

    def resume(self, found: Report) -> None:
        """Continues the counts of an earlier process."""
        for kind, count in found.compared.items():
            event, _, rule = kind.partition(": ")
            self.compared[Compared(event, rule)] += count
        self.differing += found.differing
        self.differences += found.differences[:DIFFERENCES_MAX]
        for counter, known in (
            (self.uncomparable, found.uncomparable),
            (self.not_ours, found.not_ours),
            (self.events, found.events),
        ):
            counter.update(known)
        self.unseen += found.unseen
        self.isr_changes += found.isr_changes
        self.since_ms = found.since_ms or self.since_ms

    def agrees(self, event: str, rule: str) -> None:
        """Counts a decision with an equal counterpart."""
        self.compared[Compared(event, rule)] += 1
        self._counters.shadow_compared += 1

    def differs(self, found: ShadowDifference) -> None:
        """Counts a decision with another counterpart."""
        self.differing += 1
        self._counters.shadow_compared += 1
        self._counters.shadow_differences += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(found)
        if len(self._news) <= SHOWN_MAX:
            self._news.append(found)

    def news(self) -> list[ShadowDifference]:
        """Returns the differences since the last call, at most one more than :data:`SHOWN_MAX`."""
        news, self._news = self._news, []
        return news


def outline(leadership: Leadership | None) -> Outline | None:
    """Returns the compared part of a state znode."""
    if leadership is None:
        return None
    return Outline(leadership.leader, leadership.isr, leadership.leader_epoch)


def difference(
    path: str, before: Leadership | None, ours: Leadership | None, theirs: Leadership | None, event: str, why: str
) -> ShadowDifference:
    """Builds a difference with the names of its differing fields."""
    return ShadowDifference(path, _fields(ours, theirs), outline(before), outline(ours), outline(theirs), event, why)


def _fields(ours: Leadership | None, theirs: Leadership | None) -> str:
    if ours is None or theirs is None:
        return "the state znode exists on one side only"
    found = [
        name
        for name, differs in (
            ("leader", ours.leader != theirs.leader),
            ("ISR", not same_isr(ours.isr, theirs.isr)),
            ("leader epoch", ours.leader_epoch != theirs.leader_epoch),
        )
        if differs
    ]
    return ", ".join(found) or "version"


def reasons(steps: list[Step]) -> str:
    """Returns the reasons of ``steps``."""
    return "; then ".join(step.why for step in steps) or "nothing to decide"


# -- the report on disk


def report_path(folder: Path) -> Path:
    """Returns the file in a daemon's ``state.directory``."""
    return folder / NAME


def load(path: Path) -> Report | None:
    """Reads the report of an earlier process; None without a readable one."""
    try:
        return decoded(path.read_bytes(), Report)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        log.warning(
            "whether the shadow has an earlier report %s is not known (%s), counting begins anew and is not saved. "
            "Remedy: give %s to the daemon's user (chown regent:regent)",
            path,
            error.strerror,
            path.parent,
        )
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the shadow's earlier report %s cannot be read, counting begins anew: %s", path, error)
        return None


def save(path: Path, report: Report) -> None:
    """Replaces the file atomically; raises OSError and then leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{os.getpid()}.tmp")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class ReportKeeper:
    """Keeps the report of a shadow in ``file`` (None: only in memory); ``report`` returns the present one."""

    def __init__(self, file: Path | None, report: Callable[[], Report]) -> None:
        self._file = file
        self._report = report
        self._saved: Report | None = None
        self._due_save_s = self._due_line_s = 0.0

    async def resume(self, statistics: Statistics) -> None:
        """Adds the counts of an earlier process, before the first save."""
        if self._file is None or self._saved is not None:
            return
        found = await anyio.to_thread.run_sync(load, self._file)
        if found is not None:
            statistics.resume(found)
            log.info("the shadow continues its report in %s: %s", self._file, found.sentence())

    async def keep(self, now_s: float) -> None:
        """Saves the report once a minute where it changed, and logs its counts once an hour."""
        if now_s >= self._due_save_s:
            self._due_save_s = now_s + SAVE_S
            await self.save()
        if not self._due_line_s:
            self._due_line_s = now_s + LINE_S
        elif now_s >= self._due_line_s:
            self._due_line_s = now_s + LINE_S
            log.info("shadow so far: %s", self._report().sentence())

    async def save(self) -> None:
        """Saves the report where it changed; after an error the counts stay in memory."""
        report = self._report()
        if self._file is None or report == self._saved:
            return
        try:
            await anyio.to_thread.run_sync(save, self._file, report)
        except OSError as error:
            log.warning(
                "the shadow's report cannot be saved as %s: %s; counting continues in memory", self._file, error
            )
        self._saved = report
