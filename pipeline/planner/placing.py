"""Places replicas: what racks and topics allow, and the best of some destinations."""

from __future__ import annotations

from typing import Final

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.scoring import drawn, fits, gained, shift
from pipeline.planner.state import FACTOR, HOST, ORDER, RACK, REASON, TOPIC, State

ALL_MAX: Final = 24
"""Brokers that are all tried as a destination; of more, some are drawn."""
DRAWN: Final = 5
"""Destinations within the bounds of which the best is taken."""
DRAWN_MAX: Final = 48
"""Destinations drawn at most."""
CROWDED: Final = 1.0e6
"""Cost of a destination that leaves a rack crowded that another one would not."""


@compiled
def crowding(replicas: Array, who: Array, rule: Array, row: int, factor: int, place: int, broker: int) -> int:
    """Returns how many replicas of a partition have to leave their rack, with ``broker`` at ``place``; -1: as it is."""
    most, racks = rule[factor, 0], rule[factor, 1]
    over, full = 0, 0
    for i in range(factor):
        mine = who[broker if i == place else replicas[row, i], RACK]
        count, first = 0, True
        for j in range(factor):
            if who[broker if j == place else replicas[row, j], RACK] == mine:
                count += 1
                first = first and j >= i
        if first:
            over += max(0, count - most)
            full += count >= most
    return over + max(0, full - racks)


@compiled
def holds(replicas: Array, row: int, factor: int, broker: int) -> bool:
    """Checks whether a broker has a replica of a partition."""
    found = False
    for i in range(factor):
        found = found or replicas[row, i] == broker
    return found


@compiled
def topic_room(tops: Array, cells: Array, topic: int, broker: int) -> bool:
    """Checks whether a broker may take a further replica of a topic."""
    cell = tops[topic, 0]
    return cell < 0 or cells[cell, broker] < tops[topic, 1]


@compiled
def legal(replicas: Array, who: Array, rule: Array, row: int, factor: int, place: int, broker: int) -> bool:
    """Checks whether a broker may take the replica at a place: not twice, and racks are no more crowded."""
    if who[broker, HOST] == 0:
        return False
    rack, shared = who[broker, RACK], False
    for i in range(factor):
        has = replicas[row, i]
        if has == broker:
            return False
        shared = shared or (i != place and who[has, RACK] == rack)
    if not shared or who[replicas[row, place], RACK] == rack:
        return True
    return crowding(replicas, who, rule, row, factor, place, broker) <= crowding(
        replicas, who, rule, row, factor, -1, -1
    )


@compiled
def best_taker(
    st: State, row: int, place: int, change: Array, takers: Array, count: int, soft: bool, racks: bool
) -> int:
    """Returns the best destination of a replica among hosts, the first ``count`` of ``takers``; -1 where none is legal.

    ``soft``: only within the bounds of soft goals. ``racks``: a less crowded rack goes before all else.
    """
    replicas, who, rule, book, ticks = st.replicas, st.who, st.rule, st.book, st.ticks
    tops, cells, factor, topic = st.tops, st.cells, st.part[row, FACTOR], st.part[row, TOPIC]
    best, most, found = -1, -np.inf, 0
    start = drawn(ticks, max(1, count))
    for i in range(count if count <= ALL_MAX else DRAWN_MAX):
        taker = takers[(start + i) % count] if count <= ALL_MAX else takers[drawn(ticks, count)]
        if not fits(book, taker, change, soft) or not legal(replicas, who, rule, row, factor, place, taker):
            continue
        room = topic_room(tops, cells, topic, taker)
        if soft and not room:
            continue
        gain = gained(book, taker, change, 1.0)
        if racks:
            gain -= CROWDED * crowding(replicas, who, rule, row, factor, place, taker)
        if not room:
            gain -= 1.0
        found += 1
        if gain > most:
            best, most = taker, gain
        if found >= DRAWN:
            break
    return best


@compiled
def put(st: State, row: int, place: int, taker: int, change: Array, reason: int) -> None:
    """Moves a replica, and notes the reason where the partition has none yet."""
    giver = st.replicas[row, place]
    st.replicas[row, place] = taker
    shift(st.book, giver, taker, change)
    cell = st.tops[st.part[row, TOPIC], 0]
    if cell >= 0:
        st.cells[cell, giver] -= 1
        st.cells[cell, taker] += 1
    note(st, row, reason)


@compiled
def note(st: State, row: int, reason: int) -> None:
    """Notes a change of a partition: its reason, and its place in the order."""
    if st.notes[row, REASON] < 0:
        st.notes[row, REASON] = reason
    st.notes[row, ORDER] = np.int64(st.ticks[1])
    st.ticks[1] += np.uint64(1)


@compiled
def lists(replicas: Array, part: Array, brokers: int) -> tuple[Array, Array]:
    """Returns replicas sorted by broker: where those of each broker begin, and row * R + place of each (int64)."""
    rows, width = replicas.shape
    starts = np.zeros(brokers + 1, np.int64)
    for row in range(rows):
        for place in range(part[row, FACTOR]):
            starts[replicas[row, place] + 1] += 1
    for broker in range(brokers):
        starts[broker + 1] += starts[broker]
    entries, at = np.empty(starts[-1], np.int64), starts[:-1].copy()
    for row in range(rows):
        for place in range(part[row, FACTOR]):
            broker = replicas[row, place]
            entries[at[broker]] = row * width + place
            at[broker] += 1
    return starts, entries
