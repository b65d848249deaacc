"""The feed of changed rows: which rows changed since a reader's position, in constant memory per row."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

BLOCK_ROWS: Final = 4096
"""Granularity, in rows, at which :meth:`Feed.last_change` tells whether encoded rows are still current."""


class Feed:
    """Rows by the number of their last change, oldest first. A reader keeps the number up to which it has read."""

    def __init__(self) -> None:
        self.number = 0
        self._last: OrderedDict[int, int] = OrderedDict()
        self._blocks: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._last)

    def changed(self, rows: Iterable[int]) -> None:
        """Numbers the rows anew: each gets the next number."""
        last, number = self._last, self.number
        for i in rows:
            number += 1
            last[i] = number
            last.move_to_end(i)
            self._blocks[i // BLOCK_ROWS] = number
        self.number = number

    def since(self, position: int, until: int, limit: int) -> tuple[list[int], int]:
        """The ``limit`` oldest rows last changed after ``position`` and up to ``until``; where a reader is then."""
        found = self._between(position, until)
        if len(found) <= limit:
            return found, max(position, until)
        return found[:limit], self._last[found[limit - 1]]

    def backlog(self, position: int) -> int:
        """How many rows changed after ``position``."""
        return len(self._between(position, self.number))

    def _between(self, position: int, until: int) -> list[int]:
        found: list[int] = []
        if position < until:
            for i, number in reversed(self._last.items()):
                if number <= position:
                    break
                if number <= until:
                    found.append(i)
            found.reverse()
        return found

    def number_of(self, i: int) -> int:
        """Number of a row's last change; 0 where every reader has read it."""
        return self._last.get(i, 0)

    def last_change(self, first: int, last: int) -> int:
        """No row in ``range(first, last)`` changed after this number (exact to a block of rows)."""
        blocks = range(first // BLOCK_ROWS, (last - 1) // BLOCK_ROWS + 1)
        return max((self._blocks.get(block, 0) for block in blocks), default=0)

    def forget(self, position: int) -> None:
        """Drops what every reader has read."""
        last = self._last
        while last and next(iter(last.values())) <= position:
            last.popitem(last=False)
