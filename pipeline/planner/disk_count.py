"""Counts how full log directories are, from replicas and sizes alone; shares no code with what chooses them."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.planner.arrays import Array, np
from pipeline.planner.certifying import ROUNDING
from pipeline.planner.problem import Disks, Problem


class DiskCount(NamedTuple):
    """How full log directories are, beside their bounds.

    ``full``: places of those above the share that may be full. ``uneven``: how many are further from the share of
    their broker than the spread. ``highest``: the fullest one, as a share of what may be full (1: just reached).
    """

    full: tuple[int, ...]
    uneven: int
    highest: float


def counted(problem: Problem, disks: Disks, at: Array) -> DiskCount:
    """Counts the directories for replicas on ``at`` (int32, P x R, -1: unknown)."""
    count, known = len(disks.paths), at >= 0
    used = np.bincount(at[known], np.repeat(problem.size, known.sum(axis=1)), count)
    of_broker = np.bincount(disks.broker, used, len(problem.brokers.ids))[disks.broker]
    room = np.bincount(disks.broker, disks.capacity, len(problem.brokers.ids))[disks.broker]
    mean, share, spread = of_broker / room, used / disks.capacity, problem.limits.spread
    uneven = (share > mean * (1 + spread) + ROUNDING) | (share < mean * (1 - spread) - ROUNDING)
    full = np.nonzero(share > problem.limits.disk * (1 + ROUNDING))[0]
    return DiskCount(tuple(full.tolist()), int(uneven.sum()), float(share.max(initial=0.0) / problem.limits.disk))
