"""Reads all znodes of a catalog, in requests of many; what holds no row that can be used is left out, and named."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote

from metadata_store.catalog import znodes
from metadata_store.catalog.judging import KINDS, parts_of, region_is_sound, sound, told_of
from metadata_store.catalog.rows import (
    NAMES,
    Content,
    HeirRow,
    MarkRow,
    ParentRow,
    RegionRow,
    ServerRow,
    Small,
    SnapshotPartRow,
    TableRow,
)
from metadata_store.catalog.znodes import BadRow, BuriedRow, NamespaceRow, Newer
from metadata_store.errors import Code
from metadata_store.port import ZooKeeper
from metadata_store.records.port import StoreFailed
from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.table_rows import NOTHING, TableParts

log = logging.getLogger("regent.regions")

LISTED_TOGETHER: Final = 32
"""Buckets whose children are listed and read side by side."""
NAMED_MAX: Final = 5
"""Znodes that an error names."""
FIELD: Final = re.compile(r"`\$\.(\w+)")
"""The field that an error of the decoder names."""

R = TypeVar("R", bound=znodes.Row)


class Read(NamedTuple):
    """All of a catalog. ``there``: paths below the root, without those of regions.

    ``others``: by bucket, how many znodes it has beside those of regions: they keep it from being deleted.
    ``left_out``: ids of regions whose znodes cannot be used; ``unusable``: paths of other such znodes.
    """

    content: Content
    there: set[str]
    others: dict[int, int]
    left_out: set[int]
    unusable: set[str]


class _Reader:
    """Reads one catalog once."""

    def __init__(self, zk: ZooKeeper, root: str) -> None:
        self._zk = zk
        self._root = root
        self.there: set[str] = set()
        self.others: dict[int, int] = {}
        self.left_out: set[int] = set()
        self.unusable: set[str] = set()
        self.newer: list[str] = []
        self.damaged: list[Damage] = []

    async def rows(self, kind: type[R]) -> list[R]:
        """Reads the rows of a kind other than regions."""
        folder = znodes.FORMS[kind].folder
        listed = await self._zk.children(f"{self._root}/{folder}")
        if listed is None:
            return []
        paths: list[str] = [f"{folder}/{name}" for name in sorted(listed[0])]
        self.there.update((folder, *paths))
        return await self._decoded(kind, paths)

    async def regions(self) -> list[RegionRow]:
        """Reads the regions, some buckets at a time."""
        listed = await self._zk.children(f"{self._root}/{znodes.REGIONS}")
        if listed is None:
            return []
        self.there.add(znodes.REGIONS)
        found: list[RegionRow] = []
        names = sorted(listed[0])
        for first in range(0, len(names), LISTED_TOGETHER):
            some = names[first : first + LISTED_TOGETHER]
            lists: list[Sequence[str]] = await asyncio.gather(*map(self._bucket, some))
            found += await self._decoded(RegionRow, list(chain.from_iterable(lists)))
        return found

    async def _bucket(self, name: str) -> Sequence[str]:
        """Lists the regions of a bucket."""
        if not name.isdecimal() or znodes.bucket_path(int(name)) != f"{znodes.REGIONS}/{name}":
            self._foreign(f"{znodes.REGIONS}/{name}")
            return ()
        path = znodes.bucket_path(int(name))
        listed = await self._zk.children(f"{self._root}/{path}")
        self.there.add(path)
        names = [] if listed is None else sorted(listed[0])
        mine = [one for one in names if one.isdecimal() and znodes.region_path(int(one)) == f"{path}/{one}"]
        for one in set(names).difference(mine):
            self.others[int(name)] = self.others.get(int(name), 0) + 1
            self._foreign(f"{path}/{one}")
        return [f"{path}/{one}" for one in mine]

    def _foreign(self, path: str) -> None:
        log.warning("%s/%s is not regent's: it is left alone; delete it", self._root, path)

    async def _decoded(self, kind: type[R], paths: Sequence[str]) -> list[R]:
        """Reads, decodes and judges znodes; those without a row that can be used are damaged."""
        decode = znodes.FORMS[kind].decode

        def decoded(data: bytes | None, _: int) -> znodes.Row | BadRow | Newer:
            try:
                return decode(data)
            except (BadRow, Newer) as fault:
                return fault

        found = await self._zk.read_decoded([f"{self._root}/{path}" for path in paths], decoded)
        rows: list[R] = []
        for path, one in zip(paths, found, strict=True):
            if isinstance(one, kind) and znodes.path_of(one) == path:
                if self._is_sound(one, path):
                    rows.append(one)
            elif isinstance(one, Newer):
                self.newer.append(f"{self._root}/{path} ({one})")
            else:
                self._malformed(kind, path, one)
        return rows

    def _is_sound(self, row: znodes.Row, path: str) -> bool:
        if isinstance(row, RegionRow) and region_is_sound(row):
            return True
        if sound(row, f"{self._root}/{path}", self.damaged):
            return True
        self._kept(path)
        return False

    def _malformed(self, kind: type[R], path: str, found: znodes.Row | BadRow | Code) -> None:
        """Notes a znode without a row of its path, by what its path tells."""
        names = [unquote(one) for one in path.rpartition("/")[2].split(",")]
        place = f"{self._root}/{path}"
        field, why = _fault(found)
        self._kept(path)
        if path.startswith(f"{znodes.REGIONS}/"):
            body = found.body if isinstance(found, BadRow) else b""
            row = znodes.FORMS[RegionRow].loosely(body)
            table, start, end = told_of({} if row is None else row._asdict())
            self.damaged.append(Damage(RowKind.REGION, place, field, "", why, "", table, int(names[0]), start, end))
        elif kind in (HeirRow, ParentRow):
            named = names[0].isdecimal() and znodes.path_in(znodes.FORMS[kind].folder, int(names[0])) == path
            id_ = int(names[0]) if named else 0
            self.damaged.append(Damage(KINDS[kind], place, field, "", why, f"#{names[0]}", region=id_))
        elif kind is SnapshotPartRow:
            self.damaged.append(Damage(KINDS[kind], place, field, "", why, " of ".join(reversed(names))))
        else:
            name = (" of " if path.startswith("marks/") else ",").join(names)
            self.damaged.append(Damage(KINDS[kind], place, field, "", why, name, parts=_parts(kind, path, found)))

    def _kept(self, path: str) -> None:
        """Notes a znode that is left out: the bucket of a region must stay, and a write of a row replaces its znode."""
        if path.startswith(f"{znodes.REGIONS}/"):
            self.left_out.add(int(path.rpartition("/")[2]))
        else:
            self.unusable.add(path)


def _parts(kind: type[R], path: str, found: znodes.Row | BadRow | Code) -> TableParts:
    """Returns what a znode still tells of its table; nothing where its checksum differs, or it is another one's."""
    row = znodes.FORMS[TableRow].loosely(found.body) if kind is TableRow and isinstance(found, BadRow) else None
    return parts_of(row) if isinstance(row, TableRow) and (not row.name or znodes.path_of(row) == path) else NOTHING


