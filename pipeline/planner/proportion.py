"""Moves a part of a broker's replicas that has its loads in the proportion in which it has too much of them."""

from __future__ import annotations

from typing import Final

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.bounds import DISK, KINDS
from pipeline.planner.state import FLOOR, LOAD, SCALE, TOP

PASSES_MAX: Final = 3
"""Times that the replicas of one broker are looked through, each time with less regard to proportion."""
EDGE: Final = 0.15
"""Share of the range within the bounds that the goal of a load stays away from its ends."""
OFF_MAX: Final = 0.004
"""How far the moved loads may be from their proportion in the first pass, as a share of the mean."""


@compiled
def goals_of(book: Array, broker: int, goal: Array) -> bool:
    """Writes how much of each load is to leave, as a share of the mean; False where there are no bytes too many.

    The bytes are as few as can be. The other loads go with them, but none leaves its bounds. Loads without a bound
    get -1.
    """
    scale = book[SCALE, broker, DISK]
    load, top = book[LOAD, broker, DISK], book[TOP, broker, DISK]
    if not (load - top) * scale > 0.0:
        return False
    part = (load - top) / load
    for kind in range(KINDS):
        goal[kind] = -1.0
        if book[TOP, broker, kind] < np.inf and book[SCALE, broker, kind] > 0.0:
            load, scale = book[LOAD, broker, kind], book[SCALE, broker, kind]
            least = max(0.0, (load - book[TOP, broker, kind]) * scale)
            most = max(0.0, (load - max(0.0, book[FLOOR, broker, kind])) * scale)
            edge = EDGE * (most - least)
            goal[kind] = min(max(part * load * scale, least + edge), max(most - edge, least))
    goal[DISK] = part * book[LOAD, broker, DISK] * book[SCALE, broker, DISK]
    return True


@compiled
def in_proportion(book: Array, broker: int, goal: Array, gone: Array, change: Array, limit: float) -> bool:
    """Checks whether a further change leaves the loads that left nearer to their proportion, or near enough.

    ``gone``: what left so far, as shares of the mean. ``limit``: of the sum of the squared distances.
    """
    was, now = 0.0, 0.0
    done, more = gone[DISK] / goal[DISK], change[DISK] * book[SCALE, broker, DISK] / goal[DISK]
    for kind in range(KINDS):
        if kind != DISK and goal[kind] >= 0.0:
            far = gone[kind] - done * goal[kind]
            was += far * far
            far += change[kind] * book[SCALE, broker, kind] - more * goal[kind]
            now += far * far
    return now <= max(was, limit)


@compiled
def leave(book: Array, broker: int, gone: Array, change: Array) -> None:
    """Adds a change to what left."""
    for kind in range(KINDS):
        gone[kind] += change[kind] * book[SCALE, broker, kind]


@compiled
def stride(count: int) -> int:
    """Returns a step that comes by all of ``count`` places before it comes by one again, far from the one before."""
    step = max(1, int(0.618 * count))
    while True:
        one, two = step, count
        while two:
            one, two = two, one % two
        if one == 1:
            return step
        step += 1
