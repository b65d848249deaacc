"""Chooses the log directory of each replica that arrives at a broker, and evens the directories within a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipeline.planner.arrays import Array, np
from pipeline.planner.certifying import DiskCount, counted
from pipeline.planner.planning import Planned
from pipeline.planner.problem import MAY_MOVE, Disks, Problem

WITHIN_MAX: Final = 10_000
"""Replicas that change their directory within one broker."""


@dataclass(frozen=True)
class OnDisks:
    """The directories of a plan. ``at`` int32, P x R: of each replica afterwards, -1 where its broker chooses.

    ``rows``: partitions of which a replica stays on its broker and changes the directory. ``bytes_within``: of these
    replicas. ``unplaced``: replicas whose directory is not known; they count nowhere.
    """

    disks: Disks
    at: Array
    rows: Array
    bytes_within: float
    unplaced: int
    before: DiskCount
    after: DiskCount


def on_disks(found: Planned) -> OnDisks | None:
    """Returns the directories of a plan; None where the problem has none. Counts them anew."""
    problem, disks = found.problem, found.problem.disks
    if disks is None:
        return None
    after = found.best.replicas
    same = (after[:, :, None] == problem.replicas[:, None, :]) & (after >= 0)[:, :, None]
    stays = same.any(axis=2)
    stayed = np.where(stays, np.take_along_axis(disks.at, same.argmax(axis=2), axis=1), -1)
    at, many = stayed.copy(), np.zeros(len(problem.brokers.ids), bool)
    many[disks.broker] = True
    arrives = (after >= 0) & ~stays & many[after]
    free = (problem.stuck == MAY_MOVE)[:, None] & (after >= 0)
    for broker, mine in _by_broker(after, np.unique(disks.broker)):
        rows, places = mine.T
        of = _Broker(problem, disks, at, np.nonzero(disks.broker == broker)[0], mine)
        of.place(mine[arrives[rows, places]])
        of.even(mine[free[rows, places] & (at[rows, places] >= 0)])
    changed = stays & (stayed >= 0) & (stayed != at)
    return OnDisks(
        disks,
        at,
        np.nonzero(changed.any(axis=1))[0],
        float((changed.sum(axis=1) * problem.size).sum()),
        int((many[after] & (after >= 0) & (at < 0)).sum()),
        counted(problem, disks, disks.at),
        counted(problem, disks, at),
    )


def _by_broker(replicas: Array, brokers: Array) -> Iterator[tuple[int, Array]]:
    """Yields brokers with their replicas as (row, place), in this order."""
    flat = replicas.ravel()
    order = np.argsort(flat, kind="stable")
    begins, ends = (np.searchsorted(flat, brokers, side, sorter=order).tolist() for side in ("left", "right"))
    for broker, begin, end in zip(brokers.tolist(), begins, ends, strict=True):
        yield broker, np.column_stack(np.divmod(order[begin:end], replicas.shape[1]))


class _Broker:
    """The directories ``own`` of one broker with the replicas ``mine``; writes the chosen ones into ``at``."""

    def __init__(self, problem: Problem, disks: Disks, at: Array, own: Array, mine: Array) -> None:
        self._at, self._own, self._size, self._limits = at, own, problem.size, problem.limits
        self._capacity = disks.capacity[own]
        there = mine[at[mine[:, 0], mine[:, 1]] >= 0]
        rows, places = there.T
        self._load = np.bincount(np.searchsorted(own, at[rows, places]), problem.size[rows], len(own))

    def place(self, arrivals: Array) -> None:
        """Gives each replica, as (row, place), the directory that is the least full with it, the largest first."""
        for row, place in arrivals[np.argsort(-self._size[arrivals[:, 0]], kind="stable")].tolist():
            best = int(((self._load + self._size[row]) / self._capacity).argmin())
            self._load[best] += self._size[row]
            self._at[row, place] = self._own[best]

    def even(self, mine: Array) -> None:
        """Moves replicas from the fullest directory to the emptiest one until all are within their bounds."""
        load, capacity, spread = self._load, self._capacity, self._limits.spread
        mean = load.sum() / capacity.sum()
        high, low = min(mean * (1 + spread), max(self._limits.disk, mean)), mean * (1 - spread)
        sizes, where = self._size[mine[:, 0]], self._at[mine[:, 0], mine[:, 1]]
        for _ in range(WITHIN_MAX):
            shares = load / capacity
            giver, taker = int(shares.argmax()), int(shares.argmin())
            ideal = (shares[giver] - shares[taker]) / (1 / capacity[giver] + 1 / capacity[taker])
            fitting = np.nonzero((where == self._own[giver]) & (sizes <= ideal) & (sizes > 0))[0]
            if (shares[giver] <= high and shares[taker] >= low) or not len(fitting):
                return
            best = fitting[sizes[fitting].argmax()]
            load[giver] -= sizes[best]
            load[taker] += sizes[best]
            where[best] = self._own[taker]
            self._at[mine[best, 0], mine[best, 1]] = self._own[taker]
