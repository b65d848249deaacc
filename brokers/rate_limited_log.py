"""Logs what may happen again and again: each kind once a minute, within a bound for all kinds together.

Warnings are kept apart by the peer that causes them; errors, with their traceback, by the place in the code.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

log = logging.getLogger("regent.listener")

LOG_KEYS_MAX: Final = 1_000
LOG_INTERVAL_S: Final = 60.0
LOG_LINES_MAX: Final = 200
"""Most lines in that time for all peers together: unknown peers with many addresses must not fill a disk."""


class _Lines:
    """Decides which lines are logged. ``others``: names those that are suppressed beyond the bound."""

    def __init__(self, clock: Callable[[], float], others: str) -> None:
        self._clock = clock
        self._others = others
        self._logged: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._began_s = float("-inf")
        self._lines = 0

    def again(self, key: tuple[str, str]) -> str | None:
        """Returns the end of a line, with the count of suppressed ones; None where it is suppressed itself."""
        now_s = self._clock()
        logged_s, suppressed = self._logged.pop(key, (None, 0))
        if logged_s is not None and now_s - logged_s < LOG_INTERVAL_S:
            self._logged[key] = logged_s, suppressed + 1
            return None
        is_room = self._is_room(now_s)
        self._logged[key] = now_s, 0
        while len(self._logged) > LOG_KEYS_MAX:
            self._logged.popitem(last=False)
        if not is_room:
            return None
        return f" ({suppressed} more of these in the last minute or longer)" if suppressed else ""

    def _is_room(self, now_s: float) -> bool:
        if now_s - self._began_s >= LOG_INTERVAL_S:
            if (suppressed := self._lines - LOG_LINES_MAX) > 0:
                log.warning("%d %s were suppressed in the last minute or longer", suppressed, self._others)
            self._began_s, self._lines = now_s, 0
        self._lines += 1
        return self._lines <= LOG_LINES_MAX


class RateLimitedLog:
    """Logs a sentence per key at most once in :data:`LOG_INTERVAL_S`, with the count of suppressed ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._warnings = _Lines(clock, "warnings about other peers")
        self._errors = _Lines(clock, "errors of other places")

    def warn(self, peer: str, kind: str, sentence: str) -> None:
        """Logs the sentence, unless a warning of the same kind and peer was logged lately."""
        if (again := self._warnings.again((peer, kind))) is not None:
            log.warning("%s%s", sentence, again)

    def error(self, logger: logging.Logger, kind: str, sentence: str, error: BaseException) -> None:
        """Logs the sentence with the traceback, unless an error of the same kind, type and place was logged lately."""
        if (again := self._errors.again((kind, _place(error)))) is not None:
            logger.error("%s%s", sentence, again, exc_info=error)


def _place(error: BaseException) -> str:
    """Returns the type of an error, and the line of the code that raised it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    return f"{type(error).__name__} at {where}"
