"""Renders what happened to regions as lines of the log, each with the pid of the procedure and its parent's.

Where more than :data:`TOGETHER_MAX` procedures on regions begin together, these have no lines: one line in a while
counts what they did. Their rows are in the journal like those of all others.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final

from controller.journal.entries import PROCEDURES, Line, about, family, level_of, log_line, of_procedure, process
from controller.process.wording import counted
from controller.regions.journal.items import (
    Attached,
    Changed,
    Discarded,
    Dispatched,
    Forgotten,
    Independent,
    Item,
    Made,
    Moved,
    Reported,
    ReportedTogether,
    ServerMoved,
    Together,
    rows_in,
)
from controller.regions.journal.rows import DELETED, Regional
from regent_agent import protocol
from state_machines.journal.events import Row
from state_machines.regions.states import RegionState

log = logging.getLogger("regent.regions")

TOGETHER_MAX: Final = 100
"""Procedures on regions that begin in one turn of the loop, above which they have no lines."""
S = RegionState
_TROUBLES: Final = frozenset({S.ABNORMALLY_CLOSED, S.FAILED_OPEN})
_STATES: Final = {state: state.name for state in S}
GOOD: Final = frozenset({protocol.OPENED, protocol.CLOSED, protocol.DONE})
_SENTENCES: Final = {
    S.OPENING: "is stored, the open is sent next",
    S.CLOSING: "is stored, the close is sent next",
    S.SPLITTING: "as two others are to get its keys, the close is sent next",
    S.SPLIT: "is stored: two others have its keys",
    S.MERGING: "as another one is to get its keys, the close is sent next",
    S.MERGED: "is stored: another one has its keys",
    S.ABNORMALLY_CLOSED: "because its server crashed, and is fenced",
    S.FAILED_OPEN: "is stored: no server could open it; remove the cause, and have it assigned again",
}


class LoggedRegional(Regional, frozen=True):
    """Events of one turn whose lines are logged."""

    def log(self, hidden: Counter[str]) -> None:
        """Writes the lines of each item that is not quiet, and counts others; makes none that loggers leave out."""
        seq = self.seq
        for item in self.items:
            if type(item) is Moved and item.quiet:  # most items are
                hidden[_STATES[item.state]] += 1
                seq += 1
                continue
            if not _is_quiet(item) and _is_shown(item):
                for line in _lines(self, item, seq):
                    log_line(line, self.worker, self.moment.ts_us)
            seq += rows_in(item)

    def sum_up(self, hidden: Counter[str]) -> None:
        """Writes one line for all quiet items."""
        counts = ", ".join(f"{count} x {what}" for what, count in hidden.most_common())
        text = f"regions in bulk: {counts}; each has its rows in the journal alone"
        log_line(Line(log, logging.INFO, text), self.worker, self.moment.ts_us)


def _is_quiet(item: Item) -> bool:
    """Checks whether an item has no lines."""
    if isinstance(item, Changed):
        return len(item.quiet) == len(item.moved)
    return isinstance(item, Made | Together | ReportedTogether) or (isinstance(item, Reported) and item.quiet)


def _is_shown(item: Item) -> bool:
    logger = PROCEDURES if isinstance(item, Changed) else log
    return logger.isEnabledFor(_level(item))


def _level(item: Item) -> int:
    """Returns the level of an item's lines, the highest where they have several."""
    match item:
        case Changed():
            return max(level_of(after.state.name, after.attempts) for _, after in item.moved)
        case Moved():
            troubles = item.state in _TROUBLES
        case Reported():
            troubles = item.result.outcome not in GOOD
        case ServerMoved():
            troubles = item.troubles
        case _:
            troubles = False
    return logging.WARNING if troubles else logging.INFO


