"""Limits kazoo's own log lines: each at most once a minute, and none without a handler."""

from __future__ import annotations

import logging
import time
from typing import Final

NAME: Final = "regent.metadata_store.kazoo"
REPEAT_S: Final = 60.0
KNOWN_MAX: Final = 200


class OnceAMinute(logging.Filter):
    """Passes a line once in ``REPEAT_S``; the next one that passes has the number of those left out."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._passed: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record is logged."""
        text, now_s = record.getMessage(), time.monotonic()
        if record.args:  # a sentence with a cause in it
            self.last = text
        since_s, left_out = self._passed.get(text, (-REPEAT_S, 0))
        if now_s - since_s < REPEAT_S:
            self._passed[text] = since_s, left_out + 1
            return False
        if len(self._passed) >= KNOWN_MAX:
            self._passed.clear()
        self._passed[text] = now_s, 0
        if left_out:
            record.msg, record.args = f"{text} ({left_out} more times since)", None
        return True


_ONCE: Final = OnceAMinute()


def last_line() -> str:
    """Returns the last line of the library that names a cause, for the sentence of a session that did not come up."""
    return _ONCE.last


def library_log() -> logging.Logger:
    """Returns the logger that kazoo is given."""
    found, _ONCE.last = logging.getLogger(NAME), ""
    if _ONCE not in found.filters:
        found.addFilter(_ONCE)
        found.addHandler(logging.NullHandler())  # a command reports the failure in its own words
    return found
