"""Explains hard goals that a plan does not reach: what breaks them, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.planner.arrays import np
from pipeline.planner.certifying import NAMED_MAX, Count
from pipeline.planner.disks import OnDisks
from pipeline.planner.goals import DISKS_FULL, Goal
from pipeline.planner.planning import Planned
from pipeline.planner.problem import MAY_MOVE


class Unmet(NamedTuple):
    """A hard goal that is not reached: how many partitions or brokers break it, the first of them, and the reason."""

    goal: str
    broken: int
    named: tuple[str, ...]
    why: str


def unmet(found: Planned) -> Iterator[Unmet]:
    """Yields the hard goals that the plan does not reach."""
    for count in found.best.certificate.counts:
        if count.hard and count.broken:
            if count.goal in (Goal.ALIVE, Goal.RACKS, Goal.SETS):
                names = tuple(found.problem.name(row) for row in count.at)
                yield Unmet(count.words, count.broken, names, _of_partition(found, count))
            else:
                ids = found.problem.brokers.ids
                names = tuple(f"broker {ids[at]}" for at in count.at)
                yield Unmet(count.words, count.broken, names, _of_brokers(found, count))


def unmet_on_disks(found: Planned, placed: OnDisks) -> Iterator[Unmet]:
    """Yields that log directories stay too full."""
    ids, disks, full = found.problem.brokers.ids, placed.disks, placed.after.full
    if full:
        names = tuple(f"{disks.paths[at]} of broker {ids[disks.broker[at]]}" for at in full[:NAMED_MAX])
        room = {int(broker) for broker in np.unique(disks.broker[list(full)])}
        alone = all(int((disks.broker == broker).sum()) == 1 for broker in room)
        why = "it is the only one of its broker" if alone else "no replica there fits into another one of its broker"
        yield Unmet(DISKS_FULL, len(full), names, f"{why}: add a disk, or raise --disk-max")


def _of_partition(found: Planned, count: Count) -> str:
    problem, row = found.problem, count.at[0]
    if problem.stuck[row] != MAY_MOVE:
        return problem.why_stuck[problem.stuck[row]]
    hosts, factor = int(problem.hosts_of(row).sum()), int((problem.replicas[row] >= 0).sum())
    if hosts < factor:
        where = (
            ""
            if problem.sets is None
            else f" of the set {problem.sets.names[problem.sets.of_topic[problem.topic[row]]]}"
        )
        return f"it has {factor} replicas and {hosts} brokers{where} may take any: add brokers, or lower the factor"
    return "no broker on a rack that fits has room below its capacities: add brokers, or raise the limits"


def _of_brokers(found: Planned, count: Count) -> str:
    problem, limits = found.problem, found.problem.limits
    hosts = problem.brokers.hosts
    members = (problem.replicas >= 0).sum(axis=1)
    ins = problem.bytes_in
    sends, follows = problem.bytes_out + ins * (members - 1), limits.follower_cpu
    brokers = problem.brokers
    total, room = {
        Goal.REPLICAS_MAX: (float(members.sum()), limits.replicas_max * hosts.sum()),
        Goal.DISK_MAX: ((problem.size * members).sum(), (brokers.disk * limits.disk)[hosts].sum()),
        Goal.IN_MAX: ((ins * members).sum(), (brokers.bytes_in * limits.bytes_in)[hosts].sum()),
        Goal.OUT_MAX: (sends.sum(), (brokers.bytes_out * limits.bytes_out)[hosts].sum()),
        Goal.CPU_MAX: ((ins * (1 + follows * (members - 1))).sum(), (brokers.cpu * limits.cpu)[hosts].sum()),
    }[count.goal]
    if np.isfinite(room) and total > room:
        share = f"{100 * total / room:.0f} % of what they may" if room else "more than nothing"
        return f"all brokers together would have {share}: add brokers, or raise the limit"
    if (problem.stuck != MAY_MOVE).any():
        return "partitions that may not move hold it there, or no other broker has room: exclude less, or add brokers"
    return "no other broker has room for its partitions: add brokers, or raise the limit"
