"""Keeps the store of the regions' domain in memory: records and catalog rows on a disk that outlives daemons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metadata_store.catalog.judging import KINDS, fault_of, region_is_sound, sound
from metadata_store.catalog.rows import (
    NAMES,
    Bury,
    Content,
    Drop,
    DropMark,
    DropNamespace,
    DropRegions,
    DropServer,
    DropTable,
    DropUnusable,
    Forget,
    HeirRow,
    MarkRow,
    NewRegions,
    Owner,
    ParentRow,
    Put,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    Small,
    TableRow,
    flat,
)
from metadata_store.records import codec
from metadata_store.records.port import Damaged, Fenced, Stored
from state_machines.procedures.record import Record
from state_machines.regions.damage import Damage
from state_machines.regions.levels import NEWEST


class Disk:
    """Holds encoded records; the daemon that opened it last may write."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.last_pid = 0
        self.opened = 0


class MemoryRecords:
    """Implements :class:`metadata_store.records.port.RecordStore` on a disk."""

    def __init__(self, disk: Disk, above: int = 0) -> None:
        disk.opened = max(disk.opened, above) + 1
        self._disk = disk
        self._epoch = disk.opened

    bytes_max = 0

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Returns 0: a write may have any size."""
        return 0

    async def load(self) -> Stored:
        """Reads everything, ordered by pid."""
        records: list[Record] = []
        damaged: list[Damaged] = []
        for pid, body in sorted(self._disk.bodies.items()):
            try:
                records.append(codec.unsealed(pid, body))
            except codec.Unreadable as error:
                damaged.append(Damaged(pid, str(error), error.fault, error.caller))
        self._disk.last_pid = max(self._disk.last_pid, *self._disk.bodies, 0)
        return Stored(records, damaged, self._disk.last_pid)

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes all or nothing. No domain has rows of its own here."""
        assert not tuple(rows)
        self._check()
        self._disk.bodies.update((record.pid, codec.sealed(record)) for record in puts)
        for pid in deletes:
            self._disk.bodies.pop(pid, None)

    async def reserve(self, count: int) -> int:
        """Reserves pids; returns the first of them."""
        self._check()
        self._disk.last_pid += count
        return self._disk.last_pid - count + 1

    async def close(self) -> None:
        """Does nothing: all is written."""

    def _check(self) -> None:
        if self._epoch != self._disk.opened:
            raise Fenced(f"another daemon opened the store (epoch {self._disk.opened}, ours {self._epoch})")


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
        self.small: dict[tuple[type[Small], tuple[object, ...]], Small] = {}

    def put(self, row: object) -> None:
        """Applies one write of the catalog."""
        match row:
            case Owner() | NewRegions() | DropRegions() | PutTable() | DropTable():
                self._put_regions(row)
            case Put() | Drop():
                self._put_small(row)
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
            case DropUnusable(place):
                self._drop_unusable(place)
            case _:
                raise TypeError(f"the catalog has no write {row!r}")

    def _drop_unusable(self, place: str) -> None:
        kinds: dict[str, dict[Any, Any]] = {
            "table": self.tables,
            "server": self.servers,
            "mark": self.marks,
            "region": self.regions,
        }
        places = {f"{kind} {key}": (rows, key) for kind, rows in kinds.items() for key in rows}
        places |= {f"{KINDS[key[0]]} {key[1]}": (self.small, key) for key in self.small}
        rows, key = places.get(place, ({}, None))
        if key is not None and fault_of(rows[key]) is not None:
            del rows[key]

    def _put_small(self, row: Put | Drop) -> None:
        match row:
            case Put(small):
                self.small[type(small), small[: NAMES[type(small)]]] = small
            case Drop(kind, names):
                self.small.pop((kind, names), None)

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
                    self.small.pop((HeirRow, (id_,)), None)
            case PutTable(table):
                self.tables[table.name] = table
            case DropTable(name):
                self.tables.pop(name, None)
                self._put_regions(DropRegions(tuple(one.id for one in self.regions.values() if one.table == name)))
                for parent in [one for one in self.small.values() if isinstance(one, ParentRow) and one.table == name]:
                    del self.small[ParentRow, (parent.id,)]


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
    level = NEWEST

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes records and rows, all or nothing."""
        await super().write(puts, deletes)
        for row in flat(rows):
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
        small: list[Small] = []
        for kind in NAMES:
            rows = [one for of, one in disk.small.items() if of[0] is kind]
            small += sorted(one for one in rows if sound(one, f"{KINDS[kind]} {one[: NAMES[kind]]}", damaged))
        return Content(
            sorted(disk.namespaces),
            sorted(tables),
            sorted(regions, key=lambda one: (one.table, one.start)),
            sorted(servers),
            dict(disk.buried),
            sorted(marks),
            tuple(damaged),
            small,
        )
