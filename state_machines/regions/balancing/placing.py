"""Follows a placement of regions as it changes, and knows what each change does to the costs without a look at others.

A server's *surplus* is what it has above its share, in terms of the total of the costs: the sum of their distances from
0 is what skews cost. So a change costs the difference of a few distances.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from state_machines.regions.balancing.cluster import Cluster
from state_machines.regions.balancing.costs import LOADS, MOVES, REGIONS, TABLES, WEIGHTS, Frame

LEAST_GAIN: Final = 1e-10
"""A change of the total that is smaller is one of rounding."""

PARTS: Final = (REGIONS, TABLES, *LOADS)
"""Costs that a move may lower."""


class Placing:
    """A placement. Regions are numbered as the frame's rows, and servers as its targets.

    ``where``: the server of each region. ``free``: regions that may move. ``bound``: the most that a change of loads
    can gain by a region; ``heavy``: the sum of its loads.
    """

    __slots__ = (
        *("bound", "free", "heavy", "home", "loads", "moved", "regions", "servers", "table", "tables"),
        *("unit", "units", "where", "_by_load"),
    )

    def __init__(self, cluster: Cluster, frame: Frame, where: list[int]) -> None:
        self.home, self.where = frame.home, where[:]
        self.servers = len(frame.targets)
        self.free = [at for at, row in enumerate(frame.rows) if not cluster.held[row]]
        self.table = array("l", [cluster.table[row] for row in frame.rows])
        self.moved = WEIGHTS[MOVES] / max(1, len(frame.rows))
        self.unit = WEIGHTS[REGIONS] * frame.regions.unit
        self.regions = [-self.unit * share for share in frame.regions.shares]
        each, none = WEIGHTS[TABLES] / max(1, frame.spread), array("d", bytes(8 * self.servers))
        self.units = [0.0 if one is None else each * one.unit for one in frame.tables]
        self.tables = [
            none if one is None else array("d", [-unit * share for share in one.shares])
            for one, unit in zip(frame.tables, self.units, strict=True)
        ]
        units = [WEIGHTS[name] * scale.unit for name, scale in zip(LOADS, frame.loads, strict=True)]
        self.loads = [[-unit * share for share in scale.shares] for unit, scale in zip(units, frame.loads, strict=True)]
        figures = [
            array("d", [unit * amounts[row] for row in frame.rows])
            for unit, amounts in zip(units, frame.figures, strict=True)
        ]
        self._by_load = tuple(zip(self.loads, figures, strict=True))
        self.heavy = array("d", map(sum, zip(*figures, strict=True)))
        self.bound = array("d", [2 * one for one in self.heavy])
        for region, server in enumerate(where):
            self._add(region, server, 1)

    # -- what a change costs

    def fixed(self, region: int, to: int) -> float:
        """Returns the change of the total by a move, loads aside."""
        own, unit, table = self.where[region], self.unit, self.table[region]
        regions, tables, of_table = self.regions, self.tables[table], self.units[table]
        here, there, ours, theirs = regions[own], regions[to], tables[own], tables[to]
        found = abs(here - unit) - abs(here) + abs(there + unit) - abs(there)
        found += abs(ours - of_table) - abs(ours) + abs(theirs + of_table) - abs(theirs)
        home = self.home[region]
        return found - self.moved if to == home else found + self.moved if own == home else found

    def fixed_of_swap(self, one: int, other: int) -> float:
        """Returns the change of the total where two regions of two servers change places, loads aside."""
        own, to, found = self.where[one], self.where[other], 0.0
        if (table := self.table[one]) != (of_other := self.table[other]):
            ours, theirs = self.tables[table], self.tables[of_other]
            unit, of_theirs = self.units[table], self.units[of_other]
            here, there, less, more = ours[own], ours[to], theirs[to], theirs[own]
            found = abs(here - unit) - abs(here) + abs(there + unit) - abs(there)
            found += abs(less - of_theirs) - abs(less) + abs(more + of_theirs) - abs(more)
        home = self.home[one]
        found += -self.moved if to == home else self.moved if own == home else 0.0
        home = self.home[other]
        return found + (-self.moved if own == home else self.moved if to == home else 0.0)

    def by_load(self, region: int, to: int, back: int = -1) -> float:
        """Returns the change of the total by the loads of a region that moves. ``back``: one that changes places."""
        own = self.where[region]
        found = 0.0
        for load, figures in self._by_load:
            amount = figures[region] if back < 0 else figures[region] - figures[back]
            here, there = load[own], load[to]
            found += abs(here - amount) - abs(here) + abs(there + amount) - abs(there)
        return found

    def gain(self, region: int, to: int) -> float:
        """Returns the change of the total by a move to another server: below 0 where it is better."""
        return self.fixed(region, to) + self.by_load(region, to)

    def parts(self, region: int, to: int) -> list[float]:
        """Returns the changes by a move of each cost in :data:`PARTS`."""
        own, table = self.where[region], self.table[region]
        found = [_change(self.regions, own, to, self.unit), _change(self.tables[table], own, to, self.units[table])]
        return found + [_change(load, own, to, figures[region]) for load, figures in self._by_load]

    # -- changes

    def go_home(self) -> None:
        """Moves all regions back."""
        for region in self.free:
            if (home := self.home[region]) != self.where[region]:
                self.move(region, home)

    def move(self, region: int, to: int) -> None:
        """Moves a region to another server."""
        self.leave(region)
        self.enter(region, to)

    def swap(self, one: int, other: int) -> None:
        """Has two regions change places."""
        own, to = self.where[one], self.where[other]
        self.move(one, to)
        self.move(other, own)

    def leave(self, region: int) -> None:
        """Takes a region from its server; :meth:`enter` has to follow."""
        self._add(region, self.where[region], -1)

    def enter(self, region: int, server: int) -> None:
        """Gives a region to a server after :meth:`leave`."""
        self._add(region, server, 1)
        self.where[region] = server

    def _add(self, region: int, server: int, sign: int) -> None:
        table = self.table[region]
        self.regions[server] += sign * self.unit
        self.tables[table][server] += sign * self.units[table]
        for load, figures in self._by_load:
            load[server] += sign * figures[region]


def _change(surplus: Sequence[float], own: int, to: int, amount: float) -> float:
    here, there = surplus[own], surplus[to]
    return abs(here - amount) - abs(here) + abs(there + amount) - abs(there)


def cause(parts: Sequence[float]) -> str:
    """Returns the cost that changes lower most."""
    return PARTS[min(range(len(PARTS)), key=parts.__getitem__)]
