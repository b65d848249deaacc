"""Declares what a split, a merge or a clone leaves behind: where the data of regions begins, and what must be kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.regions.states import REPLACED, RegionState

HEIRS_MAX: Final = 50_000
"""Regions that refer to others at one time, and regions that are remembered: a list of ZooKeeper holds their names."""


class Source(NamedTuple):
    """Where the data of a region begins: as what another region has in its range. ``token``: of its last open.

    ``snapshot``: the identity of the snapshot whose data it is, empty for the region's own. Of the regions that a
    snapshot lists, the first one of each part names it.
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

    @property
    def identity(self) -> str:
        """Returns what servers know the snapshot by."""
        return identity_in(self.row.name, self.parts)


def identity_of(name: str, id_: str) -> str:
    """Returns what servers know a snapshot by: its name and, behind a blank, its id.

    A later snapshot of the same name has another id. One that an earlier release made has none: its name alone counts.
    """
    return f"{name} {id_}" if id_ else name


def identity_in(name: str, parts: Iterable[tuple[Source, ...]]) -> str:
    """Returns what servers know a snapshot by, as its parts name it."""
    return next((one.snapshot for part in parts for one in part[:1] if one.snapshot), name)


def name_in(identity: str) -> str:
    """Returns the name of the snapshot that servers know by an identity: no name has a blank."""
    return identity.partition(" ")[0]


def id_in(identity: str) -> str:
    """Returns the id of the snapshot that servers know by an identity; empty where its name alone counts."""
    return identity.partition(" ")[2]


def pid_in(identity: str) -> int:
    """Returns the pid of the procedure that has made a snapshot, with which its id begins; 0 without an id."""
    pid = id_in(identity).partition("-")[0]
    return int(pid) if pid.isascii() and pid.isdecimal() else 0


class PublishedRow(NamedTuple):
    """A value that all servers of the service have. ``number``: grows from one value to the next."""

    name: str
    number: int
    data: bytes
