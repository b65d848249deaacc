"""Makes a first placement in one pass over the regions, which random steps then improve.

Tables come first, the largest before the others: a server gives what it has above its share, rounded up, to those that
lack most. Then servers give what they have too much of all tables, wherever that lowers the total. A server that has
more load than its share gives the heaviest regions away, another one the lightest; the heaviest go to servers with the
least load.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace
from typing import Final

from state_machines.regions.balancing.placing import LEAST_GAIN, Placing

NEARLY: Final = 1 - 1e-6
"""A surplus is compared with one region, less what is rounding."""
FEW: Final = 1e-9


def spread(placing: Placing) -> None:
    """Changes a placement so that tables are even, and then servers; the total may be higher than before."""
    if placing.servers < 2:
        return
    load = [sum(some) for some in zip(*placing.loads, strict=True)]
    by_table: dict[int, dict[int, list[int]]] = {}
    for region in placing.free:
        table = placing.table[region]
        if placing.units[table]:
            by_table.setdefault(table, {}).setdefault(placing.where[region], []).append(region)
    for table in sorted(by_table, key=lambda one: (placing.units[one], one)):
        _spread_table(placing, table, by_table.pop(table), load)
    _spread_all(placing)


def _spread_table(placing: Placing, table: int, regions: dict[int, list[int]], load: list[float]) -> None:
    """Spreads the regions of a table. ``regions``: those that may move, by server; ``load``: surplus of all loads."""
    surplus, counts, heavy = placing.tables[table], placing.regions, placing.heavy
    enough = -placing.units[table] * NEARLY

    def turn(server: int) -> tuple[bool, bool, float, int]:
        return surplus[server] > enough, counts[server] > 0, load[server], server

    given = sorted(_given(placing, table, regions, load), key=heavy.__getitem__, reverse=True)
    turns = [turn(server) for server in range(placing.servers)]
    heapify(turns)
    for region in given:
        to = turns[0][-1]
        placing.enter(region, to)
        load[to] += heavy[region]
        heapreplace(turns, turn(to))


def _given(placing: Placing, table: int, regions: dict[int, list[int]], load: list[float]) -> Iterator[int]:
    """Takes regions from the servers that have more of a table than their share, and yields them."""
    surplus, counts, unit, heavy = placing.tables[table], placing.regions, placing.units[table], placing.heavy
    for server, some in sorted(regions.items()):
        some.sort(key=heavy.__getitem__)
        first, last = 0, len(some)
        while first < last and (
            surplus[server] > unit * NEARLY or (surplus[server] > unit * FEW and counts[server] > 0)
        ):
            if load[server] > 0:
                last -= 1
                region = some[last]
            else:
                region = some[first]
                first += 1
            placing.leave(region)
            load[server] -= heavy[region]
            yield region


def _spread_all(placing: Placing) -> None:
    """Has servers with too many regions of all tables give some to those with the fewest, where that is better."""
    counts, unit = placing.regions, placing.unit
    regions: dict[int, list[int]] = {at: [] for at, surplus in enumerate(counts) if surplus > unit * FEW}
    for region in placing.free:
        if (server := placing.where[region]) in regions:
            regions[server].append(region)
    turns = [(surplus, server) for server, surplus in enumerate(counts)]
    heapify(turns)
    for server, some in regions.items():
        some.sort(key=lambda one: -placing.tables[placing.table[one]][server])
        for region in some:
            if counts[server] <= unit * FEW:
                break
            while turns[0][0] != counts[turns[0][1]]:
                heapreplace(turns, (counts[turns[0][1]], turns[0][1]))
            to = turns[0][1]
            if to != server and placing.gain(region, to) < -LEAST_GAIN:
                placing.move(region, to)
                heapreplace(turns, (counts[to], to))
