"""Declares what the catalog stores, and the changes of it that one transaction may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from state_machines.regions.damage import Damage


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
    """A table. ``kind`` and ``state``: numbers of ``state_machines.regions``; ``options``: sorted pairs."""

    name: str
    kind: int
    state: int
    options: tuple[tuple[str, str], ...] = ()


class RegionRow(NamedTuple):
    """A region and its latest final state. ``server`` is empty and ``incarnation`` 0 while it has no owner."""

    id: int
    table: str
    start: bytes
    end: bytes
    state: int
    server: str = ""
    incarnation: int = 0
    token: int = 0
    sequence: int = 0


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
    """Removes a table and all its regions."""

    name: str


class DropRegions(NamedTuple):
    """Removes some regions of a table that is being deleted."""

    ids: tuple[int, ...]


class NewRegions(NamedTuple):
    """Inserts regions; those that exist already stay as they are."""

    rows: tuple[RegionRow, ...]


class Owner(NamedTuple):
    """Sets the final state and owner of a region."""

    id: int
    state: int
    server: str
    incarnation: int
    token: int
    sequence: int


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
)


class Content(NamedTuple):
    """All of a catalog; regions are ordered by table and start key. The reader of a content may empty their list.

    ``buried``: by name, the highest incarnation that was fenced, the latest one last. ``damaged``: the rows that are
    left out, because this daemon could not work with them.
    """

    namespaces: Sequence[str]
    tables: Sequence[TableRow]
    regions: list[RegionRow]
    servers: Sequence[ServerRow]
    buried: Mapping[str, int] = {}
    marks: Sequence[MarkRow] = ()
    damaged: Sequence[Damage] = ()


class Catalog(Protocol):
    """Reads the catalog of a domain; its writes go through the store of procedures, see ``RecordStore.write``."""

    @property
    def rows_max(self) -> int:
        """Returns how many regions one step may insert, remove or change."""
        ...

    async def read(self) -> Content:
        """Reads everything, and judges each row by itself; raises ``StoreFailed`` where nothing can be read."""
        ...
