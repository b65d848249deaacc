"""Makes leaders even by the order within replicas: no byte moves."""

from __future__ import annotations

from typing import Final

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.placing import lists, note
from pipeline.planner.scoring import SLACK, above, below, drawn, fill, gained, shift
from pipeline.planner.shedding import GAIN_MIN
from pipeline.planner.state import CAP, FACTOR, FREE, HOST, KINDS, LEFT, LOAD, State

PASSES_MAX: Final = 10


@compiled
def lead(st: State, capped: Array, spread: Array) -> bool:
    """Gives partitions another first replica until the brokers are within their bounds; True where any changed.

    Each change makes the penalties smaller, also where the next broker gets above a soft bound: it passes others on.
    None gets above a hard bound by it, unless the broker that it relieves is above the same one.
    """
    replicas, part, book, who = st.replicas, st.part, st.book, st.who
    width, changed, brokers = replicas.shape[1], False, len(who)
    change, follower = np.zeros(KINDS), np.zeros(KINDS)
    starts, entries = lists(replicas, part, brokers)
    for _ in range(PASSES_MAX):
        any_changed = False
        for broker in range(brokers):
            worst, up = _worst(book, who, broker)
            if worst < 0:
                continue
            mine = entries[starts[broker] : starts[broker + 1]]
            offset = drawn(st.ticks, max(1, len(mine)))
            for i in range(len(mine)):
                row = mine[(offset + i) % len(mine)] // width
                place = _place(replicas, row, part[row, FACTOR], broker)
                if part[row, FREE] == 0 or place < 0 or (place == 0) != up:
                    continue
                hard = book[LOAD, broker, worst] > book[CAP, broker, worst]
                if _lead_one(st, row, place, change, follower, capped[worst] if hard else spread[worst]):
                    any_changed = True
                    worst, was = _worst(book, who, broker)
                    if worst < 0 or was != up:
                        break
        changed = changed or any_changed
        if not any_changed:
            break
    return changed


@compiled
def _place(replicas: Array, row: int, factor: int, broker: int) -> int:
    for place in range(factor):
        if replicas[row, place] == broker:
            return place
    return -1


@compiled
def _worst(book: Array, who: Array, broker: int) -> tuple[int, bool]:
    """Returns the kind of load that is the furthest outside its bounds, -1 where none is, and whether it is above."""
    worst, most, up = -1, 0.0, True
    if who[broker, LEFT]:
        return worst, up
    for kind in range(KINDS):
        over, under = above(book, broker, kind), below(book, broker, kind)
        if max(over, under) > most:
            worst, most, up = kind, max(over, under), over > under
    return worst, up


@compiled
def difference(rows: Array, row: int, change: Array, follower: Array) -> None:
    """Writes what the leader of a partition is loaded with beside what a follower is."""
    fill(rows, row, True, change)
    fill(rows, row, False, follower)
    for kind in range(KINDS):
        change[kind] -= follower[kind]


@compiled
def _lead_one(st: State, row: int, place: int, change: Array, follower: Array, reason: int) -> bool:
    """Exchanges the first replica: for the one at ``place``, or where that is 0 for the best other one."""
    replicas, book, who = st.replicas, st.book, st.who
    difference(st.rows, row, change, follower)
    first = replicas[row, 0]
    leave = gained(book, first, change, -1.0)
    best, most = 0, GAIN_MIN
    for other in range(1, st.part[row, FACTOR]):
        taker = replicas[row, other]
        if (place != 0 and place != other) or who[taker, HOST] == 0 or _passes_on(book, first, taker, change):
            continue
        gain = gained(book, taker, change, 1.0) + leave
        if gain > most:
            best, most = other, gain
    if best == 0:
        return False
    exchange(st, row, best, change, reason)
    return True


@compiled
def _passes_on(book: Array, giver: int, taker: int, change: Array) -> bool:
    """Checks whether a change puts the taker above a hard bound of a kind of which the giver is within its own."""
    for kind in range(KINDS):
        most = book[CAP, taker, kind] + SLACK * change[kind]
        over = change[kind] > 0.0 and book[LOAD, taker, kind] + change[kind] > most
        if over and book[LOAD, giver, kind] <= book[CAP, giver, kind]:
            return True
    return False


@compiled
def exchange(st: State, row: int, place: int, change: Array, reason: int) -> None:
    """Makes the replica at a place the first one."""
    first, taker = st.replicas[row, 0], st.replicas[row, place]
    st.replicas[row, 0], st.replicas[row, place] = taker, first
    shift(st.book, first, taker, change)
    note(st, row, reason)