def _lines(entry: Regional, item: Item, seq: int) -> Iterator[Line]:
    match item:
        case Changed():
            yield from (of_procedure(row) for row in entry.of(item, seq) if row.pid not in item.quiet)
        case Dispatched():
            yield from _dispatched(entry, item)
        case _:
            for row in entry.of(item, seq):
                yield _line(entry, item, row)


def _line(entry: Regional, item: Item, row: Row) -> Line:
    match item:
        case Moved():
            return _moved(item, row)
        case Attached():
            return _attached(entry, item, row)
        case Discarded():
            text = f"{row.from_state} -> {row.to_state}: it is forgotten, as its data is of no use"
            return Line(log, logging.INFO, f"{family(row)}: {text}; {_where(row)}")
        case Forgotten():
            text = f"{row.from_state or 'left out'} -> {row.to_state}: its rows are removed, its own data stays"
            return Line(log, logging.INFO, f"{family(row)}: {text}; {_where(row)}")
        case Independent():
            text = (
                f"{item.server} reported that region {item.region} has data of its own: it needs that of others no more"
            )
            text += "" if item.answered else "; the term ends before that is known to be stored"
            return Line(log, logging.INFO, text)
        case Reported():
            return _reported(item, row)
        case ServerMoved():
            return _server(item, row)
        case _:
            return _table(row)


def _attached(entry: Regional, item: Attached, row: Row) -> Line:
    """Renders the begin: the state, the location, and whether the region returns there."""
    wanted = entry.about(item.record).server
    retained = entry.retains and item.server is not None and not wanted
    text = (
        f"starts; rit={row.to_state}, location={process(row.server0, row.incarnation0) or 'none'}, "
        f"target={wanted or 'any'}, retain={str(retained).lower()}"
    )
    return Line(log, logging.INFO, f"{family(row)}: {text}; {_where(row)}{_cause(row)}")


def _moved(item: Moved, row: Row) -> Line:
    at = f" at {item.server}" if item.server is not None else f" from {item.had}" if item.had is not None else ""
    text = f"{row.from_state} -> {row.to_state}{at} {_SENTENCES.get(item.state, 'is stored')}"
    sequence = f", sequence={row.sequence}" if item.state is S.OPEN else ""
    return Line(log, _level(item), f"{family(row)}: {text}; {_where(row)}, token={item.token}{sequence}{_cause(row)}")


def _dispatched(entry: Regional, item: Dispatched) -> Iterator[Line]:
    """Renders a line for each operation of a batch that has lines."""
    for record in item.records:
        of = about(entry.about(record)._replace(server="", incarnation=0))
        ppid = f" ppid={record.parent}" if record.parent else ""
        text = f"sent to {item.server} with batch {item.number} of {counted(len(item.operations), 'operation')}"
        yield Line(log, logging.INFO, f"pid={record.pid}{ppid} {record.kind}: {text}{of and f'; {of}'}")


def _reported(item: Reported, row: Row) -> Line:
    sequence = f", sequence={row.sequence}" if row.outcome == protocol.OPENED else ""
    text = f"{process(row.server, row.incarnation)} reported {row.outcome}{sequence}"
    why = f": {row.err}" if row.err else ""
    return Line(log, _level(item), f"{family(row)}: {text}{why}; {_where(row)}")


def _server(item: ServerMoved, row: Row) -> Line:
    pid = f"pid={row.pid} crash: " if row.pid else ""
    text = f"{pid}server {item.server} is {item.after} with {counted(item.regions, 'region')}: {row.why}"
    return Line(log, _level(item), text)


def _table(row: Row) -> Line:
    became = (
        "is deleted" if row.to_state == DELETED else f"is {row.to_state} with {counted(row.regions or 0, 'region')}"
    )
    return Line(log, logging.INFO, f"pid={row.pid} table {row.table} {became}, it was {row.from_state or 'not there'}")


def _where(row: Row) -> str:
    return f"table={row.table} region={row.table}#{row.region}" if row.region else "no region"


def _cause(row: Row) -> str:
    return f", because of {row.why}" if row.why else ""
