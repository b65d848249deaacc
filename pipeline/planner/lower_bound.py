"""Finds how many bytes any plan has to move at least."""

from __future__ import annotations

from pipeline.planner.arrays import Array, np
from pipeline.planner.bounds import COUNT, DISK, IN, Bounds
from pipeline.planner.problem import MAY_MOVE, Problem


def bytes_at_least(problem: Problem, loads: Array, bounds: Bounds) -> float:
    """Returns a lower bound of the bytes that reach all goals of replicas, disks and bytes in.

    It is the largest of three: what has to leave brokers that go, and what each other broker has above its bounds, by
    its cheapest replicas and parts of them; what brokers lack on their disks; and what brokers that go and crowded
    racks force to move.
    """
    brokers, there = problem.brokers, problem.replicas >= 0
    free = problem.stuck == MAY_MOVE
    gone = (brokers.left[problem.replicas] & there) & free[:, None]
    leaving = float((gone.sum(axis=1) * problem.size).sum())
    lacking = float(np.maximum(bounds.low[:, DISK] - loads[:, DISK], 0)[brokers.hosts].sum())
    above = sum(_cheapest(problem, loads, bounds, broker) for broker in np.nonzero(~brokers.left)[0])
    return max(leaving + above, lacking, _crowded(problem))


def _cheapest(problem: Problem, loads: Array, bounds: Bounds, broker: int) -> float:
    """Returns the fewest bytes that bring one broker below its bounds, where replicas could be moved in part."""
    most = np.minimum(bounds.high, bounds.cap)
    excess = {kind: loads[broker, kind] - most[broker, kind] for kind in (COUNT, DISK, IN)}
    if max(excess.values()) <= 0:
        return 0.0
    rows = np.nonzero((problem.replicas == broker).any(axis=1))[0]
    sizes = problem.size[rows]
    need = max(excess[DISK], 0.0)
    for kind, each in ((COUNT, np.ones(len(rows))), (IN, problem.bytes_in[rows])):
        if excess[kind] > 0:
            order = np.argsort(sizes / np.maximum(each, 1e-300))
            taken = np.minimum(np.cumsum(each[order]), excess[kind])
            parts = np.diff(taken, prepend=0.0)
            need = max(need, float((parts / np.maximum(each[order], 1e-300) * sizes[order]).sum()))
    return need


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
