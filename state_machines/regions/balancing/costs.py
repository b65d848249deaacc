"""Declares what placements of regions cost, with HBase's weights, and judges one from nothing.

A skew is the distance of all servers from their shares, by weight: 0 where it is as small as it can be, 1 where the
server with the smallest share has all. Regions are counted in wholes, so their smallest distance is not 0; loads are
not, and theirs is.

=======  ======  ===============================================================================
cost     weight  value
=======  ======  ===============================================================================
regions  500     skew of the number of regions
tables   35      mean of the skews of tables that can be spread, by their numbers of regions
moves    7       part of the regions that the plan moves
reads    5       skew of the reads per second; ``writes``, ``bytes`` and ``files`` likewise
=======  ======  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Final

from msgspec import Struct

from state_machines.regions.balancing.cluster import Cluster, Cost

REGIONS: Final = "regions"
TABLES: Final = "tables"
MOVES: Final = "moves"
LOADS: Final = ("reads", "writes", "bytes", "files")
WEIGHTS: Final[Mapping[str, float]] = {REGIONS: 500.0, TABLES: 35.0, MOVES: 7.0, **dict.fromkeys(LOADS, 5.0)}
WHY: Final[Mapping[str, str]] = {
    REGIONS: "its server has more regions than its share",
    TABLES: "its server has more regions of the table than its share",
    "reads": "its server has more reads than its share",
    "writes": "its server has more writes than its share",
    "bytes": "its server has more bytes than its share",
    "files": "its server has more files than its share",
}
"""Why a region moves that lowers a cost, for operators."""
CELLS_MAX: Final = 2_000_000
"""Pairs of table and server that are counted: where there are more, the smallest tables have no cost of their own."""
_LEAST: Final = 1e-12
"""A difference between worst and best placement, as a part of all, that is one of rounding alone."""


class Scale(Struct, frozen=True, gc=False):
    """How a skew is measured. ``shares``: of each target; ``unit``: what a distance of 1 adds to the value.

    ``unit`` is 0 where all placements are equal, for instance of a table with one region.
    """

    shares: tuple[float, ...]
    best: float
    unit: float

    def value(self, amounts: Sequence[float]) -> float:
        """Returns the skew of amounts by target."""
        distance = sum(abs(amount - share) for amount, share in zip(amounts, self.shares, strict=True))
        return min(1.0, max(0.0, (distance - self.best) * self.unit))


class Frame(Struct, frozen=True, gc=False, eq=False):
    """What the costs of a cluster are measured by, wherever its regions are.

    ``targets``: positions of the servers that count. ``rows``: of the regions that these have. ``home``: for each of
    the rows the target that has it, as a position in ``targets``. ``tables``: scales by table, None where a table has
    no cost. ``counted``: tables that are few enough to have one. ``figures``: loads by row of the cluster.
    """

    targets: tuple[int, ...]
    rows: tuple[int, ...]
    home: list[int]
    regions: Scale
    tables: tuple[Scale | None, ...]
    counted: tuple[int, ...]
    loads: tuple[Scale, ...]
    figures: tuple[Sequence[float], ...]

    @property
    def spread(self) -> int:
        """Returns the number of tables that have a cost."""
        return sum(one is not None for one in self.tables)


def framed(cluster: Cluster) -> Frame:
    """Returns what the costs of a cluster are measured by."""
    targets = tuple(at for at, is_target in enumerate(cluster.targets) if is_target)
    position = {server: at for at, server in enumerate(targets)}
    rows = tuple(row for row, server in enumerate(cluster.server) if server in position)
    weight = sum(cluster.weights[one] for one in targets)
    parts = [cluster.weights[one] / weight for one in targets]
    counts = [0] * len(cluster.tables)
    for row in rows:
        counts[cluster.table[row]] += 1
    figures = (cluster.reads, cluster.writes, cluster.size_bytes, cluster.files)
    most = max(1, CELLS_MAX // max(1, len(targets)))
    counted = sorted(nlargest(most, range(len(counts)), key=counts.__getitem__))
    of_count = {count: _scale(count, parts, whole=True) for count in set(counts)}
    tables: list[Scale | None] = [None] * len(counts)
    for table in counted:
        scale = of_count[counts[table]]
        tables[table] = scale if scale.unit else None
    return Frame(
        targets,
        rows,
        [position[cluster.server[row]] for row in rows],
        _scale(len(rows), parts, whole=True),
        tuple(tables),
        tuple(counted),
        tuple(_scale(sum(figure[row] for row in rows), parts, whole=False) for figure in figures),
        figures,
    )


def _scale(total: float, parts: Sequence[float], *, whole: bool) -> Scale:
    shares = tuple(total * one for one in parts)
    best = _best(int(total), shares) if whole else 0.0
    worst = 2 * (total - min(shares, default=0.0))
    return Scale(shares, best, 1 / (worst - best) if worst - best > _LEAST * total else 0.0)


def _best(total: int, shares: Sequence[float]) -> float:
    """Returns the smallest distance of whole numbers with this total: the largest remainders are rounded up."""
    rests = sorted((share % 1 for share in shares), reverse=True)
    up = max(0, total - sum(int(share) for share in shares))
    return sum(1 - one for one in rests[:up]) + sum(rests[up:])


def judged(cluster: Cluster, frame: Frame, where: Sequence[int]) -> tuple[Cost, ...]:
    """Returns all costs of a placement; ``where``: the target that has each of the frame's rows."""
    servers = len(frame.targets)
    counts = [0] * servers
    by_table: dict[int, list[int]] = {}
    loads = [[0.0] * servers for _ in frame.loads]
    for row, at in zip(frame.rows, where, strict=True):
        counts[at] += 1
        if frame.tables[table := cluster.table[row]] is not None:
            if table not in by_table:
                by_table[table] = [0] * servers
            by_table[table][at] += 1
        for load, figure in zip(loads, frame.figures, strict=True):
            load[at] += figure[row]
    skews = [scale.value(by_table[at]) for at, scale in enumerate(frame.tables) if scale is not None]
    moved = sum(at != home for at, home in zip(where, frame.home, strict=True))
    values = {
        REGIONS: frame.regions.value(counts),
        TABLES: sum(skews) / len(skews) if skews else 0.0,
        MOVES: moved / len(frame.rows) if frame.rows else 0.0,
        **{name: scale.value(load) for name, scale, load in zip(LOADS, frame.loads, loads, strict=True)},
    }
    return tuple(Cost(name, WEIGHTS[name], value) for name, value in values.items())


def total(costs: Sequence[Cost]) -> float:
    """Returns the sum of costs by weight, which plans lower."""
    return sum(one.weight * one.value for one in costs)


def mean(costs: Sequence[Cost]) -> float:
    """Returns the mean of costs by weight: from 0, the best, to 1, the worst."""
    weight = sum(one.weight for one in costs)
    return total(costs) / weight if weight else 0.0
