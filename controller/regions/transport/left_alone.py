"""Leaves znodes alone for a time that ZooKeeper refuses to write, or to show."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from metadata_store.catalog.unassigned import path_of
from metadata_store.errors import Code

log = logging.getLogger("regent.regions")

PAUSES_S: Final = (1.0, 5.0, 30.0)
"""Pauses before a request is tried again that is refused for what no version explains: an ACL, a child."""
RACES: Final = frozenset({Code.BAD_VERSION, Code.NO_NODE, Code.NODE_EXISTS})
RACES_MAX: Final = 20
"""Refusals in a row that a faster writer explains."""
READ: Final = "read"
WRITTEN: Final = "written"
REMEDY: Final = "look at its ACL and children, or delete it with these"
LINES_MAX: Final = 5
"""Znodes that the log names in a minute."""
MINUTE_S: Final = 60.0


class _Left(NamedTuple):
    until_s: float
    times: int
    code: Code
    ends: asyncio.TimerHandle


class LeftAlone:
    """The znodes of regions below ``root`` that are left alone. ``again``: takes region and request after a pause."""

    def __init__(self, root: str, again: Callable[[int, str], None]) -> None:
        self._root, self._again = root, again
        self._left: dict[tuple[int, str], _Left] = {}
        self._refusals: Counter[tuple[int, str]] = Counter()
        self._minute_s, self._lines = float("-inf"), 0

    def refused(self, region: int, what: str, code: Code) -> bool:
        """Counts a refusal; returns whether the znode is left alone from now on."""
        key = region, what
        self._refusals[key] += 1
        if self.has(region, what) or (code in RACES and self._refusals[key] <= RACES_MAX):
            return False
        times = self._left[key].times if key in self._left else 0
        pause_s = PAUSES_S[min(times, len(PAUSES_S) - 1)]
        loop = asyncio.get_running_loop()
        until_s = loop.time() + pause_s
        self._left[key] = _Left(until_s, times + 1, code, loop.call_at(until_s, self._over, region, what))
        self._log(until_s - pause_s, path_of(self._root, region), what, code, pause_s)
        return True

    def has(self, region: int, what: str) -> bool:
        """Checks whether a znode is not to be read, or written, for now."""
        left = self._left.get((region, what))
        return left is not None and left.until_s > 0

    def is_unread(self, region: int) -> bool:
        """Checks whether the latest read of a znode was refused: nothing is known of it, so nothing is written."""
        return (region, READ) in self._left

    def went_well(self, region: int, what: str) -> None:
        """Forgets the refusals of a request, because ZooKeeper has carried it out, or nothing waits for it."""
        self._refusals.pop((region, what), None)
        if (left := self._left.pop((region, what), None)) is not None:
            left.ends.cancel()

    def why(self, region: int) -> str:
        """Says in a part of a sentence what cannot be done with a znode; empty where nothing was refused lately."""
        for what in (READ, WRITTEN):
            if (left := self._left.get((region, what))) is not None:
                return f"cannot be {what} ({left.code.name}), which is tried from time to time: {REMEDY}"
        return ""

    def _over(self, region: int, what: str) -> None:
        self._left[region, what] = self._left[region, what]._replace(until_s=0.0)
        self._again(region, what)

    def _log(self, now_s: float, path: str, what: str, code: Code, pause_s: float) -> None:
        if now_s - self._minute_s >= MINUTE_S:
            self._minute_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            log.warning(
                "%s cannot be %s (%s), and is left alone for %.0f s; an operation on its region waits for that: %s",
                *(path, what, code.name, pause_s, REMEDY),
            )
        elif self._lines == LINES_MAX + 1:
            log.warning(
                "more znodes of regions cannot be read or written, which are not named for a minute: "
                "'regent regions explain ID' says it of each"
            )
