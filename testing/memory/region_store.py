"""The store of the regions' domain in memory: procedure records and catalog rows on a disk that outlives daemons."""

from __future__ import annotations

from collections.abc import Iterable

from metadata_store.catalog.judging import region_is_sound, sound
from metadata_store.catalog.rows import (
    Bury,
    Content,
    DropMark,
    DropNamespace,
    DropRegions,
    DropServer,
    DropTable,
    Forget,
    MarkRow,
    NewRegions,
    Owner,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    TableRow,
)
from state_machines.procedures.record import Record
from state_machines.regions.damage import Damage
from testing.memory.records import Disk, MemoryRecords


class RegionDisk(Disk):
    """Holds encoded records and the catalog's rows; the daemon that opened it last may write."""

    def __init__(self) -> None:
        super().__init__()
        self.namespaces: set[str] = set()
        self.tables: dict[str, TableRow] = {}
        self.regions: dict[int, RegionRow] = {}
        self.servers: dict[tuple[str, int], ServerRow] = {}
        self.buried: dict[str, int] = {}
        self.marks: dict[tuple[str, str], MarkRow] = {}

    def put(self, row: object) -> None:
        """Applies one write of the catalog."""
        match row:
            case Owner() | NewRegions() | DropRegions() | PutTable() | DropTable():
                self._put_regions(row)
            case PutServer(server):
                self.servers[server.name, server.incarnation] = server
            case DropServer(name, incarnation):
                self.servers.pop((name, incarnation), None)
            case Bury(name, incarnation):
                self.buried[name] = max(incarnation, self.buried.pop(name, 0))
            case Forget(name):
                self.buried.pop(name, None)
            case PutNamespace(name):
                self.namespaces.add(name)
            case DropNamespace(name):
                self.namespaces.discard(name)
            case PutMark(mark):
                self.marks[mark.kind, mark.subject] = mark
            case DropMark(kind, subject):
                self.marks.pop((kind, subject), None)
            case _:
                raise TypeError(f"the catalog has no write {row!r}")

    def _put_regions(self, row: Owner | NewRegions | DropRegions | PutTable | DropTable) -> None:
        match row:
            case Owner(id_):
                if id_ in self.regions:
                    self.regions[id_] = self.regions[id_]._replace(**row._asdict())
            case NewRegions(rows):
                for region in rows:
                    self.regions.setdefault(region.id, region)
            case DropRegions(ids):
                for id_ in ids:
                    self.regions.pop(id_, None)
            case PutTable(table):
                self.tables[table.name] = table
            case DropTable(name):
                self.tables.pop(name, None)
                self.regions = {id_: one for id_, one in self.regions.items() if one.table != name}


class MemoryRegionStore(MemoryRecords):
    """Implements the store of records and :class:`metadata_store.catalog.rows.Catalog` on the same disk."""

    def __init__(self, disk: RegionDisk, above: int = 0) -> None:
        super().__init__(disk, above)
        self._rows = disk

    @property
    def epoch(self) -> int:
        """Returns the epoch of this daemon on the disk."""
        return self._epoch

    rows_max = 5_000

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes records and rows, all or nothing."""
        await super().write(puts, deletes)
        for row in rows:
            self._rows.put(row)

    async def read(self) -> Content:
        """Reads all of the catalog; judges rows as the other stores do."""
        disk = self._rows
        damaged: list[Damage] = []
        tables = [one for key, one in disk.tables.items() if sound(one, f"table {key}", damaged)]
        servers = [one for key, one in disk.servers.items() if sound(one, f"server {key}", damaged)]
        marks = [one for key, one in disk.marks.items() if sound(one, f"mark {key}", damaged)]
        regions = [
            one for one in disk.regions.values() if region_is_sound(one) or sound(one, f"region {one.id}", damaged)
        ]
        return Content(
            sorted(disk.namespaces),
            sorted(tables),
            sorted(regions, key=lambda one: (one.table, one.start)),
            sorted(servers),
            dict(disk.buried),
            sorted(marks),
            tuple(damaged),
        )
