"""Takes back what turned out not to be needed: replicas return where all stays within the bounds."""

from __future__ import annotations

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.bounds import KINDS
from pipeline.planner.leading import difference, exchange
from pipeline.planner.placing import holds, legal, put, topic_room
from pipeline.planner.scoring import fill, fits, spares
from pipeline.planner.state import FACTOR, HOST, REASON, TOPIC, State


@compiled
def take_back(st: State) -> None:
    """Returns replicas to the brokers that they came from, the largest first, then first replicas to their place."""
    replicas, origin, book = st.replicas, st.origin, st.book
    touched = np.nonzero(st.notes[:, REASON] >= 0)[0]
    change, follower = np.zeros(KINDS), np.zeros(KINDS)
    welcome = touched[_welcome(st, touched, change)]
    for at in np.argsort(-st.rows[welcome, 0]):
        row = welcome[at]
        for place in range(st.part[row, FACTOR]):
            if not holds(origin, row, st.part[row, FACTOR], replicas[row, place]):
                _return_one(st, row, place, change)
    for row in touched:
        first = origin[row, 0]
        if replicas[row, 0] == first or st.who[first, HOST] == 0:
            continue
        for place in range(1, st.part[row, FACTOR]):
            if replicas[row, place] == first:
                difference(st.rows, row, change, follower)
                if fits(book, first, change, True) and spares(book, replicas[row, 0], change):
                    exchange(st, row, place, change, st.notes[row, REASON])
                break


@compiled
def _welcome(st: State, touched: Array, change: Array) -> Array:
    """Returns which partitions have left a broker that may take replicas and now has room for theirs (bool)."""
    found = np.zeros(len(touched), np.bool_)
    for at in range(len(touched)):
        row = touched[at]
        factor = st.part[row, FACTOR]
        fill(st.rows, row, False, change)
        for place in range(factor):
            former = st.origin[row, place]
            away = st.who[former, HOST] == 1 and not holds(st.replicas, row, factor, former)
            found[at] = found[at] or (away and fits(st.book, former, change, True))
    return found


@compiled
def _return_one(st: State, row: int, place: int, change: Array) -> None:
    replicas, who, factor = st.replicas, st.who, st.part[row, FACTOR]
    taker = replicas[row, place]
    for i in range(factor):
        former = st.origin[row, i]
        if not legal(replicas, who, st.rule, row, factor, place, former):
            continue
        if not topic_room(st.tops, st.cells, st.part[row, TOPIC], former):
            continue
        fill(st.rows, row, place == 0, change)
        if fits(st.book, former, change, True) and spares(st.book, taker, change):
            put(st, row, place, former, change, st.notes[row, REASON])
            return
