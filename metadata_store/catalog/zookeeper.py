"""The catalog in ZooKeeper: a znode for each row, written in the fenced multis of the domain's procedures.

The catalog learns which znodes there are from a read, and from what was written since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from metadata_store.catalog import znodes
from metadata_store.catalog.rows import (
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
    NewRegions,
    Owner,
    Put,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    flat,
)
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow, heir_path, path_in, region_path
from metadata_store.catalog.zookeeper_known import DROPS, NO_KEYS, Known, owned
from metadata_store.catalog.zookeeper_reading import read_all
from metadata_store.errors import Code
from metadata_store.fencing.bounds import OP_OVERHEAD, acl_bytes
from metadata_store.own import acls_below
from metadata_store.port import ANY_VERSION, Create, Delete, Node, Op, SetData, ZooKeeper
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.regions.levels import OLDEST

ROWS_MAX: Final = 400
"""Regions that one step writes: with the records of a turn they fit into one multi."""
NUMBER_MAX: Final = (1 << 63) - 1


class ZooKeeperCatalog:
    """Implements :class:`metadata_store.catalog.rows.Catalog`, and the rows of a :class:`ZooKeeperRecords`."""

    rows_max = ROWS_MAX
    level = OLDEST

    def __init__(self, zk: ZooKeeper, root: str) -> None:
        self._zk = zk
        self._root = root
        self._acl = acls_below(root, zk.own_acls, secured=zk.set_acl)
        self._op_bytes = len(root.encode()) + 1 + OP_OVERHEAD + acl_bytes(self._acl)
        self._records: ZooKeeperRecords | None = None
        self._known = Known()
        self._is_read = False

    def of(self, records: ZooKeeperRecords) -> ZooKeeperCatalog:
        """Binds the catalog to the store whose rows it is."""
        self._records = records
        return self

    async def read(self) -> Content:
        """Reads everything; raises ``StoreFailed`` naming the znodes that hold no row."""
        found: list[Content] = []

        async def once() -> None:
            found.append(await self._read())

        assert self._records is not None
        await self._records.until_sent(once)
        return found[-1]

    async def _read(self) -> Content:
        self._is_read = False
        found = await read_all(self._zk, self._root)
        self._known, self._is_read = Known(found), True
        return found.content

    def weigh(self, rows: Sequence[object]) -> int:
        """Returns how many bytes writes add to a multi, at most: each row as it is encoded."""
        missing = [one for one in znodes.FOLDERS if one not in self._known.there]
        folders = sum([self._named(one) for one in missing]) if missing else 0
        return sum(map(self._weight, flat(rows)), folders)

    def _weight(self, write: object) -> int:
        match write:
            case NewRegions(rows):
                return sum(map(self._bytes, rows)) + self._region_bytes * (2 + len(rows) // znodes.BUCKET_IDS)
            case Owner(id_):
                return self._bytes(owned(write, self._known.regions.get(id_, NO_KEYS)))
            case DropRegions(ids):
                return self._dropped_bytes(ids)
            case DropTable(name):
                parents = sum(self._op_bytes + len(path) for path in self._known.parents_of(name))
                return self._named("tables", name) + parents + self._dropped_bytes(self._known.of_table(name))
            case PutTable(row) | PutServer(row) | PutMark(row):
                return self._bytes(row)
            case Put(row):
                folder = znodes.FORMS[type(row)].folder
                return self._bytes(row) + (0 if folder in self._known.there else self._named(folder))
            case Drop(kind, names):
                heir = self._known.heir(write)
                return self._named(znodes.FORMS[kind].folder, *names) + (0 if heir is None else self._bytes(heir))
            case PutNamespace(name):
                return self._bytes(NamespaceRow(name))
            case Bury(name):
                return self._bytes(BuriedRow(name, NUMBER_MAX, NUMBER_MAX))
            case DropServer() | Forget() | DropNamespace() | DropMark():
                return self._named(DROPS[type(write)], *write)
            case DropUnusable(place):
                return self._op_bytes + len(place)
            case _:
                raise TypeError(f"the catalog has no write {write!r}")

    def _bytes(self, row: znodes.Row) -> int:
        return self._op_bytes + len(znodes.path_of(row)) + len(znodes.encode(row))

    def _named(self, folder: str, *names: str | int) -> int:
        return self._op_bytes + len(path_in(folder, *names))

    def _dropped_bytes(self, ids: Sequence[int]) -> int:
        """Returns the bytes of regions that go; each may be the last one of its bucket, and refer to others."""
        heirs = sum(self._op_bytes + len(path) for path in map(heir_path, ids) if path in self._known.there)
        return heirs + 2 * len(ids) * self._region_bytes

    @property
    def _region_bytes(self) -> int:
        return self._op_bytes + len(region_path(0))

    # -- for the store

    async def prepare(self) -> None:
        """Learns what there is before the first write; raises ``NotConnected``."""
        if not self._is_read:
            await self._read()

    def ops(self, rows: Iterable[object]) -> list[Op]:
        """Returns the operations of writes, in an order in which ZooKeeper takes them."""
        draft = self._known.drafted(rows)
        if not (draft.values or draft.regions):
            return []
        sizes = self._known.sizes_after(draft)
        folders = [one for one in self._known.folders(draft) if one not in self._known.there]
        buckets = {bucket: znodes.bucket_path(bucket) for bucket in sorted(sizes)}
        folders += [path for bucket, path in buckets.items() if sizes[bucket] and path not in self._known.there]
        ops: list[Op] = [Create(self._path(path), None, acl=self._acl) for path in folders]
        for path, row in draft.values.items():
            self._add(ops, path, row)
        for id_, region in draft.regions.items():
            version = znodes.HEIR_VERSION if self._known.refers(draft, id_) else znodes.VERSION
            self._add(ops, region_path(id_), region, there=self._known.has_region(id_), version=version)
        empty = [path for bucket, path in buckets.items() if not sizes[bucket] and path in self._known.there]
        return [*ops, *(Delete(self._path(path), ANY_VERSION) for path in empty)]

    def written(self, rows: Iterable[object]) -> None:
        """Notes that :meth:`ops` were applied."""
        draft = self._known.drafted(rows)
        if draft.values or draft.regions:
            self._known.note(draft)

    async def find_out(self, rows: Iterable[object]) -> None:
        """Finds out whether writes whose outcome is unknown were applied: all of them were, or none."""
        draft = self._known.drafted(rows)
        paths = {path: row for path, row in draft.values.items() if (row is None) == (path in self._known.there)}
        paths |= {
            region_path(id_): row for id_, row in draft.regions.items() if (row is None) == self._known.has_region(id_)
        }
        if not paths:  # all of it replaces what is there: it is repeated
            return
        await self._zk.sync(self._root)
        path, row = next(iter(paths.items()))
        [found] = await self._zk.read_many([self._path(path)])
        if (row is not None and isinstance(found, Node)) or (row is None and found is Code.NO_NODE):
            self.written(rows)

    # -- how it works

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _add(
        self,
        ops: list[Op],
        path: str,
        row: znodes.Row | None,
        *,
        there: bool | None = None,
        version: int = znodes.VERSION,
    ) -> None:
        there = path in self._known.there if there is None else there
        if row is None:
            if there:
                ops.append(Delete(self._path(path), ANY_VERSION))
            return
        data = znodes.encode(row, version)
        ops.append(
            SetData(self._path(path), data, ANY_VERSION) if there else Create(self._path(path), data, acl=self._acl)
        )
