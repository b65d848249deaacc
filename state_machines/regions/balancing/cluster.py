"""Holds what balancers look at, and what they return: parallel arrays of regions, servers and tables."""

from __future__ import annotations

from array import array
from typing import Final, Protocol

from msgspec import Struct

REQUESTS_MAX: Final = 1e9
"""Requests per second of a region, from which on more count as that many: a server may report anything."""
BYTES_MAX: Final = 1 << 50
FILES_MAX: Final = 1 << 30
MOVES_MAX: Final = 2_000
"""Moves of a plan: what is left is the next plan's."""


class Cluster(Struct, frozen=True, gc=False, eq=False):
    """A snapshot of open regions and of servers. Row i of each array is one region; servers and tables are positions.

    ``held``: 1 where a region stays: it is pinned, rests after a move, or a procedure has it. It counts as load still.
    ``reads``, ``writes``: per second; ``size_bytes``, ``files``: as servers report them; 0 where unknown. All are
    :func:`clamped`. ``targets``: 1 where a server may get regions: it is online, not cordoned, not leaving. Regions of
    other servers stay, and count nowhere. ``weights``: the share of a server beside the others, 1.0 by default.
    """

    ids: array[int]
    server: array[int]
    table: array[int]
    held: bytearray
    reads: array[float]
    writes: array[float]
    size_bytes: array[int]
    files: array[int]
    servers: tuple[str, ...]
    targets: bytes
    weights: tuple[float, ...]
    tables: tuple[str, ...]


class Cost(Struct, frozen=True, gc=False):
    """One cost of a placement of regions. ``value``: from 0, the best, to 1, the worst."""

    name: str
    weight: float
    value: float


class Move(Struct, frozen=True, gc=False):
    """A region that a plan moves. ``why``: the cost that it lowers, in words of operators."""

    region: int
    source: str
    to: str
    why: str


class BalancePlan(Struct, frozen=True, gc=False):
    """Moves in the order in which they help most, and the costs before and after all of them.

    ``left``: further moves that are known, and are the next plan's. ``due``: the daemon begins it by itself.
    """

    moves: tuple[Move, ...]
    before: tuple[Cost, ...]
    after: tuple[Cost, ...]
    left: int = 0
    due: bool = True


class Balancer(Protocol):
    """Makes plans. It is pure: the same arguments give the same plan."""

    def plan(self, cluster: Cluster, seed: int) -> BalancePlan:
        """Returns moves that lower the total of the costs; none of a held region, none to a server without target."""
        ...


def clamped(figure: float, most: float) -> float:
    """Returns a figure as balancers take it: from 0 to ``most``, and 0 for one that is no number."""
    return min(figure, most) if figure > 0 else 0
