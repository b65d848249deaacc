"""Logs warnings that peers cause: each kind of each peer once a minute, within a bound for all peers together."""

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


class RateLimitedLog:
    """Logs a sentence per key at most once in :data:`LOG_INTERVAL_S`, with the count of suppressed ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._began_s = float("-inf")
        self._lines = 0

    def warn(self, peer: str, kind: str, sentence: str) -> None:
        """Logs the sentence, unless a warning of the same kind and peer was logged lately."""
        now_s, key = self._clock(), (peer, kind)
        logged_s, suppressed = self._logged.pop(key, (None, 0))
        if logged_s is not None and now_s - logged_s < LOG_INTERVAL_S:
            self._logged[key] = logged_s, suppressed + 1
            return
        again = f" ({suppressed} more of these in the last minute or longer)" if suppressed else ""
        if self._is_room(now_s):
            log.warning("%s%s", sentence, again)
        self._logged[key] = now_s, 0
        while len(self._logged) > LOG_KEYS_MAX:
            self._logged.popitem(last=False)

    def _is_room(self, now_s: float) -> bool:
        if now_s - self._began_s >= LOG_INTERVAL_S:
            if (suppressed := self._lines - LOG_LINES_MAX) > 0:
                log.warning("%d warnings about other peers were suppressed in the last minute or longer", suppressed)
            self._began_s, self._lines = now_s, 0
        self._lines += 1
        return self._lines <= LOG_LINES_MAX
