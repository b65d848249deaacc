"""Finds how many bytes any plan has to move at least."""

from __future__ import annotations

from pipeline.planner.arrays import Array, np
from pipeline.planner.bounds import COUNT, DISK, IN, Bounds, topic_bounds
from pipeline.planner.problem import MAY_MOVE, Problem


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
