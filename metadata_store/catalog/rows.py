"""Declares what the catalog stores, and the changes of it that one transaction may have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from state_machines.regions.damage import Damage
from state_machines.regions.shapes import ParentRow, PublishedRow, SnapshotRow, Source

__all__ = ["ParentRow", "PublishedRow", "SnapshotRow", "Source"]


class MarkRow(NamedTuple):
    """A mark of an operator. ``kind``: what it means, see ``state_machines.regions.marks``; ``subject``: of what.

    ``value``: for instance a server's name. ``until_ms``: its end on the wall clock, 0 without one.
    """

    kind: str
    subject: str
    value: str = ""
    until_ms: int = 0
    by: str = ""
    reason: str = ""


class TableRow(NamedTuple):
    """A table. ``kind`` and ``state``: numbers of ``state_machines.regions``; ``options``: sorted pairs.

    ``version``: grows with each change of the options; regions that were opened with a lower one are opened again.
    """

    name: str
    kind: int
    state: int
    options: tuple[tuple[str, str], ...] = ()
    version: int = 0


class RegionRow(NamedTuple):
    """A region and its latest final state. ``server`` is empty and ``incarnation`` 0 while it has no owner.

    ``version``: of its table, as it was opened last. ``clean``: 1 where its last owner had it open and said that it has
    closed it, so that no edit of it waits beside its data; 0 after an open, and where a fence ended its last owner.
    ``former``: name of the server that had it last, where that has closed it, so that it may return there.
    """

    id: int
    table: str
    start: bytes
    end: bytes
    state: int
    server: str = ""
    incarnation: int = 0
    token: int = 0
    sequence: int = 0
    version: int = 0
    clean: int = 0
    former: str = ""


class HeirRow(NamedTuple):
    """What a region refers to until its service says that it has data of its own.

    It is written in the transaction that inserts the region.
    """

    id: int
    sources: tuple[Source, ...]


class SnapshotPartRow(NamedTuple):
    """Some regions of a snapshot, in the order of their keys. ``number``: from 0 on."""

    name: str
    number: int
    regions: tuple[Source, ...]


class ServerRow(NamedTuple):
    """One process of a server, from its registration until its crash is dealt with or it has left."""

    name: str
    incarnation: int
    address: str
    software: str = ""


class PutTable(NamedTuple):
    """Inserts or replaces a table."""

    row: TableRow


class DropTable(NamedTuple):
    """Removes a table and all its regions, with its parents, and what its regions refer to."""

    name: str


class DropRegions(NamedTuple):
    """Removes some regions of a table that is being deleted or truncated, with what they refer to."""

    ids: tuple[int, ...]


class NewRegions(NamedTuple):
    """Inserts regions; those that exist already stay as they are."""

    rows: tuple[RegionRow, ...]


class Owner(NamedTuple):
    """Sets the final state and owner of a region; the last three fields as in :class:`RegionRow`."""

    id: int
    state: int
    server: str
    incarnation: int
    token: int
    sequence: int
    version: int = 0
    clean: int = 0
    former: str = ""


class PutServer(NamedTuple):
    """Inserts or replaces a server."""

    row: ServerRow


class DropServer(NamedTuple):
    """Removes a server."""

    name: str
    incarnation: int


class Bury(NamedTuple):
    """Remembers a server that is fenced: neither it nor one before it with its name registers again.

    ``number``: higher than those of all servers before, which are forgotten first.
    """

    name: str
    incarnation: int
    number: int


class Forget(NamedTuple):
    """Removes the name of a fenced server."""

    name: str


class PutNamespace(NamedTuple):
    """Inserts a namespace."""

    name: str


class DropNamespace(NamedTuple):
    """Removes a namespace."""

    name: str


class PutMark(NamedTuple):
    """Inserts or replaces a mark."""

    row: MarkRow


class DropMark(NamedTuple):
    """Removes a mark."""

    kind: str
    subject: str


Small: TypeAlias = HeirRow | ParentRow | SnapshotRow | SnapshotPartRow | PublishedRow
"""Rows that come one at a time."""
NAMES: Final[Mapping[type[Small], int]] = {
    HeirRow: 1,
    ParentRow: 1,
    SnapshotRow: 1,
    SnapshotPartRow: 2,
    PublishedRow: 1,
}
"""How many fields at the begin name a row of each kind, in the order in which the kinds are read."""


class Put(NamedTuple):
    """Inserts or replaces a row."""

    row: Small


class Drop(NamedTuple):
    """Removes a row. ``names``: the fields that name it."""

    of: type[Small]
    names: tuple[str | int, ...]


class DropUnusable(NamedTuple):
    """Removes a row that was left out, where it cannot be used still. ``place``: as its damage names it."""

    place: str


class Reshape(NamedTuple):
    """Replaces regions by others that have their keys: the point of no return of a split or a merge.

    The regions of ``parents`` are removed and remembered, ``heirs`` inserted, with what they refer to.
    """

    parents: tuple[ParentRow, ...]
    heirs: tuple[RegionRow, ...]
    sources: tuple[HeirRow, ...] = ()

    @property
    def parts(self) -> tuple[Write, ...]:
        """Returns the writes that it consists of, in their order."""
        gone = DropRegions(tuple(one.id for one in self.parents))
        return (gone, NewRegions(self.heirs), *map(Put, self.parents), *map(Put, self.sources))


Write: TypeAlias = (
    PutTable
    | DropTable
    | DropRegions
    | NewRegions
    | Owner
    | PutServer
    | DropServer
    | Bury
    | Forget
    | PutNamespace
    | DropNamespace
    | PutMark
    | DropMark
    | Reshape
    | Put
    | Drop
    | DropUnusable
)


def flat(writes: Iterable[object]) -> Iterator[object]:
    """Yields writes, in place of a :class:`Reshape` those that it consists of."""
    for one in writes:
        if isinstance(one, Reshape):
            yield from one.parts
        else:
            yield one


class Content(NamedTuple):
    """All of a catalog; regions are ordered by table and start key. The reader of a content may empty their list.

    ``buried``: by name, the highest incarnation that was fenced, the latest one last. ``damaged``: the rows that are
    left out, because this daemon could not work with them. ``small``: all rows of the kinds of ``Small``.
    """

    namespaces: Sequence[str]
    tables: Sequence[TableRow]
    regions: list[RegionRow]
    servers: Sequence[ServerRow]
    buried: Mapping[str, int] = {}
    marks: Sequence[MarkRow] = ()
    damaged: Sequence[Damage] = ()
    small: Sequence[Small] = ()


class Catalog(Protocol):
    """Reads the catalog of a domain; its writes go through the store of procedures, see ``RecordStore.write``."""

    @property
    def rows_max(self) -> int:
        """Returns how many regions one step may insert, remove or change."""
        ...

    @property
    def level(self) -> int:
        """Returns the level to which the opening of a store brings it, see ``state_machines.regions.levels``."""
        ...

    async def read(self) -> Content:
        """Reads everything, and judges each row by itself; raises ``StoreFailed`` where nothing can be read."""
        ...
