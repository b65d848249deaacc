"""Bounds the rounds of "read, decide, write, and read again where another writer came first"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from metadata_store.fencing.fenced import WRITES_MAX


class ConflictRounds(Iterator[int]):
    """Yields how many writes each round may put into one multi, for a bounded number of rounds.

    In the first ``together`` rounds writes share multis. In the last ``alone`` rounds each write has a multi of its
    own, so that a contended znode does not hold up those that shared a multi with it.
    """

    def __init__(self, together: int, alone: int = 0) -> None:
        self._together = together
        self._most = together + alone
        self._begun = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        if self._begun >= self._most:
            raise StopIteration
        self._begun += 1
        return WRITES_MAX if self._begun <= self._together else 1

    def repeat(self) -> None:
        """Does not count the round: it met no other writer, and the lease bounds lost connections."""
        self._begun -= 1
