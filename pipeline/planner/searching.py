"""Runs the phases of the search in their order, its first and its last one itself, as one compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pipeline.compiling import compiled, digest, kept
from pipeline.planner.arrays import Array, np
from pipeline.planner.feeding import feed
from pipeline.planner.goals import Goal
from pipeline.planner.leading import difference, exchange, lead
from pipeline.planner.placing import best_taker, crowding, holds, legal, put, topic_room
from pipeline.planner.problem import MAY_MOVE, Problem
from pipeline.planner.scoring import drawn, fill, fits, outside, spares
from pipeline.planner.shedding import shed, thin
from pipeline.planner.state import (
    CAP,
    COUNT,
    CPU,
    DISK,
    FACTOR,
    FLOOR,
    FREE,
    HIGH,
    HOST,
    IN,
    KINDS,
    LAYERS,
    LEADER_IN,
    LEADERS,
    LEFT,
    LOAD,
    LOW,
    OUT,
    POTENTIAL,
    REASON,
    SCALE,
    TOP,
    TOPIC,
    WEIGHT,
    Bounds,
    State,
    leader_out,
    racks_allowed,
    topic_bounds,
)
from pipeline.planner.swapping import swap, swap_topics

ROUNDS_MAX: Final = 6
MOVED: Final = (COUNT, DISK, IN, POTENTIAL)
"""Kinds of load that only moves of replicas change."""
LED: Final = (LEADERS, CPU, OUT, LEADER_IN)
"""Kinds of load that the order within replicas changes, too."""
CAPPED: Final = {
    COUNT: Goal.REPLICAS_MAX, DISK: Goal.DISK_MAX, IN: Goal.IN_MAX, POTENTIAL: Goal.POTENTIAL_OUT,
    LEADERS: Goal.LEADERS, CPU: Goal.CPU_MAX, OUT: Goal.OUT_MAX, LEADER_IN: Goal.LEADER_IN,
}  # fmt: skip
SPREAD: Final = {
    COUNT: Goal.REPLICAS, DISK: Goal.DISK, IN: Goal.IN, POTENTIAL: Goal.POTENTIAL_OUT,
    LEADERS: Goal.LEADERS, CPU: Goal.CPU, OUT: Goal.OUT, LEADER_IN: Goal.LEADER_IN,
}  # fmt: skip
"""The goals of each kind of load: that of its hard bound, and that of its soft bounds."""
PARTS: Final = (
    *("arrays", "feeding", "goals", "leading", "placing", "scoring", "searching", "shedding", "state"),
    "swapping",
)
"""Modules with a part of what is compiled."""


def state_of(problem: Problem, loads: Array, bounds: Bounds, seed: int) -> State:
    """Returns a new state; ``problem`` has no unknown load, and its rows are sorted by topic."""
    brokers, factors, replicas = problem.brokers, problem.factors, _own(problem.replicas, np.int32)
    upper, bound = topic_bounds(problem)
    cell = np.full(len(problem.topics), -1, np.int32)
    cell[bound] = np.arange(len(bound), dtype=np.int32)
    rows, places = np.nonzero(replicas >= 0)
    lines = cell[problem.topic[rows]]
    cells = np.zeros((max(1, len(bound)), len(brokers.ids)), np.int32)
    np.add.at(cells, (lines[lines >= 0], replicas[rows, places][lines >= 0]), 1)
    book = np.zeros((LAYERS, *loads.shape))
    unit = (float(problem.size.mean()) if len(problem.size) else 0.0) or 1.0
    book[LOAD], book[LOW], book[HIGH], book[CAP], book[SCALE] = loads, bounds.low, bounds.high, bounds.cap, bounds.scale
    book[LOAD : CAP + 1, :, DISK] /= unit
    book[SCALE, :, DISK] *= unit
    ins = problem.bytes_in
    return State(
        replicas=replicas,
        cells=cells,
        book=book,
        notes=np.full((len(replicas), 2), -1, np.int64),
        ticks=np.array([((seed + 1) * 0x9E3779B97F4A7C15) % 2**64 | 1, 0], np.uint64),
        origin=replicas.copy(),
        part=_own(np.column_stack([factors, problem.topic, problem.stuck == MAY_MOVE]), np.int32),
        rows=_own(
            np.column_stack([problem.size / unit, ins, leader_out(problem), ins * problem.limits.follower_cpu]),
            np.float64,
        ),
        who=_own(np.column_stack([brokers.rack, brokers.hosts, brokers.left]), np.int32),
        rule=_own(np.column_stack(racks_allowed(problem)), np.int32),
        tops=_own(np.column_stack([cell, upper]), np.int32),
    )


def search(problem: Problem, state: State) -> None:
    """Changes ``state`` until all goals are reached or nothing helps; the same seed always gives the same result."""
    count = len(problem.topics)
    begins = np.searchsorted(problem.topic, np.arange(count + 1)).astype(np.int64)
    topics = np.nonzero(state.tops[:, 0] >= 0)[0].astype(np.int64)
    hosts = np.nonzero(state.who[:, HOST])[0].astype(np.int32)
    kinds = range(KINDS)
    capped = np.array([CAPPED[kind] for kind in kinds], np.int64)
    spread = np.array([SPREAD[kind] for kind in kinds], np.int64)
    _run(state, hosts, topics, begins, capped, spread)


def _own(values: Array, kind: Any) -> Array:
    """Returns a writable copy, C-ordered: the search is compiled for one form of arrays."""
    return np.array(values, kind, order="C")


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


@compiled
def _bind(st: State, moved: bool, led: bool) -> None:
    """Chooses the kinds of load that bind, on all brokers that may take replicas."""
    for broker in range(len(st.who)):
        host = st.who[broker, HOST] == 1
        for kind in MOVED:
            st.book[WEIGHT, broker, kind] = 1.0 if moved and host else 0.0
        for kind in LED:
            st.book[WEIGHT, broker, kind] = 1.0 if led and host else 0.0
        for kind in range(KINDS):
            binds, cap = st.book[WEIGHT, broker, kind] > 0.0, st.book[CAP, broker, kind]
            st.book[TOP, broker, kind] = min(cap, st.book[HIGH, broker, kind]) if binds else cap
            st.book[FLOOR, broker, kind] = st.book[LOW, broker, kind] if binds else -np.inf


@compiled
def _even(st: State, hosts: Array, topics: Array, begins: Array, capped: Array, spread: Array) -> None:
    """Makes brokers even, first by moves, then by leaders, then by moves that leave the leaders even."""
    for turn in range(ROUNDS_MAX):
        _bind(st, True, turn > 0)
        # Topics come first: most of what crowds a broker is on one that is full, too, and later there is less room.
        changed = thin(st, hosts, topics, begins, Goal.TOPICS)
        changed = shed(st, hosts, capped, spread) or changed
        changed = feed(st, hosts, spread) or changed
        if turn > 0:
            changed = swap(st, hosts, capped, spread) or changed
            changed = swap_topics(st, hosts, topics, begins, Goal.TOPICS) or changed
        _bind(st, False, True)
        changed = lead(st, capped, spread) or changed
        _bind(st, True, True)
        far = 0.0
        for broker in range(len(st.who)):
            far += 0.0 if st.who[broker, LEFT] else outside(st.book, broker)
        for topic in topics:
            far += max(0, st.cells[st.tops[topic, 0]].max() - st.tops[topic, 1])
        if far == 0.0 or (turn > 0 and not changed):
            break


def _kept(version: int) -> Callable[..., None]:
    """Returns the compiled search. Numba keeps it under what it closes over: the digest of all parts."""

    @kept
    def run(st: State, hosts: Array, topics: Array, begins: Array, capped: Array, spread: Array) -> None:
        if version < 0 or len(hosts) == 0:
            return
        _bind(st, True, False)
        repair(st, hosts, Goal.ALIVE, Goal.RACKS)
        _even(st, hosts, topics, begins, capped, spread)
        take_back(st)

    return run


_run: Final = _kept(digest("pipeline.planner", PARTS))
