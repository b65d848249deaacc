"""Moves replicas to brokers that are below their bounds."""

from __future__ import annotations

from typing import Final

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.placing import legal, put, topic_room
from pipeline.planner.scoring import below, drawn, fill, fits, gained, spares
from pipeline.planner.shedding import GAIN_MIN, MOVE_COST
from pipeline.planner.state import DISK, FACTOR, FREE, KINDS, TOPIC, State

COMPARED: Final = 8
"""Legal replicas of which the best one moves."""
DRAWN_MAX: Final = 300
"""Replicas drawn at most for one move."""


@compiled
def feed(st: State, hosts: Array, spread: Array) -> bool:
    """Moves replicas to brokers that are below a bound, in turns; True where any has moved. ``spread``: the reasons."""
    if len(st.part) == 0:
        return False
    hungry = np.ones(len(hosts), np.bool_)
    moved, left = False, len(hosts)
    change = np.zeros(KINDS)
    bound = 2 * len(st.part) * st.replicas.shape[1] + len(hosts)
    while left > 0 and bound > 0:
        left = 0
        for at in range(len(hosts)):
            if hungry[at]:
                bound -= 1
                hungry[at] = _feed_one(st, hosts[at], change, spread)
                moved = moved or hungry[at]
                left += hungry[at]
    return moved


@compiled
def _feed_one(st: State, broker: int, change: Array, spread: Array) -> bool:
    """Moves the best of some replicas to a broker; False where it needs none or none is found."""
    replicas, part, rows, who, rule, book = st.replicas, st.part, st.rows, st.who, st.rule, st.book
    tops, cells, ticks = st.tops, st.cells, st.ticks
    worst, most = -1, 0.0
    for kind in range(KINDS):
        under = below(book, broker, kind)
        if under > most:
            worst, most = kind, under
    if worst < 0:
        return False
    best_row, best_place, best, found = np.int64(-1), np.int64(-1), 0.0, 0
    for _ in range(DRAWN_MAX):
        row = drawn(ticks, len(part))
        factor = part[row, FACTOR]
        if part[row, FREE] == 0 or factor == 0:
            continue
        place = drawn(ticks, factor)
        giver = replicas[row, place]
        fill(rows, row, place == 0, change)
        if change[worst] <= 0.0 or not spares(book, giver, change) or not fits(book, broker, change, True):
            continue
        if not legal(replicas, who, rule, row, factor, place, broker):
            continue
        if not topic_room(tops, cells, part[row, TOPIC], broker):
            continue
        gain = gained(book, broker, change, 1.0) + gained(book, giver, change, -1.0)
        found += 1
        ratio = gain / (change[DISK] + MOVE_COST)
        if gain > GAIN_MIN and ratio > best:
            best_row, best_place, best = row, place, ratio
        if found >= COMPARED:
            break
    if best_row < 0:
        return False
    fill(rows, best_row, best_place == 0, change)
    put(st, best_row, best_place, broker, change, spread[worst])
    return True
