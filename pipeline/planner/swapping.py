"""Swaps replicas of two brokers, where no single move is within the bounds: in a full cluster."""

from __future__ import annotations

from typing import Final

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.placing import legal, lists, put, topic_room
from pipeline.planner.scoring import above, below, drawn, fill, fits, gained, outside, spares
from pipeline.planner.shedding import GAIN_MIN, MOVE_COST
from pipeline.planner.state import CAP, FACTOR, FREE, HOST, KINDS, LEFT, LOAD, TOPIC, State

COMPARED: Final = 12
"""Swaps that gain, of which the best is done."""
DRAWN_MAX: Final = 400
"""Pairs drawn at most for one swap."""
SWAPS_MAX: Final = 2_000
"""Swaps of one broker in one call."""


@compiled
def swap(st: State, hosts: Array, capped: Array, spread: Array) -> bool:
    """Swaps replicas of brokers that are outside a bound for others; True where any was swapped."""
    brokers, swapped = len(st.who), False
    if len(hosts) < 2:
        return False
    far = np.zeros(brokers)
    for broker in range(brokers):
        far[broker] = 0.0 if st.who[broker, LEFT] else outside(st.book, broker)
    if far.max() == 0.0:
        return False
    starts, entries = lists(st.replicas, st.part, brokers)
    for broker in np.argsort(-far):
        if far[broker] == 0.0 or starts[broker] == starts[broker + 1]:
            continue
        for _ in range(SWAPS_MAX):
            if outside(st.book, broker) == 0.0:
                break
            if not _swap_one(st, broker, hosts, starts, entries, capped, spread):
                break
            swapped = True
    return swapped


@compiled
def _swap_one(
    st: State, broker: int, hosts: Array, starts: Array, entries: Array, capped: Array, spread: Array
) -> bool:
    """Does the best of some swaps that gain; False where none was drawn."""
    rows, ticks, width = st.rows, st.ticks, st.replicas.shape[1]
    mine, theirs = np.zeros(KINDS), np.zeros(KINDS)
    best, found, best_at, best_their = GAIN_MIN, 0, np.int64(-1), np.int64(-1)
    for _ in range(DRAWN_MAX):
        other = hosts[drawn(ticks, len(hosts))]
        count = starts[other + 1] - starts[other]
        if other == broker or count == 0:
            continue
        at = starts[broker] + drawn(ticks, starts[broker + 1] - starts[broker])
        their = starts[other] + drawn(ticks, count)
        if not _may(st, entries[at], entries[their], broker, other):
            continue
        row, their_row = entries[at] // width, entries[their] // width
        gain = _gain(st, entries[at], entries[their], broker, other, mine, theirs)
        found += gain > GAIN_MIN
        ratio = gain / (rows[row, 0] + rows[their_row, 0] + MOVE_COST)
        if gain > GAIN_MIN and ratio > best:
            best, best_at, best_their = ratio, at, their
        if found >= COMPARED:
            break
    if best_at < 0:
        return False
    reason = _reason(st.book, broker, capped, spread)
    (row, place), (their_row, their_place) = divmod(entries[best_at], width), divmod(entries[best_their], width)
    other = st.replicas[their_row, their_place]
    fill(rows, row, place == 0, mine)
    fill(rows, their_row, their_place == 0, theirs)
    put(st, row, place, other, mine, reason)
    put(st, their_row, their_place, broker, theirs, reason)
    entries[best_at], entries[best_their] = entries[best_their], entries[best_at]
    return True


@compiled
def _may(st: State, one: int, two: int, broker: int, other: int) -> bool:
    """Checks whether two replicas may change places."""
    replicas, part, who, rule = st.replicas, st.part, st.who, st.rule
    (row, place), (their, their_place) = divmod(one, replicas.shape[1]), divmod(two, replicas.shape[1])
    if replicas[row, place] != broker or replicas[their, their_place] != other or row == their:
        return False
    if part[row, FREE] == 0 or part[their, FREE] == 0:
        return False
    if not legal(replicas, who, rule, row, part[row, FACTOR], place, other):
        return False
    if not legal(replicas, who, rule, their, part[their, FACTOR], their_place, broker):
        return False
    topic, their_topic = part[row, TOPIC], part[their, TOPIC]
    if topic == their_topic:
        return True
    return topic_room(st.tops, st.cells, topic, other) and topic_room(st.tops, st.cells, their_topic, broker)


