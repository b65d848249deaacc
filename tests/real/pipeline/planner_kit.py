"""Small clusters for tests of the planner, and a naive count of goals to compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pipeline.inputs import Loads, Snapshot, brokers_of, matrix
from pipeline.inputs import Partitions as Table
from pipeline.planner.arrays import np
from pipeline.planner.broker_file import GivenBroker
from pipeline.planner.broker_sets import BrokerSet
from pipeline.planner.cluster import Wanted, problem_of
from pipeline.planner.planning import Planned, planned
from pipeline.planner.problem import PlanLimits, Problem

Replicas = tuple[int, ...]


def cluster(
    racks: Mapping[int, str | None],
    topics: Mapping[str, Sequence[Replicas]],
    *,
    dead: Collection[int] = (),
    size: float = 100.0,
    sizes: Mapping[tuple[str, int], float] | None = None,
    ins: float = 10.0,
    outs: float = 20.0,
    retire: Collection[int] = (),
    exclude: Collection[int] = (),
    exclude_topics: Sequence[str] = (),
    given: dict[int, GivenBroker] | None = None,
    sets: Sequence[BrokerSet] = (),
    limits: PlanLimits | None = None,
) -> Problem:
    """Makes a problem with partitions 0, 1, ... of each topic; ``racks`` by broker; loads are those of one replica."""
    names = sorted(topics)
    rows = [(at, number, placed) for at, name in enumerate(names) for number, placed in enumerate(topics[name])]
    replicas, count = matrix([placed for _, _, placed in rows]), len(rows)
    nothing, none = np.zeros(replicas.shape, bool), np.full(count, -1, np.int32)
    table = Table(
        tuple(names), (None,) * len(names), np.array([at for at, _, _ in rows], np.int32),
        np.array([number for _, number, _ in rows], np.int32), replicas, nothing, nothing, none, none, none, replicas,
        none,
    )  # fmt: skip
    known = brokers_of(racks, dict(racks), live=set(racks) - set(dead))
    wide = [(sizes or {}).get((names[at], number), size) for at, number, _ in rows]
    loads = Loads(np.array(wide, np.int64), np.full(count, ins), np.full(count, outs))
    wanted = Wanted(retire, exclude, exclude_topics, given or {}, sets, limits or PlanLimits())
    return problem_of(Snapshot(known, table, "c"), loads, wanted)


def plan(problem: Problem, seeds: int = 2) -> Planned:
    """Plans in this thread."""
    return planned(problem, seeds, threads=1)


def after(found: Planned) -> dict[str, Replicas]:
    """Returns the replicas by partition, as ids of brokers."""
    problem, ids = found.problem, found.problem.brokers.ids
    return {
        problem.name(row): tuple(int(ids[at]) for at in found.best.replicas[row] if at >= 0)
        for row in range(len(problem.topic))
    }


def moved(found: Planned) -> dict[str, Replicas]:
    """Returns the replicas of partitions that change."""
    everything = after(found)
    return {found.problem.name(row): everything[found.problem.name(row)] for row in found.rows}


def naive(problem: Problem, replicas: Any) -> dict[str, Any]:
    """Counts goals replica by replica."""
    brokers, limits = problem.brokers, problem.limits
    hosts = [b for b in range(len(brokers.ids)) if brokers.live[b] and not brokers.retiring[b]]
    hosts = [b for b in hosts if not brokers.excluded[b]]
    by_rack = Counter(int(brokers.rack[b]) for b in hosts)
    count, disk, leaders = Counter[int](), Counter[int](), Counter[int]()
    cells: Counter[tuple[int, int]] = Counter()
    gone, crowded = 0, []
    for row, placed in enumerate(replicas.tolist()):
        mine = [b for b in placed if b >= 0]
        leaders[mine[0]] += 1
        for b in mine:
            count[b] += 1
            disk[b] += problem.size[row]
            cells[int(problem.topic[row]), b] += 1
            gone += not brokers.live[b] or bool(brokers.retiring[b])
        if sorted(Counter(int(brokers.rack[b]) for b in mine).values())[::-1] > fair(by_rack, len(mine)):
            crowded.append(row)
    over = sum(count[b] > limits.replicas_max for b in range(len(brokers.ids)) if brokers.live[b])
    full = sum(disk[b] > brokers.disk[b] * limits.disk * (1 + 1e-6) for b in range(len(brokers.ids)) if brokers.live[b])
    return {"gone": gone, "crowded": crowded, "over": over, "full": full, "count": count, "leaders": leaders}


def fair(by_rack: Mapping[int, int], factor: int) -> list[int]:
    """Returns how many replicas of a partition each rack gets where they are dealt out one by one, the most first."""
    dealt: Counter[int] = Counter()
    while dealt.total() < min(factor, sum(by_rack.values())):
        open_racks = [rack for rack in by_rack if dealt[rack] < by_rack[rack]]
        dealt[min(open_racks, key=lambda rack: (dealt[rack], -by_rack[rack], rack))] += 1
    return sorted(dealt.values(), reverse=True) if factor <= sum(by_rack.values()) else [factor]
