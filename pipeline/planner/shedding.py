"""Moves replicas away from brokers that are above their bounds, and from brokers with too many of one topic."""

from __future__ import annotations

from typing import Final

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.placing import best_taker, lists, put
from pipeline.planner.scoring import above, below, drawn, fill, gained, spares
from pipeline.planner.state import (
    CAP,
    DISK,
    FACTOR,
    FLOOR,
    FREE,
    HOST,
    KINDS,
    LEFT,
    LOAD,
    SCALE,
    TOP,
    TOPIC,
    WEIGHT,
    State,
)

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


SORTS_MAX: Final = 8
"""Times that the replicas of one broker are sorted anew."""
FAILED_MAX: Final = 200
"""Replicas in sequence that find no destination before a broker is left as it is."""
MOVE_COST: Final = 0.1
"""Bytes that each move costs beside its own, as a share of the mean size."""
OTHERS: Final = 0.5
"""Weight of loads of which a broker has less than the mean, beside those of which it has too much."""
GAIN_MIN: Final = 1e-12


@compiled
def shed(st: State, hosts: Array, capped: Array, spread: Array) -> bool:
    """Moves replicas from brokers that are above a bound; True where any has moved.

    ``capped`` and ``spread``: the goals by kind of load, as the reasons.
    """
    brokers = len(st.who)
    far = np.zeros(brokers)
    for broker in range(brokers):
        if st.who[broker, LEFT] == 0:
            for kind in range(KINDS):
                far[broker] += above(st.book, broker, kind)
    if far.max() <= 0.0:
        return False
    starts, entries = lists(st.replicas, st.part, brokers)
    moved = False
    for broker in np.argsort(-far):
        if far[broker] > 0.0:
            mine = entries[starts[broker] : starts[broker + 1]]
            moved = _shed_evenly(st, broker, mine, hosts, capped, spread) or moved
            moved = _shed_one(st, broker, mine, hosts, capped, spread) or moved
    return moved


@compiled
def _shed_evenly(st: State, broker: int, mine: Array, hosts: Array, capped: Array, spread: Array) -> bool:
    """Moves the bytes that are too many, in replicas that take about as large a part of the other loads along."""
    book, rows, width, count = st.book, st.rows, st.replicas.shape[1], len(mine)
    goal, gone, change = np.zeros(KINDS), np.zeros(KINDS), np.zeros(KINDS)
    if count == 0 or not goals_of(book, broker, goal):
        return False
    reason = capped[DISK] if book[LOAD, broker, DISK] > book[CAP, broker, DISK] else spread[DISK]
    takers = np.empty(len(hosts), np.int32)
    step, at, limit = stride(count), drawn(st.ticks, count), OFF_MAX * OFF_MAX
    needing, moved, failed = 0, 0, 0
    for i in range(PASSES_MAX * count):
        if i == count or i == 2 * count:
            limit *= 16.0
        at = (at + step) % count
        row, place = divmod(mine[at], width)
        if st.part[row, FREE] == 0 or st.replicas[row, place] != broker:
            continue
        fill(rows, row, place == 0, change)
        if not in_proportion(book, broker, goal, gone, change, limit) or not spares(book, broker, change):
            continue
        if moved % 64 == 0:
            needing = _needing(book, hosts, takers)
        taker = _taker(st, row, place, change, takers, needing, hosts)
        if taker < 0:
            failed += 1
            if failed > FAILED_MAX:
                break
            continue
        put(st, row, place, taker, change, reason)
        leave(book, broker, gone, change)
        moved, failed = moved + 1, 0
        if book[LOAD, broker, DISK] <= book[TOP, broker, DISK]:
            break
    return moved > 0


@compiled
def _shed_one(st: State, broker: int, mine: Array, hosts: Array, capped: Array, spread: Array) -> bool:
    book, rows, width = st.book, st.rows, st.replicas.shape[1]
    change, over = np.zeros(KINDS), np.zeros(KINDS)
    takers = np.empty(len(hosts), np.int32)
    moved = False
    for _ in range(SORTS_MAX):
        worst = _excess(book, broker, over)
        if worst < 0:
            break
        ratios = _ratios(st, broker, mine, over, change)
        needing, since, failed, again = _needing(book, hosts, takers), 0, 0, False
        for at in np.argsort(-ratios):
            if ratios[at] <= 0.0 or failed > FAILED_MAX:
                break
            row, place = divmod(mine[at], width)
            fill(rows, row, place == 0, change)
            failed += 1
            if not spares(book, broker, change):
                continue
            taker = _taker(st, row, place, change, takers, needing, hosts)
            if taker < 0:
                continue
            if gained(book, broker, change, -1.0) + gained(book, taker, change, 1.0) <= GAIN_MIN:
                continue
            hard = book[LOAD, broker, worst] > book[CAP, broker, worst]
            put(st, row, place, taker, change, capped[worst] if hard else spread[worst])
            moved, failed = True, 0
            since += 1
            if since % 64 == 0:
                needing = _needing(book, hosts, takers)
            if above(book, broker, worst) == 0.0:
                again = True
                break
        if not again:
            break
    return moved


