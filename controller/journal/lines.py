"""Logs rows as lines. The journal's thread does so, because a line costs about 20 us of the event loop.

A domain adds its kind of rows to :data:`LINES`; an entry of such rows names the ``worker`` that made the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from state_machines.journal.events import Kind, Row
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members

_UNDOING: Final = frozenset({State.FAILED.name, State.ROLLEDBACK.name})


class Line(NamedTuple):
    """A line, its logger and its level."""

    logger: logging.Logger
    level: int
    text: str


def of_procedure(row: Row) -> Line:
    """Renders ``pid=12 ppid=3 kind: STATE, sentence``: ``grep pid=12`` finds a procedure and its children."""
    level = logging.WARNING if row.to_state in _UNDOING or row.attempts else logging.INFO
    of = about(Members((), (), row.table or "", row.region or 0, row.server or "", row.incarnation or 0))
    step = f", step {row.step}" if of and row.step and row.took_ms is None else ""
    return Line(_PROCEDURES, level, f"{family(row)}: {row.to_state}, {row.why}{of and f'; {of}{step}'}")


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


_PROCEDURES: Final = logging.getLogger("regent.procedures")

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
