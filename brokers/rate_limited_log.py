"""A log of warnings that peers cause: each kind of each peer once a minute, and a bound for all together."""

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
"""Lines in that time, of all peers together: strangers with many addresses must not fill a disk."""


class RateLimitedLog:
    """Logs a sentence per key at most once in :data:`LOG_INTERVAL_S`, with how often it was left out since."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._began_s = float("-inf")
        self._lines = 0

    def warn(self, peer: str, kind: str, sentence: str) -> None:
        """Says it, unless the same kind of thing was said of the same peer lately."""
        now_s, key = self._clock(), (peer, kind)
        said_s, left_out = self._said.pop(key, (None, 0))
        if said_s is not None and now_s - said_s < LOG_INTERVAL_S:
            self._said[key] = said_s, left_out + 1
            return
        again = f" ({left_out} more of these in the last minute or longer)" if left_out else ""
        if self._is_room(now_s):
            log.warning("%s%s", sentence, again)
        self._said[key] = now_s, 0
        while len(self._said) > LOG_KEYS_MAX:
            self._said.popitem(last=False)

    def _is_room(self, now_s: float) -> bool:
        if now_s - self._began_s >= LOG_INTERVAL_S:
            if (left_out := self._lines - LOG_LINES_MAX) > 0:
                log.warning("%d warnings about other peers were left out in the last minute or longer", left_out)
            self._began_s, self._lines = now_s, 0
        self._lines += 1
        return self._lines <= LOG_LINES_MAX
