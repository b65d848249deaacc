"""Spreads regions evenly by their number alone (HBase ``SimpleLoadBalancer``): linear in regions, and without a draw.

Each server gets its share by weight, rounded down or up. A server keeps as many of its regions as it may, and gives the
newest ones away, those with the highest ids. By table, each table is spread like this, and the smallest ones together
where there are too many. Then servers that have too many regions of all tables give some that others may have as well:
the tables stay even.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from math import ceil, floor
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.regions.balancing.cluster import MOVES_MAX, BalancePlan, Cluster, Cost, Move
from state_machines.regions.balancing.costs import REGIONS, TABLES, WEIGHTS, WHY, Frame, framed

TARGETS_MIN: Final = 2
CLOSE: Final = 1e-9
"""Part of a region that a share may lack by the rounding of floats."""


class _Group(NamedTuple):
    """Regions that are spread together, by target. ``counts``: with held ones; ``free``: rows that it may give."""

    counts: list[int]
    free: list[list[int]]


class Simple(Struct, tag=True, frozen=True, gc=False):
    """Spreads all regions together, or first those of each table (``by_table``), with at most ``moves_max`` moves.

    ``slop``: part of its share by which a server may miss it before a plan is due, see :func:`is_uneven`.
    """

    by_table: bool = False
    moves_max: int = MOVES_MAX
    slop: float = 0.0

    @property
    def counts_alone(self) -> bool:
        """Returns whether the numbers of regions of servers tell that no plan is due."""
        return not self.by_table

    def plan(self, cluster: Cluster, seed: int) -> BalancePlan:
        """Returns moves after which each server has its share; ``seed`` changes nothing."""
        frame = framed(cluster)
        targets = frame.targets
        if len(targets) < TARGETS_MIN:
            return BalancePlan((), (), ())
        groups = _groups(cluster, targets, frame.counted if self.by_table else ())
        weights = [cluster.weights[one] for one in targets]
        before, counts = self._costs(groups, frame), _sums(groups, len(targets))
        due = any(is_uneven(one, weights, self.slop) for one in (counts, *(group.counts for group in groups)))
        for one in groups:
            _even(cluster, one, weights)
        if self.by_table:
            _even_all(groups, weights)
        after = self._costs(groups, frame)
        if self.by_table and _total(after) > _total(before) - CLOSE:
            return BalancePlan((), before, before, 0, due)  # tables would change places for ever
        why = WHY[TABLES if self.by_table else REGIONS]
        ordered = _in_order(_moved(cluster, targets, groups), targets, counts, weights)
        moves = [
            Move(cluster.ids[row], cluster.servers[source], cluster.servers[to], why)
            for row, source, to in islice(ordered, self.moves_max)
        ]
        return BalancePlan(tuple(moves), before, after, sum(1 for _ in ordered), due)

    def _costs(self, groups: Sequence[_Group], frame: Frame) -> tuple[Cost, ...]:
        """Returns the costs that it lowers, as they are judged for all balancers."""
        all_ = Cost(REGIONS, WEIGHTS[REGIONS], frame.regions.value(_sums(groups, len(frame.targets))))
        if not self.by_table:
            return (all_,)
        scales = ((frame.tables[table], one) for table, one in zip(frame.counted, groups, strict=False))
        skews = [scale.value(one.counts) for scale, one in scales if scale is not None]
        return (all_, Cost(TABLES, WEIGHTS[TABLES], sum(skews) / len(skews) if skews else 0.0))


def _total(costs: Sequence[Cost]) -> float:
    return sum(one.weight * one.value for one in costs)


# -- shares


def is_uneven(counts: Sequence[int], weights: Sequence[float], slop: float) -> bool:
    """Checks whether a server misses its share by more than a part of it, rounded to whole regions away from it.

    So it is in HBase (``hbase.regions.slop``): differences that come and go move nothing. A server without any region
    misses its share where that is a region or more, or another one has more than its own, rounded up. So a plan finds
    something to move wherever no region is held, also where a weight is so small that its server gets none.
    """
    part = sum(counts) / sum(weights)
    has_none = has_more = False
    for count, weight in zip(counts, weights, strict=True):
        share = part * weight
        if not floor(share * (1 - slop) + CLOSE) <= count <= ceil(share * (1 + slop) - CLOSE):
            return True
        if not count and share >= 1 - CLOSE:
            return True
        has_none, has_more = has_none or not count, has_more or count > ceil(share - CLOSE)
    return has_none and has_more


def shares(total: int, weights: Sequence[float], least: Sequence[int], have: Sequence[int]) -> list[int]:
    """Returns how many regions each server is to have: its share by weight, rounded down or up.

    It is never less than ``least``, which a server cannot give away; the others share the rest then. Rounded up are
    first those that ``have`` more already.
    """
    sharing, left, weight = set(range(len(weights))), total, sum(weights)
    while full := [one for one in sharing if least[one] > left * weights[one] / weight]:
        sharing.difference_update(full)
        left -= sum(least[one] for one in full)
        weight = sum(weights[one] for one in sharing)
    exact = {one: left * weights[one] / weight for one in sharing}
    found = [int(exact[one] + CLOSE) if one in sharing else count for one, count in enumerate(least)]
    parts = {one: exact[one] - found[one] for one in sharing}
    first = sorted(sharing, key=lambda one: (parts[one] < CLOSE, found[one] >= have[one], -parts[one], one))
    for number in range(total - sum(found)):
        found[first[number % len(first)]] += 1
    return found


# -- spreading


def _groups(cluster: Cluster, targets: Sequence[int], tables: Sequence[int]) -> list[_Group]:
    """Sorts the regions of the targets into groups: one for each of some tables, and the last one for all others.

    Regions of other servers stay, and count nowhere.
    """
    position = {one: at for at, one in enumerate(targets)}
    number = {table: at for at, table in enumerate(tables)}
    groups = [_Group([0] * len(targets), [[] for _ in targets]) for _ in range(len(tables) + 1)]
    for row, (server, table, held) in enumerate(zip(cluster.server, cluster.table, cluster.held, strict=True)):
        at = position.get(server)
        if at is not None:
            found = groups[number.get(table, -1)]
            found.counts[at] += 1
            if not held:
                found.free[at].append(row)
    return groups


def _even(cluster: Cluster, group: _Group, weights: Sequence[float]) -> None:
    """Has servers above their share give their newest regions to those below."""
    counts, free = group
    least = [count - len(rows) for count, rows in zip(counts, free, strict=True)]
    wanted = shares(sum(counts), weights, least, counts)
    below = [(counts[at] / weights[at], at) for at in range(len(counts)) if counts[at] < wanted[at]]
    heapify(below)
    for at, rows in enumerate(free):
        if counts[at] > wanted[at]:
            rows.sort(key=cluster.ids.__getitem__)
        while counts[at] > wanted[at]:
            to = below[0][1]
            _give(group, at, to)
            if counts[to] < wanted[to]:
                heapreplace(below, (counts[to] / weights[to], to))
            else:
                heappop(below)


def _even_all(groups: Sequence[_Group], weights: Sequence[float]) -> None:
    """Has servers above their share of all regions give some of tables of which another one is below its share."""
    counts = _sums(groups, len(weights))
    wanted = shares(sum(counts), weights, [0] * len(counts), counts)
    for group in groups:
        part = sum(group.counts) / sum(weights)
        above = [at for at in range(len(counts)) if counts[at] > wanted[at] and group.counts[at] > part * weights[at]]
        below = [at for at in range(len(counts)) if counts[at] < wanted[at] and group.counts[at] < part * weights[at]]
        for at, to in zip([one for one in above if group.free[one]], below, strict=False):
            _give(group, at, to)
            counts[at], counts[to] = counts[at] - 1, counts[to] + 1


def _give(group: _Group, at: int, to: int) -> None:
    group.free[to].append(group.free[at].pop())
    group.counts[at] -= 1
    group.counts[to] += 1


def _sums(groups: Sequence[_Group], servers: int) -> list[int]:
    """Returns how many regions of all groups each server has."""
    return [sum(one.counts[at] for one in groups) for at in range(servers)]


# -- moves


def _moved(cluster: Cluster, targets: Sequence[int], groups: Sequence[_Group]) -> Iterator[tuple[int, int, int]]:
    """Yields the rows that have another server now, with the former one and this one."""
    for group in groups:
        for to, rows in zip(targets, group.free, strict=True):
            yield from ((row, cluster.server[row], to) for row in rows if cluster.server[row] != to)


def _in_order(
    moved: Iterator[tuple[int, int, int]], targets: Sequence[int], counts: Sequence[int], weights: Sequence[float]
) -> Iterator[tuple[int, int, int]]:
    """Yields moves so that the server with the most regions for its weight, at each time, gives one first."""
    load = dict(zip(targets, counts, strict=True))
    weight = dict(zip(targets, weights, strict=True))
    of: dict[int, list[tuple[int, int, int]]] = {}
    for one in moved:
        of.setdefault(one[1], []).append(one)
    turns = [(-load[source] / weight[source], source) for source in of]
    heapify(turns)
    while turns:
        _, source = heappop(turns)
        yield of[source].pop()
        load[source] -= 1
        if of[source]:
            heappush(turns, (-load[source] / weight[source], source))
