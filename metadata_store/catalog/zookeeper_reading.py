"""Reads all znodes of a catalog, in requests of many; what holds no row is named, and never passed over.

A region that were left out would be a hole in the keys of its table, with an owner whom nobody knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from metadata_store.catalog import znodes
from metadata_store.catalog.rows import Content, MarkRow, RegionRow, ServerRow, TableRow
from metadata_store.catalog.znodes import BuriedRow, Malformed, NamespaceRow
from metadata_store.errors import Code
from metadata_store.port import ZooKeeper
from metadata_store.records.port import StoreFailed

log = logging.getLogger("regent.regions")

LISTED_TOGETHER: Final = 32
"""Buckets whose children are listed and read side by side."""
NAMED_MAX: Final = 5
"""Znodes that hold no row, and that an error names."""

R = TypeVar("R", TableRow, RegionRow, ServerRow, MarkRow, NamespaceRow, BuriedRow)


class Read(NamedTuple):
    """All of a catalog. ``there``: paths below the root, without those of regions.

    ``others``: by bucket, how many znodes of other clients it has.
    """

    content: Content
    there: set[str]
    others: dict[int, int]


class _Reader:
    """Reads one catalog once."""

    def __init__(self, zk: ZooKeeper, root: str) -> None:
        self._zk = zk
        self._root = root
        self.there: set[str] = set()
        self.others: dict[int, int] = {}
        self.faults: list[str] = []

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
        """Reads and decodes znodes; those without a row become faults."""
        decode = znodes.FORMS[kind].decode

        def decoded(data: bytes | None, _: int) -> znodes.Row | Malformed:
            try:
                return decode(data)
            except Malformed as malformed:
                return malformed

        found = await self._zk.read_decoded([f"{self._root}/{path}" for path in paths], decoded)
        rows: list[R] = []
        for path, one in zip(paths, found, strict=True):
            if isinstance(one, kind) and znodes.path_of(one) == path:
                rows.append(one)
            else:
                self.faults.append(f"{self._root}/{path} ({_fault(one)})")
        return rows


def _fault(found: znodes.Row | Malformed | Code) -> str:
    if isinstance(found, Malformed):
        return str(found)
    if isinstance(found, Code):
        return f"it cannot be read: {found.name}, check its ACL"
    return f"it holds what belongs to {znodes.path_of(found)}"


async def read_all(zk: ZooKeeper, root: str) -> Read:
    """Reads all; raises ``StoreFailed`` where a znode holds no row."""
    reader = _Reader(zk, root)
    namespaces = await reader.rows(NamespaceRow)
    tables = await reader.rows(TableRow)
    servers = await reader.rows(ServerRow)
    buried = await reader.rows(BuriedRow)
    marks = await reader.rows(MarkRow)
    regions = await reader.regions()
    if reader.faults:
        raise StoreFailed(_refusal(reader.faults))
    content = Content(
        sorted(one.name for one in namespaces),
        sorted(tables),
        sorted(regions, key=lambda one: (one.table, one.start)),
        sorted(servers),
        {one.name: one.incarnation for one in sorted(buried, key=lambda one: (one.number, one.name))},
        sorted(marks),
    )
    return Read(content, reader.there, reader.others)


def _refusal(faults: Sequence[str]) -> str:
    more = f" and {len(faults) - NAMED_MAX} more" if len(faults) > NAMED_MAX else ""
    return (
        f"{len(faults)} znodes of the catalog hold no row: {', '.join(faults[:NAMED_MAX])}{more}. No region is "
        "assigned until each has its data again, from a snapshot of ZooKeeper, or was deleted with what it stood for"
    )
