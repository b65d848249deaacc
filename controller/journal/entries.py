"""Declares what the journal's queue holds: entries that are queued in constant time, and become rows and lines later.

A domain has entries of its own, as subclasses of :class:`Entry`. They hold immutable values, so the writing thread can
read them. That thread also logs rows as lines, because a line costs about 20 us of the event loop. A domain adds its
kind of rows to :data:`LINES`; an entry of such rows names the ``worker`` that made the decision.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from state_machines.journal.events import SCHEMA_VERSION, Kind, RegionRow, Row
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members

log = logging.getLogger("regent.journal")
PROCEDURES: Final = logging.getLogger("regent.procedures")
_UNDOING: Final = frozenset({State.FAILED.name, State.ROLLEDBACK.name})


class Head(Struct, frozen=True):
    """First fields of all rows of a term."""

    cluster: str
    ctl_id: int
    ctl_epoch: int


class Moment(Struct, frozen=True, gc=False):
    """Wall and monotonic clock in microseconds; begin of the event and of its decision (0: unknown)."""

    ts_us: int
    mono_us: int
    detect_us: int = 0
    decide_us: int = 0


class Entry(Struct, frozen=True):
    """Rows of one term, from number ``seq`` on, that belong together. Its length is their number."""

    head: Head
    seq: int
    moment: Moment

    def __len__(self) -> int:
        raise NotImplementedError

    def rows(self) -> Iterator[Row]:
        """Yields the rows in the order of their numbers. Any thread."""
        raise NotImplementedError

    def stored(self) -> Iterator[Row | RegionRow]:
        """Yields the rows as they are encoded: some kinds of rows have a form that is made faster. Any thread."""
        return self.rows()

    def log(self, hidden: Counter[str]) -> None:
        """Logs the lines of an entry that has some; ``hidden`` counts the events without one. Any thread."""

    def sum_up(self, hidden: Counter[str]) -> None:
        """Logs a line of what entries like this one have counted as hidden. Any thread."""


class Single(Entry, frozen=True):
    """One row, complete except for its head, number and time."""

    fields: dict[str, Any]

    def __len__(self) -> int:
        return 1

    def rows(self) -> Iterator[Row]:
        """Yields the row."""
        yield _row(self, self.fields)


class Lost(Entry, frozen=True):
    """Rows that will not be written; one row marks them."""

    count: int
    why: str

    def __len__(self) -> int:
        return self.count

    def rows(self) -> Iterator[Row]:
        """Yields the mark."""
        yield _row(self, {"kind": Kind.UNRECORDED, "lost": self.count, "why": self.why})


def lost(entry: Entry, why: str) -> Lost:
    """Returns the mark of an entry that cannot be written."""
    return entry if isinstance(entry, Lost) else Lost(entry.head, entry.seq, entry.moment, len(entry), why)


def log_entries(entries: Iterable[Entry]) -> None:
    """Logs the lines of entries; a defect in one of them is logged, and costs its own lines alone."""
    hidden: Counter[str] = Counter()
    counted: Entry | None = None
    for entry in entries:
        before = len(hidden)
        try:
            entry.log(hidden)
        except Exception:
            log.exception("a defect in the journal: lines of %d changes are not logged", len(entry))
        if len(hidden) > before:
            counted = entry
    if counted is not None:
        counted.sum_up(hidden)


def _row(entry: Entry, fields: dict[str, Any]) -> Row:
    head, moment = entry.head, entry.moment
    common = (SCHEMA_VERSION, head.cluster, head.ctl_id, head.ctl_epoch, entry.seq, moment.ts_us, moment.mono_us)
    return Row(*common, **fields)


# -- lines of the log


class Line(NamedTuple):
    """A line, its logger and its level."""

    logger: logging.Logger
    level: int
    text: str


def of_procedure(row: Row) -> Line:
    """Renders ``pid=12 ppid=3 kind: STATE, sentence``: ``grep pid=12`` finds a procedure and its children."""
    of = about(Members((), (), row.table or "", row.region or 0, row.server or "", row.incarnation or 0))
    step = f", step {row.step}" if of and row.step and row.took_ms is None else ""
    level = level_of(row.to_state, row.attempts)
    return Line(PROCEDURES, level, f"{family(row)}: {row.to_state}, {row.why}{of and f'; {of}{step}'}")


def level_of(state: str | None, attempts: int | None) -> int:
    """Returns the level of the line of a procedure that is in a state now, and whose step failed so often."""
    return logging.WARNING if state in _UNDOING or attempts else logging.INFO


def family(row: Row) -> str:
    """Renders the pid of a procedure, its parent's and its kind."""
    ppid = f" ppid={row.ppid}" if row.ppid else ""
    return f"pid={row.pid}{ppid} {row.procedure}" if row.procedure else f"pid={row.pid}{ppid}"


def about(of: Members) -> str:
    """Renders the table, the region and the process that a procedure is about, as far as it is about some."""
    parts = (
        f"table={of.table}" if of.table else "",
        f"region={of.table and f'{of.table}#'}{of.region}" if of.region else "",
        f"server={process(of.server, of.incarnation)}" if of.server else "",
    )
    return " ".join(filter(None, parts))


def process(server: str | None, incarnation: int | None) -> str:
    """Renders a process of a server; the name alone where no process is chosen."""
    return f"{server},{incarnation}" if server and incarnation else server or ""


LINES: Final[Mapping[str, Callable[[Row], Line]]] = {Kind.PROC_STATE: of_procedure}
"""Renderings of rows by their kind."""


def log_lines(rows: Iterable[Row], worker: str) -> None:
    """Logs a line for each row, with the time of the row. Any thread."""
    for row in rows:
        log_line(LINES[row.kind](row), worker, row.ts_us)


def log_line(line: Line, worker: str, ts_us: int) -> None:
    """Logs a line with the time of its event. Any thread."""
    logger, level, text = line
    if logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (text,), None, extra={"worker": worker})
        record.created = ts_us / 1e6
        record.msecs = ts_us // 1_000 % 1_000
        logger.handle(record)