def _fault(found: znodes.Row | BadRow | Code) -> tuple[str, str]:
    """Returns the field that is at fault, ``data`` for all of them, and the reason."""
    if isinstance(found, BadRow):
        at = FIELD.search(text := str(found))
        return (znodes.FIELDS.get(at[1], at[1]) if at else "data"), text
    if isinstance(found, Code):
        return "data", f"it cannot be read: {found.name}, check its ACL"
    return "data", f"it holds what belongs to {znodes.path_of(found)}"


async def read_all(zk: ZooKeeper, root: str) -> Read:
    """Reads all; raises ``StoreFailed`` where a later release wrote a znode."""
    reader = _Reader(zk, root)
    namespaces = await reader.rows(NamespaceRow)
    tables = await reader.rows(TableRow)
    servers = await reader.rows(ServerRow)
    buried = await reader.rows(BuriedRow)
    marks = await reader.rows(MarkRow)
    small: list[Small] = []
    for kind in NAMES:
        small += sorted(await reader.rows(kind))
    regions = await reader.regions()
    if reader.newer:
        raise StoreFailed(_refusal(reader.newer))
    content = Content(
        sorted(one.name for one in namespaces),
        sorted(tables),
        sorted(regions, key=lambda one: (one.table, one.start)),
        sorted(servers),
        {one.name: one.incarnation for one in sorted(buried, key=lambda one: (one.number, one.name))},
        sorted(marks),
        tuple(reader.damaged),
        small,
    )
    return Read(content, reader.there, reader.others, reader.left_out, reader.unusable)


def _refusal(faults: Sequence[str]) -> str:
    more = f" and {len(faults) - NAMED_MAX} more" if len(faults) > NAMED_MAX else ""
    return (
        f"a later release wrote {len(faults)} znodes of the catalog: {', '.join(faults[:NAMED_MAX])}{more}. This "
        "daemon does not begin, because it would pass them over"
    )
