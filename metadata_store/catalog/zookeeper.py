"""The catalog in ZooKeeper: a znode for each row, written in the fenced multis of the domain's procedures.

The catalog knows which znodes there are, and the table and keys of each region: a znode is replaced as a whole, while
a write names only the new owner. It learns them from a read, and from what was written since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from metadata_store.catalog import znodes
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
    Forget,
    NewRegions,
    Owner,
    ParentRow,
    Put,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    RegionRow,
    Write,
    flat,
)
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow, heir_path, path_in, region_path
from metadata_store.catalog.zookeeper_reading import read_all
from metadata_store.errors import Code
from metadata_store.fencing.bounds import OP_OVERHEAD, acl_bytes
from metadata_store.own import acls_below
from metadata_store.port import ANY_VERSION, Create, Delete, Node, Op, SetData, ZooKeeper
from metadata_store.records.zookeeper import ZooKeeperRecords

ROWS_MAX: Final = 400
"""Regions that one step writes: with the records of a turn they fit into one multi."""
NUMBER_MAX: Final = (1 << 63) - 1

DROPS: Final[Mapping[type[Write], str]] = {
    DropServer: "servers",
    Forget: "buried",
    DropNamespace: "namespaces",
    DropMark: "marks",
}
"""Folders of the znodes that writes remove; their fields name them."""

Keys = tuple[str, bytes, bytes]
"""Table, start and end of a region."""
NO_KEYS: Final[Keys] = ("", b"", b"")


class _Draft:
    """What writes leave behind, before they are sent. None: the znode is gone."""

    def __init__(self) -> None:
        self.values: dict[str, znodes.Row | None] = {}
        self.regions: dict[int, RegionRow | None] = {}


class ZooKeeperCatalog:
    """Implements :class:`metadata_store.catalog.rows.Catalog`, and the rows of a :class:`ZooKeeperRecords`."""

    rows_max = ROWS_MAX

    def __init__(self, zk: ZooKeeper, root: str) -> None:
        self._zk = zk
        self._root = root
        self._acl = acls_below(root, zk.own_acls, secured=zk.set_acl)
        self._op_bytes = len(root.encode()) + 1 + OP_OVERHEAD + acl_bytes(self._acl)
        self._records: ZooKeeperRecords | None = None
        self._known = False
        self._there: set[str] = set()
        self._regions: dict[int, Keys] = {}
        self._sizes: Counter[int] = Counter()
        self._buried: dict[str, int] = {}
        self._parents: dict[str, str] = {}

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
        self._known = False
        content, self._there, others = await read_all(self._zk, self._root)
        self._regions = {one.id: one[1:4] for one in content.regions}
        self._sizes = Counter(others)
        self._sizes.update(znodes.bucket_of(one) for one in self._regions)
        self._buried = {path_in("buried", name): incarnation for name, incarnation in content.buried.items()}
        self._parents = {znodes.path_of(one): one.table for one in content.small if isinstance(one, ParentRow)}
        self._known = True
        return content

    def weigh(self, rows: Sequence[object]) -> int:
        """Returns how many bytes writes add to a multi, at most: each row as it is encoded."""
        missing = [one for one in znodes.FOLDERS if one not in self._there]
        folders = sum([self._named(one) for one in missing]) if missing else 0
        return sum(map(self._weight, flat(rows)), folders)

    def _weight(self, write: object) -> int:
        match write:
            case NewRegions(rows):
                return sum(map(self._bytes, rows)) + self._region_bytes * (2 + len(rows) // znodes.BUCKET_IDS)
            case Owner(id_):
                return self._bytes(self._owned(write, self._regions.get(id_, NO_KEYS)))
            case DropRegions(ids):
                return self._dropped_bytes(ids)
            case DropTable(name):
                parents = sum(self._op_bytes + len(path) for path in self._parents_of(name))
                return self._named("tables", name) + parents + self._dropped_bytes(self._of_table(name))
            case PutTable(row) | PutServer(row) | PutMark(row):
                return self._bytes(row)
            case Put(row):
                folder = znodes.FORMS[type(row)].folder
                return self._bytes(row) + (0 if folder in self._there else self._named(folder))
            case Drop(kind, names):
                return self._named(znodes.FORMS[kind].folder, *names)
            case PutNamespace(name):
                return self._bytes(NamespaceRow(name))
            case Bury(name):
                return self._bytes(BuriedRow(name, NUMBER_MAX, NUMBER_MAX))
            case DropServer() | Forget() | DropNamespace() | DropMark():
                return self._named(DROPS[type(write)], *write)
            case _:
                raise TypeError(f"the catalog has no write {write!r}")

    def _bytes(self, row: znodes.Row) -> int:
        return self._op_bytes + len(znodes.path_of(row)) + len(znodes.encode(row))

    def _named(self, folder: str, *names: str | int) -> int:
        return self._op_bytes + len(path_in(folder, *names))

    def _dropped_bytes(self, ids: Sequence[int]) -> int:
        """Returns the bytes of regions that go; each may be the last one of its bucket, and refer to others."""
        heirs = sum(self._op_bytes + len(path) for path in map(heir_path, ids) if path in self._there)
        return heirs + 2 * len(ids) * self._region_bytes

    @property
    def _region_bytes(self) -> int:
        return self._op_bytes + len(region_path(0))

    @staticmethod
    def _owned(owner: Owner, keys: Keys) -> RegionRow:
        id_, state, server, incarnation, token, sequence, version, clean = owner
        return RegionRow(id_, *keys, state, server, incarnation, token, sequence, version, clean)

    # -- for the store

    async def prepare(self) -> None:
        """Learns what there is before the first write; raises ``NotConnected``."""
        if not self._known:
            await self._read()

    def ops(self, rows: Iterable[object]) -> list[Op]:
        """Returns the operations of writes, in an order in which ZooKeeper takes them."""
        draft = self._drafted(rows)
        if not (draft.values or draft.regions):
            return []
        sizes = self._sizes_after(draft)
        folders = [one for one in self._folders(draft) if one not in self._there]
        buckets = {bucket: znodes.bucket_path(bucket) for bucket in sorted(sizes)}
        folders += [path for bucket, path in buckets.items() if sizes[bucket] and path not in self._there]
        ops: list[Op] = [Create(self._path(path), None, acl=self._acl) for path in folders]
        for path, row in draft.values.items():
            self._add(ops, path, row)
        for id_, region in draft.regions.items():
            version = znodes.HEIR_VERSION if self._refers(draft, id_) else znodes.VERSION
            self._add(ops, region_path(id_), region, there=id_ in self._regions, version=version)
        empty = [path for bucket, path in buckets.items() if not sizes[bucket] and path in self._there]
        return [*ops, *(Delete(self._path(path), ANY_VERSION) for path in empty)]

    def written(self, rows: Iterable[object]) -> None:
        """Notes that :meth:`ops` were applied."""
        draft = self._drafted(rows)
        if not (draft.values or draft.regions):
            return
        sizes = self._sizes_after(draft)
        self._there.update(self._folders(draft))
        for path, row in draft.values.items():
            self._note(path, row)
        for id_, region in draft.regions.items():
            if region is not None:
                self._regions[id_] = region[1:4]
            else:
                self._regions.pop(id_, None)
        for bucket, size in sizes.items():
            self._sizes[bucket] = size
            path = znodes.bucket_path(bucket)
            (self._there.add if size else self._there.discard)(path)

    async def find_out(self, rows: Iterable[object]) -> None:
        """Finds out whether writes whose outcome is unknown were applied: all of them were, or none."""
        draft = self._drafted(rows)
        paths = {path: row for path, row in draft.values.items() if (row is None) == (path in self._there)}
        paths |= {
            region_path(id_): row for id_, row in draft.regions.items() if (row is None) == (id_ in self._regions)
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

    def _refers(self, draft: _Draft, id_: int) -> bool:
        """Checks whether a region refers to others once a draft is written."""
        path = heir_path(id_)
        return draft.values[path] is not None if path in draft.values else path in self._there

    def _add(
        self,
        ops: list[Op],
        path: str,
        row: znodes.Row | None,
        *,
        there: bool | None = None,
        version: int = znodes.VERSION,
    ) -> None:
        there = path in self._there if there is None else there
        if row is None:
            if there:
                ops.append(Delete(self._path(path), ANY_VERSION))
            return
        data = znodes.encode(row, version)
        ops.append(
            SetData(self._path(path), data, ANY_VERSION) if there else Create(self._path(path), data, acl=self._acl)
        )

    def _note(self, path: str, row: znodes.Row | None) -> None:
        if row is None:
            self._there.discard(path)
            self._buried.pop(path, None)
            self._parents.pop(path, None)
            return
        self._there.add(path)
        if isinstance(row, BuriedRow):
            self._buried[path] = row.incarnation
        elif isinstance(row, ParentRow):
            self._parents[path] = row.table

    @staticmethod
    def _folders(draft: _Draft) -> list[str]:
        """Returns the folders that the rows of a draft need."""
        small = {znodes.FORMS[type(row)].folder for row in draft.values.values() if type(row) in NAMES}
        return [*znodes.FOLDERS, *sorted(small)]

    def _sizes_after(self, draft: _Draft) -> dict[int, int]:
        """Returns how many children the buckets of a draft will have."""
        sizes: dict[int, int] = {}
        for id_, region in draft.regions.items():
            bucket = znodes.bucket_of(id_)
            change = (region is not None) - (id_ in self._regions)
            sizes[bucket] = sizes.get(bucket, self._sizes[bucket]) + change
        return sizes

    def _of_table(self, name: str) -> list[int]:
        return [id_ for id_, keys in self._regions.items() if keys[0] == name]

    def _parents_of(self, name: str) -> list[str]:
        return [path for path, table in self._parents.items() if table == name]

    def _drafted(self, rows: Iterable[object]) -> _Draft:
        draft = _Draft()
        for row in flat(rows):
            self._draft(draft, row)
        return draft

    def _draft(self, draft: _Draft, write: object) -> None:
        values = draft.values
        match write:
            case Owner(id_):
                keys = self._keys(draft, id_)
                if keys is not None:
                    draft.regions[id_] = self._owned(write, keys)
            case NewRegions(rows):
                draft.regions.update((one.id, one) for one in rows if self._keys(draft, one.id) is None)
            case DropRegions(ids):
                self._draft_without(draft, ids)
            case DropTable(name):
                values[path_in("tables", name)] = None
                mine = [id_ for id_, one in draft.regions.items() if one is not None and one.table == name]
                self._draft_without(draft, [*self._of_table(name), *mine])
                new = [path for path, one in values.items() if isinstance(one, ParentRow) and one.table == name]
                values.update(dict.fromkeys([*self._parents_of(name), *new]))
            case PutTable(row) | PutServer(row) | PutMark(row) | Put(row):
                values[znodes.path_of(row)] = row
            case Drop(kind, names):
                values[path_in(znodes.FORMS[kind].folder, *names)] = None
            case Bury(name, incarnation, number):
                last = max(incarnation, self._last_buried(draft, name))
                values[path_in("buried", name)] = BuriedRow(name, last, number)
            case PutNamespace(name):
                values[path_in("namespaces", name)] = NamespaceRow(name)
            case DropServer() | Forget() | DropNamespace() | DropMark():
                values[path_in(DROPS[type(write)], *write)] = None
            case _:
                raise TypeError(f"the catalog has no write {write!r}")

    def _draft_without(self, draft: _Draft, ids: Iterable[int]) -> None:
        """Drafts that regions go, with what they refer to."""
        for id_ in ids:
            draft.regions[id_] = None
            if (path := heir_path(id_)) in self._there or path in draft.values:
                draft.values[path] = None

    def _keys(self, draft: _Draft, id_: int) -> Keys | None:
        if id_ in draft.regions:
            region = draft.regions[id_]
            return None if region is None else region[1:4]
        return self._regions.get(id_)

    def _last_buried(self, draft: _Draft, name: str) -> int:
        path = path_in("buried", name)
        if path not in draft.values:
            return self._buried.get(path, 0)
        row = draft.values[path]  # None: the name was forgotten by a row before
        return row.incarnation if isinstance(row, BuriedRow) else 0
