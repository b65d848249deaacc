"""Orders the moves that lead from one placement to another, and leaves out those that are not worth it.

Moves that lower the total by themselves come first, those that lower it most before the others. Then come pairs that
lower it together, as two regions that change places do. So a plan that is cut off, or ends early, has helped, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Final

from state_machines.regions.balancing.placing import LEAST_GAIN, Placing, cause

PASSES: Final = 3
"""A move may help only after others."""
TRIED: Final = 8
"""Moves that are tried beside one to find a pair."""


class Ordering:
    """Carries moves out on a placement that is at home still. ``made``: regions in order, each with the cost it lowers.

    ``wanted``: the server of each region in the end. ``most``: moves at most.
    """

    def __init__(self, placing: Placing, wanted: Sequence[int], most: int) -> None:
        self._placing, self._wanted, self._most = placing, wanted, most
        self.made: list[tuple[int, str]] = []

    def run(self) -> None:
        """Makes all moves that are worth it."""
        placing, wanted = self._placing, self._wanted
        left = [one for one in placing.free if wanted[one] != placing.where[one]]
        left.sort(key=lambda one: placing.gain(one, wanted[one]))
        for _ in range(PASSES):
            rest = self._alone(left)
            if len(rest) == len(left) or not self._room:
                break
            left = rest
        else:
            rest = left
        self._all(self._pairs(rest))

    @property
    def _room(self) -> int:
        return self._most - len(self.made)

    def _alone(self, left: Sequence[int]) -> list[int]:
        """Makes the moves that lower the total by themselves; returns the others."""
        rest: list[int] = []
        for one in left:
            if self._room and self._placing.gain(one, self._wanted[one]) < -LEAST_GAIN:
                self._make(one)
            else:
                rest.append(one)
        return rest

    def _pairs(self, left: Sequence[int]) -> list[int]:
        """Makes pairs that lower the total together: the second move leaves the server that the first one goes to."""
        placing, wanted = self._placing, self._wanted
        leaving: dict[int, list[int]] = {}
        for one in reversed(left):
            leaving.setdefault(placing.where[one], []).append(one)
        made: set[int] = set()
        for one in left:
            if self._room < 2:
                break
            if one in made:
                continue
            own, to = placing.where[one], wanted[one]
            if (alone := placing.gain(one, to)) < -LEAST_GAIN:
                self._make(one)
                made.add(one)
                continue
            parts = placing.parts(one, to)
            placing.move(one, to)
            some = [other for other in leaving.get(to, ())[-TRIED:] if other not in made]
            found = min(some, key=lambda other: placing.gain(other, wanted[other]), default=-1)
            if found >= 0 and alone + placing.gain(found, wanted[found]) < -LEAST_GAIN:
                made.update((one, found))
                both = map(add, parts, placing.parts(found, wanted[found]))
                self.made += dict.fromkeys((one, found), cause(list(both))).items()
                placing.move(found, wanted[found])
            else:
                placing.move(one, own)
        return [one for one in left if one not in made]

    def _all(self, left: Sequence[int]) -> None:
        """Makes all other moves, where there is room for all of them and they lower the total together."""
        if not left or len(left) > self._room:
            return
        placing, change, made = self._placing, 0.0, len(self.made)
        homes = [placing.where[one] for one in left]
        for one in left:
            change += placing.gain(one, self._wanted[one])
            self._make(one)
        if change >= -LEAST_GAIN:
            del self.made[made:]
            for one, home in zip(left, homes, strict=True):
                placing.move(one, home)

    def _make(self, one: int) -> None:
        to = self._wanted[one]
        self.made.append((one, cause(self._placing.parts(one, to))))
        self._placing.move(one, to)
