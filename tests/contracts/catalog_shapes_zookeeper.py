"""The contract of a catalog in ZooKeeper for rows of regions that were split or merged, and what going back needs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from metadata_store.catalog import znodes
from metadata_store.catalog.rows import (
    Drop,
    DropRegions,
    DropTable,
    HeirRow,
    NewRegions,
    Owner,
    PublishedRow,
    Put,
    PutTable,
    RegionRow,
    SnapshotPartRow,
    Source,
    Write,
)
from metadata_store.fencing.bounds import write_bytes
from metadata_store.kazoo_adapter import jute
from metadata_store.own import Access
from metadata_store.port import ANY_VERSION
from metadata_store.records.port import StoreFailed
from tests.contracts.catalog_shapes import BESIDE, PARENT, PARTS, SNAPSHOT, SPLIT, TABLE, WHOLE, S
from tests.contracts.catalog_zookeeper import LOCK, ROOT, both, sealed
from tests.contracts.support import Backend, Session, session

INT_MAX = (1 << 63) - 1
BASE = ["buried", "marks", "namespaces", "regions", "servers", "tables"]


async def row_at(s: Session, path: str) -> dict[str, Any]:
    """Returns the JSON of a znode."""
    found: dict[str, Any] = json.loads((await s.data(f"{ROOT}/{path}") or b"").rpartition(b"\n")[0])
    return found


class _OldRegion(msgspec.Struct):
    """A region as the first release reads it: it passes fields over that it does not know."""

    id: int
    table: str
    start: bytes
    end: bytes
    state: int
    server: str = ""
    incarnation: int = 0
    token: int = 0
    sequence: int = 0
    version: int = 1


class ZooKeeperShapesContract:
    """Runs on a ``backend``."""

    async def test_regions_that_refer_to_others_stop_an_older_daemon_and_all_others_do_not(
        self, backend: Backend
    ) -> None:
        async with session(backend) as s:
            store, _ = await both(s)
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE))])
            assert (await row_at(s, "tables/sales:t"))["version"] == 1
            for one in (WHOLE, BESIDE):
                old = msgspec.convert(await row_at(s, f"regions/0000000/{one.id:010}"), _OldRegion, strict=False)
                assert old.version == 1, "an older daemon reads it, whatever the version of its table is"
            await store.write((), (), [SPLIT])
            versions = {id_: (await row_at(s, f"regions/0000000/{id_:010}"))["version"] for id_ in (8, 20, 21)}
            assert versions == {8: 1, 20: 2, 21: 2}
            await store.write((), (), [Owner(20, S.OPEN, "s1", 5, 99, 7, 3), Drop(HeirRow, (21,))])
            versions = {id_: (await row_at(s, f"regions/0000000/{id_:010}"))["version"] for id_ in (8, 20, 21)}
            assert versions == {8: 1, 20: 2, 21: 1}
            await store.write((), (), [Drop(HeirRow, (20,))])
            row = await row_at(s, "regions/0000000/0000000020")
            assert (row["version"], row["table_version"], row["token"]) == (1, 3, 99), "nothing else of it changes"

    async def test_an_older_daemon_is_stopped_also_where_a_later_one_has_written_the_region(
        self, backend: Backend
    ) -> None:
        """The catalog learns from its read which regions refer to others."""
        async with session(backend) as s:
            store, _ = await both(s)
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT])
        async with session(backend) as s:
            store, catalog = await both(s)
            await catalog.read()
            await store.write((), (), [Owner(20, S.OPEN, "s1", 5, 99, 7, 3)])
            assert (await row_at(s, "regions/0000000/0000000020"))["version"] == 2
            await store.write((), (), [Drop(HeirRow, (21,)), DropRegions((20,))])
            assert (await row_at(s, "regions/0000000/0000000021"))["version"] == 1
            assert [one.id for one in (await catalog.read()).regions] == [21, 8]

    async def test_folders_of_rows_that_nobody_has_written_are_not_made(self, backend: Backend) -> None:
        async with session(backend) as s:
            store, _ = await both(s)
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE))])
            assert [one for one in await s.names(ROOT) if one not in ("epoch", "procedures")] == BASE
            await store.write((), (), [Drop(PublishedRow, ("acl",))])
            await store.write((), (), [Put(PublishedRow("acl", 1, b""))])
            assert "published" in await s.names(ROOT)
            assert "heirs" not in await s.names(ROOT)

    async def test_a_split_whose_reply_is_lost_is_written_once(self, backend: Backend) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE))])
            for row in (SPLIT, Drop(HeirRow, (20,)), Put(SNAPSHOT), Put(SNAPSHOT), DropRegions((21,))):
                backend.lose_reply(s.zk)
                await store.write((), (), [row])
            await s.zk.sync()
            found = await catalog.read()
            assert [one.id for one in found.regions] == [20, 8]
            assert list(found.small) == [PARENT, SNAPSHOT]
            backend.lose_reply(s.zk)
            await store.write((), (), [DropTable("sales:t")])
            await s.zk.sync()
            found = await catalog.read()
            assert (list(found.regions), list(found.small)) == ([], [SNAPSHOT])

    async def test_rows_weigh_at_least_what_a_client_sends(self, backend: Backend) -> None:
        """The longest names and keys, and as many heirs and parents as one change may have."""
        key, table = b"\xff" * 1_024, "\U0001f680" * 50
        ids = range(900, 910)
        source = Source(INT_MAX >> 30, key, key, INT_MAX, INT_MAX, "\U0001f680" * 50)
        parents = tuple(PARENT._replace(id=id_, table=table, start=key, end=key, heirs=(2_000,)) for id_ in ids)
        heir = RegionRow(2_000, table, key, key, S.CLOSED)
        rows: list[Write] = [
            NewRegions(tuple(RegionRow(id_, table, key, key, S.CLOSED) for id_ in ids)),
            SPLIT._replace(parents=parents, heirs=(heir,), sources=(HeirRow(2_000, (source,) * 10),)),
            Owner(2_000, S.OPEN, table, INT_MAX, INT_MAX, INT_MAX, INT_MAX, 1),
            *map(Put, PARTS),
            Put(SnapshotPartRow(table, INT_MAX, (source,) * 100)),
            Put(PublishedRow(table, INT_MAX, b"\xff" * 60_000)),
            Put(PublishedRow(table, INT_MAX, b"")),
            Drop(PublishedRow, (table,)),
            Drop(HeirRow, (2_000,)),
            Put(HeirRow(2_000, (source,))),
            DropTable(table),
        ]
        async with session(backend, credentials="regent:secret", own_acls={Access.REGIONS: LOCK}) as s:
            store, catalog = await both(s)
            await store.load()
            await catalog.read()
            for row in rows:
                sent = len(jute.multi(catalog.ops([row]), "", lambda _: LOCK))
                assert sent <= catalog.weigh([row]), row
                assert write_bytes(catalog.ops([row])) <= catalog.weigh([row]) <= 8 * sent + 3_000, row
                await store.write((), (), [row])

    @pytest.mark.parametrize(
        ("path", "name", "region"),
        [("heirs/20", "#20", 20), ("parents/7", "#7", 7), ("snapshot_parts/nightly,1", "1 of nightly", 0)],
    )
    async def test_a_small_znode_without_a_row_is_named_and_the_rest_is_read(
        self, backend: Backend, path: str, name: str, region: int
    ) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT, *map(Put, PARTS)])
            for data in (b"", b"garbage", sealed(b"[]"), await s.data(f"{ROOT}/regions/0000000/0000000020")):
                await s.zk.set(f"{ROOT}/{path}", data, ANY_VERSION)
                found = await catalog.read()
                [damage] = found.damaged
                assert (damage.place, damage.name, damage.region) == (f"{ROOT}/{path}", name, region)
                assert len(found.small) == 4
                assert len(found.regions) == 3

    async def test_a_heir_of_a_later_release_is_named_and_nothing_begins(self, backend: Backend) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT])
            data = znodes.encode(SPLIT.sources[0], znodes.HEIR_VERSION + 1)
            await s.zk.set(f"{ROOT}/heirs/20", data, ANY_VERSION)
            with pytest.raises(StoreFailed, match=r"heirs/20 \(format 3 is newer than this daemon's \(2\)"):
                await catalog.read()
