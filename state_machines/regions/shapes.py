"""Declares what a split, a merge or a clone leaves behind: where the data of regions begins, and what must be kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.regions.states import REPLACED, RegionState

HEIRS_MAX: Final = 50_000
"""Regions that refer to others at one time, and regions that are remembered: a list of ZooKeeper holds their names."""


class Source(NamedTuple):
    """Where the data of a region begins: as what another region has in its range. ``token``: of its last open.

    ``snapshot``: the name of the snapshot whose data it is, empty for the region's own.
    """

    region: int
    start: bytes
    end: bytes
    token: int
    sequence: int
    snapshot: str = ""


class ParentRow(NamedTuple):
    """A region that was split, merged or truncated, until its data is discarded. ``heirs``: what got its keys.

    ``state``: SPLIT, MERGED, or the one that it had as its table was truncated or restored.
    """

    id: int
    table: str
    start: bytes
    end: bytes
    state: int
    heirs: tuple[int, ...]
    token: int
    sequence: int


def end_of(parent: ParentRow) -> str:
    """Returns what became of a region: SPLIT, MERGED or TRUNCATED, also by a restore of its table."""
    return RegionState(parent.state).name if parent.state in REPLACED else "TRUNCATED"


class SnapshotRow(NamedTuple):
    """A snapshot of a table, complete. ``kind`` and ``options``: of the table; ``regions``: how many it had.

    ``parts``: how many rows list them.
    """

    name: str
    table: str
    kind: int
    options: tuple[tuple[str, str], ...]
    made_ms: int
    regions: int
    parts: int


class Snapshot(Struct, frozen=True, gc=False):
    """A snapshot with its regions, some in each part, in the order of their keys."""

    row: SnapshotRow
    parts: Sequence[tuple[Source, ...]]


class PublishedRow(NamedTuple):
    """A value that all servers of the service have. ``number``: grows from one value to the next."""

    name: str
    number: int
    data: bytes
