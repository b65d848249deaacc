"""Logs ordinary sentences of the standard library's loggers, rendered by structlog on standard error.

Lines are for people on a terminal, otherwise one JSON object each. Tracebacks never print locals. Lines go through a
bounded queue to a thread: a stalled reader of standard error (a full pipe, a stuck journal) must not block the loop, so
lines that do not fit are dropped and counted.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from configs.sections import LogSettings

QUEUED_LINES_MAX: Final = 10_000
FLUSH_S_MAX: Final = 2.0
"""Longest wait for a stalled reader at the end."""
LAST_LINE_S_MAX: Final = 0.5
"""The same for the last line of a process with a stalled loop, whose session must not live much longer."""
STATE_CHANGE: Final = "regent.state-change"
"""Logger of decisions about partitions and replicas, as Kafka's ``state.change.logger``."""

LIBRARIES: Final = ("regent.metadata_store.kazoo",)
"""Loggers below ours on which a library logs."""

LEVELLED: Final = (None, "regent", STATE_CHANGE, *LIBRARIES)
"""Loggers with levels from the settings; None is the root."""


@contextmanager
def logging_to(
    settings: LogSettings, stream: IO[str] | None = None, process: str = ""
) -> Iterator[BoundedQueueHandler]:
    """Logs to ``stream`` (standard error) inside the block; at its end writes the queued lines, within bounds.

    ``process``: a name that every line carries, with the pid, where several processes share the stream.
    """
    stream = stream or sys.stderr
    writer = logging.StreamHandler(stream)
    writer.setFormatter(formatter(_as_json(settings.format, stream), _wants_colors(stream), process))
    lines: queue.Queue[logging.LogRecord | None] = queue.Queue(QUEUED_LINES_MAX)
    thread = threading.Thread(target=_write, args=(lines, writer), name="log-writer", daemon=True)
    queued = BoundedQueueHandler(lines)
    root = logging.getLogger()
    root.addHandler(queued)
    before = {logging.getLogger(name): logging.getLogger(name).level for name in LEVELLED}
    set_levels(settings)
    logging.captureWarnings(True)
    thread.start()
    try:
        yield queued
    finally:
        root.removeHandler(queued)
        logging.captureWarnings(False)
        for logger, level in before.items():
            logger.setLevel(level)
        with contextlib.suppress(queue.Full):
            lines.put(None, timeout=FLUSH_S_MAX)
        thread.join(FLUSH_S_MAX)


def _write(lines: queue.Queue[logging.LogRecord | None], writer: logging.Handler) -> None:
    while (record := lines.get()) is not None:
        writer.handle(record)
        lines.task_done()


def set_levels(settings: LogSettings) -> None:
    """Applies the levels, at start and at a reload. Libraries log from warnings up unless the level is debug."""
    level = settings.level.upper()
    others = level if settings.level == "debug" else max(logging.WARNING, _number(level))
    for name in (None, *LIBRARIES):
        logging.getLogger(name).setLevel(others)
    logging.getLogger("regent").setLevel(level)
    logging.getLogger(STATE_CHANGE).setLevel(settings.state_change_level.upper())


class BoundedQueueHandler(logging.Handler):
    """Hands records to the writing thread; ``dropped`` counts the records lost to a full queue."""

    def __init__(self, lines: queue.Queue[logging.LogRecord | None]) -> None:
        super().__init__()
        self._lines = lines
        self.dropped = 0

    def log_last(self, logger: logging.Logger, text: str) -> None:
        """Logs a critical line and waits until it is written, for ``LAST_LINE_S_MAX`` at most."""
        logger.critical("%s", text)
        deadline_s = time.monotonic() + LAST_LINE_S_MAX
        while self._lines.unfinished_tasks and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def emit(self, record: logging.LogRecord) -> None:
        """Formats the sentence before its arguments can change, and never waits."""
        try:
            fixed = copy.copy(record)
            fixed.msg, fixed.args = record.getMessage(), None
            self._lines.put_nowait(fixed)
        except queue.Full:
            self.dropped += 1
        except Exception:
            self.handleError(record)


def formatter(as_json: bool, colors: bool = False, process: str = "") -> logging.Formatter:
    """Returns a formatter that renders sentence, level, logger, time in UTC, and the fields in ``extra``."""
    origin = {"process": process, "pid": os.getpid()} if process else {}

    def of_process(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
        event.update(origin)
        return event

    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _stamped,
        of_process,
    ]
    plain = structlog.dev.plain_traceback
    last: list[Processor] = (
        [structlog.processors.format_exc_info, _ordered, structlog.processors.JSONRenderer(ensure_ascii=False)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, pad_event_to=0)]
    )
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *last])


def _as_json(chosen: str, stream: IO[str]) -> bool:
    return chosen == "json" or (chosen == "auto" and not stream.isatty())


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level]


def _wants_colors(stream: IO[str]) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def _stamped(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Adds the time of the record, not that of its writing."""
    created = datetime.fromtimestamp(event["_record"].created, UTC)
    event["timestamp"] = created.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _ordered(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Puts time, level, logger and sentence first, so that people can scan a screen of JSON."""
    first = {name: event[name] for name in ("timestamp", "level", "logger", "event") if name in event}
    return first | {name: value for name, value in event.items() if name not in first}
