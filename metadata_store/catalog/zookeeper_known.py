"""Knows which znodes a catalog in ZooKeeper has, and what writes make of them before they are sent.

A znode is replaced as a whole, while a write names only the new owner: so the table and keys of each region are known.
Of a region that refers to others all is known, because it is written anew once it does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from metadata_store.catalog import znodes
from metadata_store.catalog.rows import (
    NAMES,
    Bury,
    Drop,
    DropMark,
    DropNamespace,
    DropRegions,
    DropServer,
    DropTable,
    DropUnusable,
    Forget,
    HeirRow,
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
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow, heir_path, path_in
from metadata_store.catalog.zookeeper_reading import Read

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


class Draft:
    """What writes leave behind, before they are sent. None: the znode is gone."""

    def __init__(self) -> None:
        self.values: dict[str, znodes.Row | None] = {}
        self.regions: dict[int, RegionRow | None] = {}


class Known:
    """What there is. ``there``: paths below the root, without those of regions; ``regions``: by id, their keys.

    ``left_out``: regions whose znodes cannot be used, until they are replaced or removed; ``unusable``: paths of other
    such znodes.
    """

    def __init__(self, read: Read | None = None) -> None:
        self.there: set[str] = set()
        self.regions: dict[int, Keys] = {}
        self.left_out: set[int] = set()
        self.unusable: set[str] = set()
        self._sizes: Counter[int] = Counter()
        self._buried: dict[str, int] = {}
        self._parents: dict[str, str] = {}
        self._heirs: dict[int, RegionRow] = {}
        if read is not None:
            self._learn(read)

    def _learn(self, read: Read) -> None:
        content = read.content
        self.there = read.there
        self.regions = {one.id: one[1:4] for one in content.regions}
        self.left_out = set(read.left_out)
        self.unusable = set(read.unusable)
        self._sizes = Counter(read.others)
        self._sizes.update(znodes.bucket_of(one) for some in (self.regions, self.left_out) for one in some)
        self._buried = {path_in("buried", name): incarnation for name, incarnation in content.buried.items()}
        self._parents = {znodes.path_of(one): one.table for one in content.small if isinstance(one, ParentRow)}
        heirs = {one.id for one in content.small if isinstance(one, HeirRow)}
        self._heirs = {one.id: one for one in content.regions if one.id in heirs} if heirs else {}

    def has_region(self, id_: int) -> bool:
        """Checks whether a region has a znode, be it one that cannot be used."""
        return id_ in self.regions or id_ in self.left_out

    def note(self, draft: Draft) -> None:
        """Notes that a draft is written."""
        sizes = self.sizes_after(draft)
        self.there.update(self.folders(draft))
        for path, row in draft.values.items():
            self._note(path, row)
        for id_, region in draft.regions.items():
            self._note_region(id_, region)
        for bucket, size in sizes.items():
            self._sizes[bucket] = size
            path = znodes.bucket_path(bucket)
            (self.there.add if size else self.there.discard)(path)

    def _note(self, path: str, row: znodes.Row | None) -> None:
        self.unusable.discard(path)
        if row is None:
            self.there.discard(path)
            self._buried.pop(path, None)
            self._parents.pop(path, None)
            return
        self.there.add(path)
        if isinstance(row, BuriedRow):
            self._buried[path] = row.incarnation
        elif isinstance(row, ParentRow):
            self._parents[path] = row.table

    def _note_region(self, id_: int, region: RegionRow | None) -> None:
        self.left_out.discard(id_)
        if region is None:
            self.regions.pop(id_, None)
        else:
            self.regions[id_] = region[1:4]
        if region is not None and heir_path(id_) in self.there:
            self._heirs[id_] = region
        else:
            self._heirs.pop(id_, None)

    @staticmethod
    def folders(draft: Draft) -> list[str]:
        """Returns the folders that the rows of a draft need."""
        small = {znodes.FORMS[type(row)].folder for row in draft.values.values() if type(row) in NAMES}
        return [*znodes.FOLDERS, *sorted(small)]

    def sizes_after(self, draft: Draft) -> dict[int, int]:
        """Returns how many children the buckets of a draft will have."""
        sizes: dict[int, int] = {}
        for id_, region in draft.regions.items():
            bucket = znodes.bucket_of(id_)
            change = (region is not None) - self.has_region(id_)
            sizes[bucket] = sizes.get(bucket, self._sizes[bucket]) + change
        return sizes

    def refers(self, draft: Draft, id_: int) -> bool:
        """Checks whether a region refers to others once a draft is written."""
        path = heir_path(id_)
        return draft.values[path] is not None if path in draft.values else path in self.there

    def of_table(self, name: str) -> list[int]:
        """Returns the regions of a table."""
        return [id_ for id_, keys in self.regions.items() if keys[0] == name]

    def parents_of(self, name: str) -> list[str]:
        """Returns the paths of a table's parents."""
        return [path for path, table in self._parents.items() if table == name]

    def drafted(self, rows: Iterable[object]) -> Draft:
        """Returns what writes leave behind."""
        draft = Draft()
        for row in flat(rows):
            self._draft(draft, row)
        return draft

    def _draft(self, draft: Draft, write: object) -> None:
        values = draft.values
        match write:
            case Owner(id_):
                keys = self._keys(draft, id_)
                if keys is not None:
                    draft.regions[id_] = owned(write, keys)
            case NewRegions(rows):
                draft.regions.update((one.id, one) for one in rows if self._is_free(draft, one.id))
            case DropRegions(ids):
                self._draft_without(draft, ids)
            case DropTable(name):
                values[path_in("tables", name)] = None
                mine = [id_ for id_, one in draft.regions.items() if one is not None and one.table == name]
                self._draft_without(draft, [*self.of_table(name), *mine])
                new = [path for path, one in values.items() if isinstance(one, ParentRow) and one.table == name]
                values.update(dict.fromkeys([*self.parents_of(name), *new]))
            case PutTable(row) | PutServer(row) | PutMark(row) | Put(row):
                values[znodes.path_of(row)] = row
            case Drop() | DropUnusable():
                self._draft_drop(draft, write)
            case Bury(name, incarnation, number):
                last = max(incarnation, self._last_buried(draft, name))
                values[path_in("buried", name)] = BuriedRow(name, last, number)
            case PutNamespace(name):
                values[path_in("namespaces", name)] = NamespaceRow(name)
            case DropServer() | Forget() | DropNamespace() | DropMark():
                values[path_in(DROPS[type(write)], *write)] = None
            case _:
                raise TypeError(f"the catalog has no write {write!r}")

    def unusable_at(self, place: str) -> str | None:
        """Returns the path below the root of a znode that cannot be used; None where it was written anew, or is gone.

        Of a region the id says that, see :class:`DropRegions`.
        """
        return next((path for path in self.unusable if place.endswith(f"/{path}")), None)

    def _draft_drop(self, draft: Draft, drop: Drop | DropUnusable) -> None:
        """Drafts that a row goes. A region that refers to nothing any more is written anew, for older daemons."""
        if isinstance(drop, DropUnusable):
            if (path := self.unusable_at(drop.place)) is not None:
                draft.values[path] = None
            return
        draft.values[path_in(znodes.FORMS[drop.of].folder, *drop.names)] = None
        if (row := self.heir(drop)) is not None:
            draft.regions.setdefault(row.id, row)

    def heir(self, drop: Drop) -> RegionRow | None:
        """Returns the region of which a row is dropped that says what it refers to."""
        return self._heirs.get(int(drop.names[0])) if drop.of is HeirRow else None

    def _draft_without(self, draft: Draft, ids: Iterable[int]) -> None:
        """Drafts that regions go, with what they refer to."""
        for id_ in ids:
            draft.regions[id_] = None
            if (path := heir_path(id_)) in self.there or path in draft.values:
                draft.values[path] = None

    def _keys(self, draft: Draft, id_: int) -> Keys | None:
        if id_ in draft.regions:
            region = draft.regions[id_]
            return None if region is None else region[1:4]
        return self.regions.get(id_)

    def _is_free(self, draft: Draft, id_: int) -> bool:
        """Checks whether a region with this id would be new: one that is left out stays, unless it is removed first."""
        return draft.regions[id_] is None if id_ in draft.regions else not self.has_region(id_)

    def _last_buried(self, draft: Draft, name: str) -> int:
        path = path_in("buried", name)
        if path not in draft.values:
            return self._buried.get(path, 0)
        row = draft.values[path]  # None: the name was forgotten by a row before
        return row.incarnation if isinstance(row, BuriedRow) else 0


def owned(owner: Owner, keys: Keys) -> RegionRow:
    """Returns the row of a region with an owner."""
    id_, state, server, incarnation, token, sequence, version, clean, former = owner
    return RegionRow(id_, *keys, state, server, incarnation, token, sequence, version, clean, former)