@compiled
def _taker(st: State, row: int, place: int, change: Array, needing: Array, count: int, hosts: Array) -> int:
    """Returns a destination, first among those that need load; -1 where none is found."""
    taker = -1
    if count > 0:
        taker = best_taker(st, row, place, change, needing, count, True, False)
    if taker < 0:
        taker = best_taker(st, row, place, change, hosts, len(hosts), True, False)
    return taker


@compiled
def _excess(book: Array, broker: int, over: Array) -> int:
    """Writes how far each load is above its bounds; returns the worst kind, -1 where none is."""
    worst, most = -1, 0.0
    for kind in range(KINDS):
        over[kind] = above(book, broker, kind)
        if over[kind] > most:
            worst, most = kind, over[kind]
    return worst


@compiled
def _ratios(st: State, broker: int, mine: Array, over: Array, change: Array) -> Array:
    """Returns what each replica takes from the excess for its bytes; 0 for those that may not move."""
    replicas, part, rows, book, tops, cells = st.replicas, st.part, st.rows, st.book, st.tops, st.cells
    ratios, width = np.zeros(len(mine)), replicas.shape[1]
    for at in range(len(mine)):
        row, place = divmod(mine[at], width)
        if part[row, FREE] == 0 or replicas[row, place] != broker:
            continue
        fill(rows, row, place == 0, change)
        worth = 0.0
        for kind in range(KINDS):
            worth += over[kind] * change[kind] * book[SCALE, broker, kind]
        if worth > 0.0:
            for kind in range(KINDS):
                if over[kind] == 0.0 and book[WEIGHT, broker, kind] > 0.0:
                    spare = book[LOAD, broker, kind] * book[SCALE, broker, kind] - 1.0
                    worth += OTHERS * min(spare, 0.0) * change[kind] * book[SCALE, broker, kind]
            worth = max(worth, 1e-12)
        topic = part[row, TOPIC]
        if tops[topic, 0] >= 0 and cells[tops[topic, 0], broker] > tops[topic, 1]:
            worth *= 4.0
        worth *= 0.9 + 0.2 * drawn(st.ticks, 1024) / 1024.0
        ratios[at] = worth / (change[DISK] + MOVE_COST)
    return ratios


@compiled
def _needing(book: Array, hosts: Array, takers: Array) -> int:
    """Writes the hosts that are below a bound, and returns how many."""
    count = 0
    for host in hosts:
        for kind in range(KINDS):
            if below(book, host, kind) > 0.0:
                takers[count] = host
                count += 1
                break
    return count


@compiled
def thin(st: State, hosts: Array, topics: Array, begins: Array, reason: int) -> bool:
    """Moves replicas of topics from brokers that have too many of one, the smallest first; True where any has moved.

    ``topics``: those that can have too many. ``begins``: first row of each topic.
    """
    replicas, part, rows, who, cells, book = st.replicas, st.part, st.rows, st.who, st.cells, st.book
    change, moved = np.zeros(KINDS), False
    for topic in topics:
        cell, upper = st.tops[topic, 0], st.tops[topic, 1]
        if cells[cell].max() <= upper:
            continue
        first = begins[topic]
        for at in np.argsort(rows[first : begins[topic + 1], 0]):
            row = first + at
            for place in range(part[row, FACTOR] if part[row, FREE] else 0):
                broker = replicas[row, place]
                if who[broker, HOST] == 0 or cells[cell, broker] <= upper:
                    continue
                fill(rows, row, place == 0, change)
                if spares(book, broker, change):
                    taker = best_taker(st, row, place, change, hosts, len(hosts), True, False)
                    if taker >= 0:
                        put(st, row, place, taker, change, reason)
                        moved = True
    return moved
