"""Logs rows as lines. The journal's thread does so, because a line costs about 20 us of the event loop.

A domain adds its kind of rows to :data:`LINES`; an entry of such rows names the ``worker`` that made the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from state_machines.journal.events import Kind, Row
from state_machines.procedures.states import State

_UNDOING: Final = frozenset({State.FAILED.name, State.ROLLEDBACK.name})


class Line(NamedTuple):
    """A line, its logger and its level."""

    logger: logging.Logger
    level: int
    text: str


def of_procedure(row: Row) -> Line:
    """Renders ``pid=12 ppid=3 kind: STATE, sentence``: ``grep pid=12`` finds a procedure and its children."""
    family = f"pid={row.pid} ppid={row.ppid}" if row.ppid else f"pid={row.pid}"
    level = logging.WARNING if row.to_state in _UNDOING or row.attempts else logging.INFO
    return Line(_PROCEDURES, level, f"{family} {row.procedure}: {row.to_state}, {row.why}")


_PROCEDURES: Final = logging.getLogger("regent.procedures")

LINES: Final[Mapping[str, Callable[[Row], Line]]] = {Kind.PROC_STATE: of_procedure}
"""Renderings of rows by their kind."""


def log_lines(rows: Iterable[Row], worker: str) -> None:
    """Logs a line for each row, with the time of the row. Any thread."""
    for row in rows:
        logger, level, text = LINES[row.kind](row)
        if logger.isEnabledFor(level):
            record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (text,), None, extra={"worker": worker})
            record.created = row.ts_us / 1e6
            record.msecs = row.ts_us // 1_000 % 1_000
            logger.handle(record)