@compiled
def _gain(st: State, one: int, two: int, broker: int, other: int, mine: Array, theirs: Array) -> float:
    """Returns what a swap gains; 0 where a broker would leave its bounds."""
    if not _within(st, one, two, broker, other, mine, theirs):
        return 0.0
    return gained(st.book, other, mine, 1.0) + gained(st.book, broker, theirs, 1.0)


@compiled
def _within(st: State, one: int, two: int, broker: int, other: int, mine: Array, theirs: Array) -> bool:
    """Checks whether both brokers stay within their bounds; writes what they get, less what they give."""
    book, width = st.book, st.replicas.shape[1]
    fill(st.rows, one // width, one % width == 0, mine)
    fill(st.rows, two // width, two % width == 0, theirs)
    for kind in range(KINDS):
        mine[kind] -= theirs[kind]
        theirs[kind] = -mine[kind]
    if not (fits(book, other, mine, True) and fits(book, broker, theirs, True)):
        return False
    return spares(book, broker, mine) and spares(book, other, theirs)


@compiled
def _reason(book: Array, broker: int, capped: Array, spread: Array) -> int:
    worst, most = 0, -1.0
    for kind in range(KINDS):
        far = max(above(book, broker, kind), below(book, broker, kind))
        if far > most:
            worst, most = kind, far
    return capped[worst] if book[LOAD, broker, worst] > book[CAP, broker, worst] else spread[worst]


@compiled
def swap_topics(st: State, hosts: Array, topics: Array, begins: Array, reason: int) -> bool:
    """Swaps replicas of topics that have too many on one broker for replicas of other topics; True where any was.

    ``topics``: those that can have too many. ``begins``: first row of each topic.
    """
    replicas, part, who, cells = st.replicas, st.part, st.who, st.cells
    swapped, listed = False, False
    starts, entries = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for topic in topics:
        cell, upper = st.tops[topic, 0], st.tops[topic, 1]
        if cells[cell].max() <= upper:
            continue
        if not listed:
            starts, entries = lists(replicas, part, len(who))
            listed = True
        for row in range(begins[topic], begins[topic + 1]):
            for place in range(part[row, FACTOR] if part[row, FREE] else 0):
                broker = replicas[row, place]
                if who[broker, HOST] and cells[cell, broker] > upper:
                    one = np.int64(row * replicas.shape[1] + place)
                    swapped = _swap_topic(st, one, broker, hosts, starts, entries, reason) or swapped
    return swapped


@compiled
def _swap_topic(st: State, one: int, broker: int, hosts: Array, starts: Array, entries: Array, reason: int) -> bool:
    """Swaps one replica for the smallest of some others that keep both brokers within their bounds."""
    rows, ticks, width = st.rows, st.ticks, st.replicas.shape[1]
    mine, theirs = np.zeros(KINDS), np.zeros(KINDS)
    least, best, found = np.inf, np.int64(-1), 0
    for _ in range(DRAWN_MAX // 2):
        other = hosts[drawn(ticks, len(hosts))]
        count = starts[other + 1] - starts[other]
        if other == broker or count == 0:
            continue
        two = entries[starts[other] + drawn(ticks, count)]
        if not _may(st, one, two, broker, other) or not _within(st, one, two, broker, other, mine, theirs):
            continue
        found += 1
        if rows[two // width, 0] < least:
            least, best = rows[two // width, 0], two
        if found >= COMPARED // 2:
            break
    if best < 0:
        return False
    (row, place), (their_row, their_place) = divmod(one, width), divmod(best, width)
    other = st.replicas[their_row, their_place]
    fill(rows, row, place == 0, mine)
    fill(rows, their_row, their_place == 0, theirs)
    put(st, row, place, other, mine, reason)
    put(st, their_row, their_place, broker, theirs, reason)
    return True
