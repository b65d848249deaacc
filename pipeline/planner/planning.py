"""Plans: runs the search with several seeds side by side, certifies each result, and returns the best."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pipeline.ending import Disagreement
from pipeline.planner.arrays import Array, np
from pipeline.planner.broker_sets import by_set
from pipeline.planner.certifying import Certificate, certified
from pipeline.planner.goals import Goal
from pipeline.planner.problem import MAY_MOVE, Assumed, Problem, with_means
from pipeline.planner.searching import search, state_of
from pipeline.planner.state import COUNT, DISK, IN, LOAD, ORDER, REASON, Bounds, bounds_of, loads_of, topic_bounds


def bytes_at_least(problem: Problem, loads: Array, bounds: Bounds) -> float:
    """Returns a lower bound of the bytes that reach all goals of replicas, disks, bytes in and topics.

    It is the largest of three: what has to leave brokers that go, and what each other broker has above its bounds, by
    its cheapest replicas and parts of them; what brokers lack on their disks; and what brokers that go and crowded
    racks force to move.
    """
    brokers, there = problem.brokers, problem.replicas >= 0
    free = problem.stuck == MAY_MOVE
    gone = (brokers.left[problem.replicas] & there) & free[:, None]
    leaving = float((gone.sum(axis=1) * problem.size).sum())
    lacking = float(np.maximum(bounds.low[:, DISK] - loads[:, DISK], 0)[brokers.hosts].sum())
    needs = np.maximum(_above(problem, loads, bounds), _of_topics(problem))
    return max(leaving + float(needs[~brokers.left].sum()), lacking, _crowded(problem))


def _above(problem: Problem, loads: Array, bounds: Bounds) -> Array:
    """Returns the fewest bytes that bring each broker below its bounds, were replicas moved in part (float64, B)."""
    most = np.minimum(bounds.high, bounds.cap)
    excess = np.maximum(loads - most, 0.0)
    needs = excess[:, DISK].copy()
    rows, at = np.repeat(np.arange(len(problem.topic)), problem.factors), problem.replicas[problem.replicas >= 0]
    mine = (excess[:, [COUNT, IN]] > 0).any(axis=1)[at]
    rows, at = rows[mine], at[mine]
    order = np.argsort(at.astype(np.uint16) if len(needs) < 2**16 else at, kind="stable")
    ends = np.searchsorted(at[order], np.arange(len(needs) + 1))
    for broker in np.unique(at):
        its = rows[order[ends[broker] : ends[broker + 1]]]
        for kind, each in ((COUNT, np.ones(len(its))), (IN, problem.bytes_in[its])):
            if excess[broker, kind] > 0:
                needs[broker] = max(needs[broker], _cheapest(problem.size[its], each, excess[broker, kind]))
    return needs


def _cheapest(sizes: Array, each: Array, excess: float) -> float:
    """Returns the fewest bytes of replicas, or parts of them, that together have a load of ``excess``."""
    ratios = sizes / np.maximum(each, 1e-300)
    order = np.argsort(ratios)
    parts = np.diff(np.minimum(np.cumsum(each[order]), excess), prepend=0.0)
    return float((parts * ratios[order]).sum())


def _of_topics(problem: Problem) -> Array:
    """Returns the bytes of the smallest replicas by which each host has too many of one topic (float64, B)."""
    count, there = len(problem.brokers.ids), problem.replicas >= 0
    upper, wide = topic_bounds(problem)
    line = np.full(len(problem.topics), -1)
    line[wide] = np.arange(len(wide))
    rows, at = np.repeat(np.arange(len(problem.topic)), problem.factors), problem.replicas[there]
    judged = (line >= 0)[problem.topic[rows]] & problem.brokers.hosts[at]
    rows, at = rows[judged], at[judged]
    cells = line[problem.topic[rows]] * count + at
    has = np.bincount(cells, minlength=1)[cells]
    crowded = has > upper[problem.topic[rows]]
    rows, at, cells, has = rows[crowded], at[crowded], cells[crowded], has[crowded]
    order = np.lexsort((problem.size[rows], cells))
    first = np.searchsorted(cells[order], cells[order])
    extra = np.arange(len(order)) - first < (has - upper[problem.topic[rows]])[order]
    leaving = order[extra]
    return np.bincount(at[leaving], problem.size[rows[leaving]], count)


def _crowded(problem: Problem) -> float:
    """Returns the bytes of replicas on brokers that go, and of those above one on a rack where racks are enough."""
    brokers, there = problem.brokers, problem.replicas >= 0
    stays = there & ~brokers.left[problem.replicas]
    racks = np.where(stays, brokers.rack[problem.replicas], -1 - np.arange(there.shape[1]))
    ordered = np.sort(racks, axis=1)
    same = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).sum(axis=1)
    wide = there.sum(axis=1) <= len(np.unique(brokers.rack[brokers.hosts]))
    moves = (there & ~stays).sum(axis=1) + np.where(wide, same, 0)
    return float((moves * problem.size * (problem.stuck == MAY_MOVE)).sum())


SEEDS_MAX: Final = 64
DISAGREE_MAX: Final = 1e-6
"""Difference of the loads of search and recount, as a share of all load."""


@dataclass(frozen=True)
class Tried:
    """The result of one seed: replicas, reasons and order by partition, and costs. ``cpu_s``: of the search alone."""

    seed: int
    replicas: Array
    reasons: Array
    order: Array
    certificate: Certificate
    bytes_moved: float
    cpu_s: float

    @property
    def rank(self) -> tuple[int, int, float, int]:
        """Returns what makes a result better: fewer broken goals, then fewer bytes."""
        return self.certificate.hard_broken, self.certificate.soft_broken, self.bytes_moved, self.seed


@dataclass(frozen=True)
class Planned:
    """The best result of some seeds, beside the state before. ``rows``: partitions that change, in their order."""

    problem: Problem
    assumed: tuple[Assumed, ...]
    before: Certificate
    best: Tried
    tried: tuple[Tried, ...]
    bytes_min: float
    rows: Array

    @property
    def sizes_known(self) -> bool:
        """Returns whether the size of any partition is known; else no figure in bytes says anything."""
        return not any(one.kind == "size" and one.partitions == len(self.problem.topic) for one in self.assumed)

    def reason(self, row: int) -> Goal:
        """Returns the goal that a partition moves for."""
        return Goal(int(self.best.reasons[row]))


def planned(given: Problem, seeds: int = 4, first_seed: int = 0, threads: int | None = None) -> Planned:
    """Plans with ``seeds`` seeds; the same problem and seeds give the same plan. ``given``: rows sorted by topic.

    Unknown loads count as the mean. Raises :class:`~pipeline.ending.Disagreement`.
    """
    if not 1 <= seeds <= SEEDS_MAX:
        raise ValueError(f"seeds = {seeds}: give 1 to {SEEDS_MAX}")
    problem, assumed = with_means(given)
    before = certified(problem, problem.replicas)
    with ThreadPoolExecutor(threads or min(seeds, os.cpu_count() or 1)) as pool:
        tried = tuple(pool.map(lambda seed: attempt(problem, seed), range(first_seed, first_seed + seeds)))
    return chosen(problem, assumed, before, tried)


def chosen(problem: Problem, assumed: tuple[Assumed, ...], before: Certificate, tried: tuple[Tried, ...]) -> Planned:
    """Returns the best of some results; ``problem`` has no unknown load."""
    best = min(tried, key=lambda one: one.rank)
    rows = np.nonzero((best.replicas != problem.replicas).any(axis=1))[0]
    rows = rows[np.argsort(best.order[rows], kind="stable")]
    least = sum(_least(one.problem) for one in by_set(problem))
    return Planned(problem, assumed, before, best, tried, least, rows)


def _least(problem: Problem) -> float:
    loads = loads_of(problem, problem.replicas)
    return bytes_at_least(problem, loads, bounds_of(problem, loads))


def attempt(problem: Problem, seed: int) -> Tried:
    """Searches with one seed and certifies the result; ``problem`` has no unknown load.

    Each set of brokers is searched alone. Raises :class:`~pipeline.ending.Disagreement`.
    """
    if problem.sets is None:
        return _attempt(problem, seed)
    replicas, reasons = problem.replicas.copy(), np.full(len(problem.topic), -1, np.int64)
    order, moved, took = reasons.copy(), 0.0, 0.0
    for one in by_set(problem):
        tried = _attempt(one.problem, seed)
        rows = one.rows[one.own]
        replicas[rows], reasons[rows] = tried.replicas[one.own], tried.reasons[one.own]
        order[rows] = tried.order[one.own] + order.max(initial=-1) + 1
        moved, took = moved + tried.bytes_moved, took + tried.cpu_s
    gone = (problem.brokers.left[problem.replicas] & (problem.replicas >= 0)).any(axis=1)
    reasons[(reasons == Goal.ALIVE) & ~gone] = Goal.SETS
    return Tried(seed, replicas, reasons, order, certified(problem, replicas), moved, took)


def _attempt(problem: Problem, seed: int) -> Tried:
    loads = loads_of(problem, problem.replicas)
    state = state_of(problem, loads, bounds_of(problem, loads), seed)
    began = time.thread_time()
    search(problem, state)
    took = time.thread_time() - began
    replicas = arranged(problem.replicas, state.replicas)
    counted, unit = loads_of(problem, replicas), np.ones(loads.shape[1])
    unit[1] = (float(problem.size.mean()) if len(problem.size) else 0.0) or 1.0
    if not (np.abs(state.book[LOAD] * unit - counted) <= DISAGREE_MAX * (1 + counted.sum(axis=0))).all():
        raise Disagreement(f"seed {seed}: the loads of the search are not those of its replicas")
    fixed = problem.stuck != 0
    if (replicas[fixed] != problem.replicas[fixed]).any():
        raise Disagreement(f"seed {seed}: a partition moved that must not")
    new = (replicas[:, :, None] != problem.replicas[:, None, :]).all(axis=2) & (replicas >= 0)
    moved = float((new.sum(axis=1) * problem.size).sum())
    reasons, order = state.notes[:, REASON], state.notes[:, ORDER]
    return Tried(seed, replicas, reasons, order, certified(problem, replicas), moved, took)


def arranged(before: Array, after: Array) -> Array:
    """Returns the replicas with the leader first, then those that stay in their former order, then new ones."""
    same = (before[:, :, None] == after[:, None, :]) & (before >= 0)[:, :, None]
    stays, width = same.any(axis=1), before.shape[1]
    place = np.where(stays, same.argmax(axis=1), width + np.arange(width))
    place[:, 0] = -1
    place = np.where(after >= 0, place, 3 * width)
    return np.take_along_axis(after, np.argsort(place, axis=1, kind="stable"), axis=1)
