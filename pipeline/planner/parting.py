"""Cuts a plan into parts, so that between them no broker is above a hard bound that it was not above before.

Moves keep the order of the search where that does. Else each waits until its brokers have room; of a ring of moves that
wait for each other the first one goes ahead, the others follow at once, and no cut is within a ring.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pipeline.planner.arrays import Array, np
from pipeline.planner.certifying import Worse, worse_between
from pipeline.planner.planning import Planned
from pipeline.planner.state import COUNT, CPU, DISK, IN, OUT, bounds_of, loads_of

BOUND: Final = (COUNT, DISK, IN, OUT, CPU)
"""Kinds of load that have a hard bound."""
ROUNDS_MAX: Final = 100
"""How often the moves that wait are looked at; what still waits then keeps its order."""
RING_MAX: Final = 30
"""Moves of a ring."""
SLACK: Final = 1e-9
"""Rounding of a load, as a share of what is allowed."""

Change: TypeAlias = dict[int, Array]
"""What a move adds to each broker, by kind of :data:`BOUND`."""


@dataclass(frozen=True)
class Parts:
    """A plan whose ``found.rows`` are in the order of its parts. ``ends``: where each part ends in them, ascending.

    ``worse``: what is worse after a part than before the first one; the last part is the plan's own certificate.
    """

    found: Planned
    ends: tuple[int, ...]
    worse: tuple[Worse, ...]


def in_parts(found: Planned, count: int, moves_max: int) -> Parts:
    """Cuts a plan into ``count`` parts or more; none has more than ``moves_max`` moves."""
    moves = len(found.rows)
    wanted = min(max(count, -(-moves // moves_max)), moves) or 1
    even = tuple(moves * number // wanted for number in range(1, wanted + 1))
    cut = _judged(found, even)
    if not cut.worse:
        return cut
    rows, whole = _in_turn(found)
    return min(
        (_judged(replace(found, rows=rows), _ends(whole, wanted, moves_max)), cut), key=lambda one: len(one.worse)
    )


def _judged(found: Planned, ends: tuple[int, ...]) -> Parts:
    parts = [part for part in np.split(found.rows, ends[:-1]) if len(part)]
    worse = tuple(one for one in worse_between(found.problem, found.best.replicas, parts) if one.part < len(parts))
    return Parts(found, ends, worse)


def _ends(whole: Array, wanted: int, moves_max: int) -> tuple[int, ...]:
    """Returns ends near even ones, each where ``whole`` is set if there is such a place within ``moves_max`` moves."""
    ends, begin, left = [], 0, wanted
    places = np.nonzero(whole)[0] + 1
    while begin < len(whole):
        left = max(left, -(-(len(whole) - begin) // moves_max), 1)
        ideal = begin + -(-(len(whole) - begin) // left)
        before = places[(places > begin) & (places <= ideal)]
        after = places[(places > ideal) & (places <= begin + moves_max)]
        begin = int(before[-1] if len(before) else after[0] if len(after) else ideal)
        ends.append(begin)
        left -= 1
    return tuple(ends)


def _in_turn(found: Planned) -> tuple[Array, Array]:
    """Returns the rows in an order in which moves wait for room, and whether no broker is too full after each."""
    turn = _Turn(found)
    waiting = list(range(len(found.rows)))
    for _ in range(ROUNDS_MAX):
        left = [at for at in waiting if not (turn.done[at] or turn.went(at))]
        if not left:
            break
        if len(left) == len(waiting):
            turn.force(left[0])
        waiting = left
    for at in np.nonzero(~turn.done)[0].tolist():
        turn.go(at)
    return found.rows[turn.order], np.array(turn.whole, bool)


class _Turn:
    """The loads of brokers while moves are carried out one by one."""

    def __init__(self, found: Planned) -> None:
        problem = found.problem
        self._load = loads_of(problem, problem.replicas)[:, BOUND]
        caps = bounds_of(problem, loads_of(problem, problem.replicas)).cap[:, BOUND]
        caps[~problem.brokers.live] = np.inf
        self._allowed = np.maximum(caps, self._load) * (1 + SLACK)
        self._changes = [_change(found, row) for row in found.rows.tolist()]
        self._leaving: dict[int, list[int]] = defaultdict(list)
        for at, change in enumerate(self._changes):
            for broker, more in change.items():
                if (more < 0).any():
                    self._leaving[broker].append(at)
        self.done = np.zeros(len(found.rows), bool)
        self.order: list[int] = []
        self.whole: list[bool] = []
        self._full: set[int] = set()

    def went(self, at: int) -> bool:
        """Carries a move out where its brokers have room, and returns whether it did."""
        if not self._fits(at):
            return False
        self.go(at)
        return True

    def force(self, at: int) -> None:
        """Carries a move out, and then others that leave the brokers which are too full."""
        self.go(at)
        for _ in range(RING_MAX):
            if not self._full:
                return
            broker = min(self._full)
            self._leaving[broker] = [one for one in self._leaving[broker] if not self.done[one]]
            if not self._leaving[broker]:
                return
            self.go(next((one for one in self._leaving[broker] if self._fits(one)), self._leaving[broker][0]))

    def go(self, at: int) -> None:
        """Carries a move out."""
        for broker, more in self._changes[at].items():
            self._load[broker] += more
            if (self._load[broker] > self._allowed[broker]).any():
                self._full.add(broker)
            else:
                self._full.discard(broker)
        self.done[at] = True
        self.order.append(at)
        self.whole.append(not self._full)

    def _fits(self, at: int) -> bool:
        return all(
            ((more <= 0) | (self._load[broker] + more <= self._allowed[broker])).all()
            for broker, more in self._changes[at].items()
        )


def _change(found: Planned, row: int) -> Change:
    """Returns what a move adds to the loads of its brokers."""
    problem, change = found.problem, Change()
    members = int((problem.replicas[row] >= 0).sum())
    ins, outs = problem.bytes_in[row], problem.bytes_out[row] + problem.bytes_in[row] * (members - 1)
    follows = np.array([1, problem.size[row], ins, 0, ins * problem.limits.follower_cpu])
    leads = np.array([1, problem.size[row], ins, outs, ins])
    for replicas, sign in ((problem.replicas[row], -1), (found.best.replicas[row], 1)):
        for place, broker in enumerate(replicas[:members].tolist()):
            change[broker] = change.get(broker, 0) + sign * (follows if place else leads)
    return change
