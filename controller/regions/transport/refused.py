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

ASIDE_S: Final = (1.0, 5.0, 30.0)
"""Pauses before a request is tried again that is refused for what no version explains: an ACL, a child."""
RACES: Final = frozenset({Code.BAD_VERSION, Code.NO_NODE, Code.NODE_EXISTS})
RACES_MAX: Final = 20
"""Refusals in a row that a faster writer explains."""
READ: Final = "read"
WRITTEN: Final = "written"
REMEDY: Final = "look at its ACL and children, or delete it with these"


class Aside(NamedTuple):
    """A znode that is left alone: until when, how often that was, and what could not be done with it."""

    until_s: float
    times: int
    what: str
    code: Code


class Refused:
    """The znodes of regions below ``root`` that were refused. ``again``: called after a pause."""

    def __init__(self, root: str, again: Callable[[int, str], None]) -> None:
        self._root, self._again = root, again
        self._aside: dict[int, Aside] = {}
        self._count: Counter[int] = Counter()

    def failed(self, region: int, code: Code, what: str) -> bool:
        """Counts a refusal; returns whether the znode is left alone for that, which is logged."""
        self._count[region] += 1
        if code in RACES and self._count[region] <= RACES_MAX:
            return False
        times = self._aside[region].times if region in self._aside else 0
        pause_s = ASIDE_S[min(times, len(ASIDE_S) - 1)]
        loop = asyncio.get_running_loop()
        self._aside[region] = Aside(loop.time() + pause_s, times + 1, what, code)
        loop.call_later(pause_s, self._again, region, what)
        log.warning(
            "%s cannot be %s (%s), and is left alone for %.0f s; region %d waits for that: %s",
            *(path_of(self._root, region), what, code.name, pause_s, region, REMEDY),
        )
        return True

    def waits(self, region: int) -> bool:
        """Checks whether a znode is left alone still."""
        aside = self._aside.get(region)
        return aside is not None and aside.until_s > asyncio.get_running_loop().time()

    def was_read(self, region: int) -> None:
        """Forgets that a znode could not be read."""
        if (aside := self._aside.get(region)) is not None and aside.what == READ:
            del self._aside[region]

    def was_written(self, region: int) -> None:
        """Forgets all refusals of a znode."""
        self._aside.pop(region, None)
        self._count.pop(region, None)

    def why(self, region: int) -> str:
        """Says in a part of a sentence what cannot be done with a znode; empty where nothing was refused."""
        aside = self._aside.get(region)
        return f"cannot be {aside.what} ({aside.code.name}); it is tried from time to time: {REMEDY}" if aside else ""
