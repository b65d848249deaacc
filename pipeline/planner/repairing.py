"""Repairs what hard goals forbid of a partition: replicas on brokers that go, and on crowded racks."""

from __future__ import annotations

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.bounds import KINDS
from pipeline.planner.placing import best_taker, crowding, put
from pipeline.planner.scoring import drawn, fill
from pipeline.planner.state import FACTOR, FREE, LEFT, State


@compiled
def repair(st: State, hosts: Array, alive: int, racks: int) -> None:
    """Moves all replicas from brokers that go, then spreads crowded racks; ``alive`` and ``racks`` are the reasons.

    A destination within the bounds of soft goals is the first choice, then one within hard bounds.
    """
    replicas, part, who, rule, rows = st.replicas, st.part, st.who, st.rule, st.rows
    count, change = len(part), np.zeros(KINDS)
    if count == 0 or len(hosts) == 0:
        return
    start = drawn(st.ticks, count)
    for i in range(count if who[:, LEFT].any() else 0):
        row = (start + i) % count
        for place in range(part[row, FACTOR] if part[row, FREE] else 0):
            if who[replicas[row, place], LEFT]:
                fill(rows, row, place == 0, change)
                taker = _taker(st, row, place, change, hosts)
                if taker >= 0:
                    put(st, row, place, taker, change, alive)
    for i in range(count):
        row = (start + i) % count
        if part[row, FREE] and crowding(replicas, who, rule, row, part[row, FACTOR], -1, -1) > 0:
            _spread(st, row, hosts, change, racks)


@compiled
def _taker(st: State, row: int, place: int, change: Array, hosts: Array) -> int:
    """Returns a destination; tries all hosts one by one where draws found none, because one may be the last."""
    taker = best_taker(st, row, place, change, hosts, len(hosts), True, True)
    if taker < 0:
        taker = best_taker(st, row, place, change, hosts, len(hosts), False, True)
    if taker < 0:
        for at in range(len(hosts)):
            taker = best_taker(st, row, place, change, hosts[at : at + 1], 1, False, True)
            if taker >= 0:
                break
    return taker


@compiled
def _spread(st: State, row: int, hosts: Array, change: Array, reason: int) -> None:
    """Moves replicas of one partition until its racks are as even as they can be."""
    factor = st.part[row, FACTOR]
    for _ in range(factor):
        before = crowding(st.replicas, st.who, st.rule, row, factor, -1, -1)
        if before == 0:
            return
        moved = False
        offset = drawn(st.ticks, factor)
        for i in range(factor):
            place = (i + offset) % factor
            fill(st.rows, row, place == 0, change)
            taker = _taker(st, row, place, change, hosts)
            if taker < 0 or crowding(st.replicas, st.who, st.rule, row, factor, place, taker) >= before:
                taker = -1
                for at in range(len(hosts)):
                    one = best_taker(st, row, place, change, hosts[at : at + 1], 1, False, True)
                    if one >= 0 and crowding(st.replicas, st.who, st.rule, row, factor, place, one) < before:
                        taker = one
                        break
            if taker >= 0:
                put(st, row, place, taker, change, reason)
                moved = True
                break
        if not moved:
            return
