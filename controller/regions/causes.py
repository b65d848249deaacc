"""Remembers for operators why the latest attempt on a region failed: records of procedures do not have all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

KEPT_MAX: Final = 10_000
"""Causes of each kind that are kept; the oldest go first."""


class Cause(NamedTuple):
    """Why an attempt failed, and on which region."""

    region: int
    text: str


class Causes:
    """Holds causes of attempts by the procedure that goes on, and of regions that were given up by the region."""

    def __init__(self) -> None:
        self._attempts: dict[int, Cause] = {}
        self._given_up: dict[int, str] = {}

    def noted(self, pid: int, region: int, text: str) -> None:
        """Notes why the latest attempt of a procedure failed."""
        self._attempts.pop(pid, None)
        self._attempts[pid] = Cause(region, text)
        if len(self._attempts) > KEPT_MAX:
            del self._attempts[next(iter(self._attempts))]

    def over(self, pids: Iterable[int]) -> None:
        """Forgets the causes of procedures that have ended."""
        if self._attempts:
            for pid in pids:
                self._attempts.pop(pid, None)

    def given_up(self, region: int, text: str) -> None:
        """Notes why no server could open a region."""
        self._given_up.pop(region, None)
        self._given_up[region] = text
        if len(self._given_up) > KEPT_MAX:
            del self._given_up[next(iter(self._given_up))]

    def opened(self, region: int) -> None:
        """Forgets why a region could not be opened."""
        self._given_up.pop(region, None)

    def of(self, pid: int) -> str:
        """Returns why the latest attempt of a procedure failed; empty where none did, or it is not known."""
        found = self._attempts.get(pid)
        return "" if found is None else found.text

    def of_region(self, region: int) -> str:
        """Returns why no server could open a region, as far as this term knows."""
        return self._given_up.get(region, "")

    def items(self) -> Iterator[tuple[int, Cause]]:
        """Yields the causes with the pids of procedures that go on, the latest first."""
        return reversed(self._attempts.items())

    def latest(self) -> Iterator[Cause]:
        """Yields the causes of procedures that go on, the latest first."""
        return reversed(self._attempts.values())
