"""The contract of a catalog in ZooKeeper: that of all catalogs, and what ZooKeeper adds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from metadata_store.acl import READ, Acl, digest_acl
from metadata_store.catalog import znodes
from metadata_store.catalog.rows import (
    Bury,
    Catalog,
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
    Write,
)
from metadata_store.catalog.zookeeper import ZooKeeperCatalog
from metadata_store.errors import Code, ZkError
from metadata_store.fencing.bounds import write_bytes
from metadata_store.fencing.outcome import Fence
from metadata_store.kazoo_adapter import jute
from metadata_store.own import Access
from metadata_store.port import ANY_VERSION, ConnectionState
from metadata_store.records import codec
from metadata_store.records.port import RecordStore, StoreFailed
from metadata_store.records.zookeeper import ZooKeeperRecords
from tests.contracts.catalog import CatalogContract, Catalogs
from tests.contracts.catalog_shapes import ShapesContract
from tests.contracts.records import record
from tests.contracts.support import Backend, Session, session
from tests.kit.deadlines import eventually

ROOT = "/regent/regions"
EPOCH = f"{ROOT}/epoch"
LOCK = (digest_acl("regent", "secret"), Acl(READ, "world", "anyone"))
Both = tuple[ZooKeeperRecords, ZooKeeperCatalog]


async def both(s: Session) -> Both:
    """Opens store and catalog as a new daemon, which fences the one before."""
    for path, data in (("/regent", None), (ROOT, None), (EPOCH, b"0")):
        if await s.zk.exists(path) is None:
            await s.zk.create(path, data)
    version = (await s.zk.set(EPOCH, b"1", ANY_VERSION)).version

    async def connected() -> None:
        await eventually(lambda: s.zk.state is ConnectionState.CONNECTED)

    rows = ZooKeeperCatalog(s.zk, ROOT)
    store = ZooKeeperRecords(s.zk, Fence(version, path=EPOCH), f"{ROOT}/procedures", connected, rows)
    return store, rows.of(store)


def sealed(body: bytes) -> bytes:
    """Returns the data of a znode with the right checksum."""
    return b"%b\n%08x" % (body, codec.checksum(body))


def regions(count: int, table: str = "t", first: int = 1) -> tuple[RegionRow, ...]:
    """Returns regions of a table."""
    return tuple(RegionRow(id_, table, b"%08d" % id_, b"%08d" % (id_ + 1), 0) for id_ in range(first, first + count))


class ZooKeeperCatalogContract(CatalogContract, ShapesContract):
    """Runs on a ``backend``."""

    @pytest.fixture
    def catalogs(self, backend: Backend) -> Catalogs:
        @asynccontextmanager
        async def opened() -> AsyncIterator[tuple[RecordStore, Catalog]]:
            async with session(backend) as s:
                store, catalog = await both(s)
                yield store, catalog
                await store.close()

        def one() -> AbstractAsyncContextManager[tuple[RecordStore, Catalog]]:
            return opened()

        return one

    async def test_names_that_no_path_can_hold_are_quoted(self, backend: Backend) -> None:
        server = ServerRow("zürich/host 7 %2F", 9, "h:1", "ü")
        async with session(backend) as s:
            store, catalog = await both(s)
            rows = [
                PutServer(server),
                PutNamespace(".."),
                PutMark(MarkRow("hold", "a/b", "", 5)),
                PutTable(TableRow("n:.", 2, 0)),
            ]
            await store.write((), (), rows)
            assert await s.names(f"{ROOT}/namespaces") == ["%2E%2E"]
            found = await catalog.read()
        assert (found.servers, found.namespaces, found.marks) == ([server], [".."], [MarkRow("hold", "a/b", "", 5)])

    async def test_regions_are_in_buckets_that_come_and_go_with_them(self, backend: Backend) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [PutTable(TableRow("t", 2, 4)), NewRegions(regions(4, first=998))])
            assert await s.names(f"{ROOT}/regions") == ["0000000", "0000001"]
            assert await s.names(f"{ROOT}/regions/0000001") == ["0000001000", "0000001001"]
            await store.write((), (), [DropRegions((998, 999))])
            assert await s.names(f"{ROOT}/regions") == ["0000001"]
            await store.write((), (), [DropTable("t"), NewRegions(regions(1, "u", first=7))])
            assert await s.names(f"{ROOT}/regions") == ["0000000"]
            assert list((await catalog.read()).regions) == list(regions(1, "u", first=7))

    async def test_rows_weigh_at_least_what_a_client_sends(self, backend: Backend) -> None:
        """The longest names that registrations and requests may have, also as paths quote them."""
        name, table = "\U0001f680" * 200, "t" * 200
        rows: list[Write] = [
            PutTable(TableRow(table, 2, 3, (("\x01" * 200, "\x01" * 1_000),) * 100)),
            NewRegions(tuple(RegionRow(id_, table, bytes(1_024), bytes(1_024), 0) for id_ in range(900, 1_100))),
            Owner(1_000, 1, name, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1),
            PutServer(ServerRow(name, (1 << 63) - 1, name, name)),
            PutNamespace("n" * 200),
            PutMark(MarkRow("cordon", name, name, 1 << 60, name, name * 5)),
            Bury(name, 1 << 62, 1 << 62),
            DropMark("cordon", name),
            Forget(name),
            DropServer(name, (1 << 63) - 1),
            DropNamespace("n" * 200),
            DropRegions(tuple(range(900, 1_000))),
            DropTable(table),
        ]
        async with session(backend, credentials="regent:secret", own_acls={Access.REGIONS: LOCK}) as s:
            store, catalog = await both(s)
            await store.load()
            await catalog.read()
            for row in rows:
                sent = len(jute.multi(catalog.ops([row]), "", lambda _: LOCK))
                assert sent <= catalog.weigh([row]) <= 8 * sent + 3_000, row
                await store.write((), (), [row])

    async def test_many_rows_that_wait_go_in_several_multis(self, backend: Backend) -> None:
        made = regions(3_000)
        async with session(backend) as s:
            store, catalog = await both(s)
            chunks = [NewRegions(made[first : first + 400]) for first in range(0, len(made), 400)]
            await asyncio.gather(*(store.write([record(n)], (), [one]) for n, one in enumerate(chunks, 1)))
            await asyncio.gather(*(store.write((), (), [Owner(one.id, 2, "s1", 5, 9, 3)]) for one in made))
        async with session(backend) as s:
            _, catalog = await both(s)
            owned = [one._replace(state=2, server="s1", incarnation=5, token=9, sequence=3) for one in made]
            assert list((await catalog.read()).regions) == owned

    async def test_a_write_whose_reply_is_lost_is_repeated(self, backend: Backend) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [PutTable(TableRow("t", 2, 4))])
            for rows in (
                [NewRegions(regions(3)), PutServer(ServerRow("s1", 5, "h:1"))],
                [Owner(1, 2, "s1", 5, 9, 3)],
                [DropRegions((3,))],
            ):
                backend.lose_reply(s.zk)
                await store.write([record(1)], (), rows)
            backend.lose_reply(s.zk)
            await store.write((), [1], [DropTable("t")])
            await s.zk.sync()
            found = await catalog.read()
            assert (found.tables, found.regions, len(found.servers)) == ([], [], 1)
            assert not (await store.load()).records

    async def test_rows_alone_whose_reply_is_lost_are_written_once(self, backend: Backend) -> None:
        """A server that is behind shows what is gone, and not yet what is new."""
        async with session(backend) as s:
            store, catalog = await both(s)
            for rows in (
                [PutTable(TableRow("t", 2, 4)), NewRegions(regions(3))],
                [NewRegions(regions(2, first=999))],
                [PutServer(ServerRow("s1", 5, "h:1"))],
                [DropRegions((3, 999, 1000))],
                [DropServer("s1", 5)],
                [DropTable("t")],
                [PutTable(TableRow("u", 2, 4)), NewRegions(regions(1, "u", first=7))],
            ):
                backend.lose_reply(s.zk)
                await store.write((), (), rows)
            await s.zk.sync()
            found = await catalog.read()
            assert ([one.name for one in found.tables], list(found.regions)) == (["u"], list(regions(1, "u", first=7)))
            assert not found.servers

    async def test_regions_with_the_longest_keys_are_weighed_as_they_are_written(self, backend: Backend) -> None:
        """So that what waits together is cut into several multis, below the bound of a request."""
        keys = [b"%06d" % n + b"\xff" * 1_018 for n in range(400)]
        made = tuple(RegionRow(n + 1, "n:t", key, keys[n + 1], 0) for n, key in enumerate(keys[:-1]))
        owned: list[Write] = [Owner(one.id, 2, "s" * 200, 1 << 62, 1 << 62, 1 << 62) for one in made]
        async with session(backend) as s:
            store, catalog = await both(s)
            for rows in ([NewRegions(made[:200])], [NewRegions(made[200:])], owned):
                assert catalog.weigh(rows) >= 0.9 * write_bytes(catalog.ops(rows))
                await asyncio.gather(*(store.write((), (), [row]) for row in rows))
            assert {one.state for one in (await catalog.read()).regions} == {2}

    async def test_records_and_rows_are_written_together_or_not_at_all(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as stranger:
            store, _ = await both(s)
            await store.load()
            await store.write((), (), [PutNamespace("a")])
            await stranger.zk.create(f"{ROOT}/namespaces/b", b"")
            with pytest.raises(StoreFailed, match="another client writes below"):
                await store.write([record(1)], (), [PutNamespace("b")])
            assert not (await store.load()).records

    @pytest.mark.parametrize(
        ("path", "data", "why"),
        [
            ("regions/0000000/0000000001", b"", "it has no checksum as its last line"),
            ("regions/0000000/0000000001", None, "it has no checksum as its last line"),
            ("regions/0000000/0000000002", b"OTHER", "it holds what belongs to regions/0000000/0000000001"),
            ("tables/t", b"FLIP", "its checksum differs"),
            ("servers/s1,5", b"null\n", "Expected `object`, got `null`"),
        ],
    )
    async def test_a_znode_without_a_row_is_named_and_the_rest_is_read(
        self, backend: Backend, path: str, data: bytes | None, why: str
    ) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            rows = [PutTable(TableRow("t", 2, 4)), NewRegions(regions(2)), PutServer(ServerRow("s1", 5, "h:1"))]
            await store.write((), (), rows)
            if data == b"OTHER":
                data = await s.data(f"{ROOT}/regions/0000000/0000000001")
            elif data == b"FLIP":
                data = (await s.data(f"{ROOT}/{path}") or b"").replace(b'"t"', b'"u"')
            elif data is not None and b"\n" in data:
                data = sealed(data.partition(b"\n")[0])
            await s.zk.set(f"{ROOT}/{path}", data, ANY_VERSION)
            found = await catalog.read()
            [damage] = found.damaged
            assert (damage.place, damage.field) == (f"{ROOT}/{path}", "data")
            assert damage.why.startswith(why)
            assert len(found.tables) + len(found.regions) + len(found.servers) == 3
            assert str(damage.region or damage.name) in path

    async def test_a_znode_of_a_later_release_is_named_and_nothing_begins(self, backend: Backend) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [PutTable(TableRow("t", 2, 4))])
            await s.zk.set(f"{ROOT}/tables/t", sealed(b'{"version":3}'), ANY_VERSION)
            why = (
                f"a later release wrote 1 znodes of the catalog: {ROOT}/tables/t (format 3 is newer than this daemon's"
            )
            with pytest.raises(StoreFailed, match=re.escape(why)):
                await catalog.read()

    async def test_a_bucket_stays_as_long_as_it_has_a_damaged_region(self, backend: Backend) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [NewRegions(regions(2))])
            bad = regions(1)[0]._replace(state=99)
            for data in (b"", znodes.encode(bad)):
                await s.zk.set(f"{ROOT}/regions/0000000/0000000001", data, ANY_VERSION)
                await catalog.read()
                await store.write((), (), [DropRegions((2,))])
                assert await s.names(f"{ROOT}/regions/0000000") == ["0000000001"]
                await store.write((), (), [NewRegions(regions(1, first=2))])

    async def test_what_another_client_put_beside_regions_is_left_alone(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with session(backend) as s:
            store, catalog = await both(s)
            await store.write((), (), [NewRegions(regions(1))])
            for path in ("regions/notes", "regions/0000000/notes"):
                await s.zk.create(f"{ROOT}/{path}", b"by hand")
            assert list((await catalog.read()).regions) == list(regions(1))
            assert caplog.text.count("is not regent's: it is left alone") == 2
            await store.write((), (), [DropRegions((1,))])
            assert await s.names(f"{ROOT}/regions/0000000") == ["notes"]

    async def test_no_stranger_changes_closed_rows(self, backend: Backend) -> None:
        closed = {"credentials": "regent:secret", "own_acls": {Access.REGIONS: LOCK}}
        async with session(backend, **closed) as s, session(backend) as stranger:
            store, _ = await both(s)
            await store.write([record(1)], (), [NewRegions(regions(1)), PutNamespace("a")])
            await stranger.zk.sync()
            for attempt in (
                stranger.zk.set(f"{ROOT}/regions/0000000/0000000001", b"", ANY_VERSION),
                stranger.zk.create(f"{ROOT}/regions/0000000/0000000002", b""),
                stranger.zk.delete(f"{ROOT}/namespaces/a", ANY_VERSION),
                stranger.zk.create(f"{ROOT}/tables/t", b""),
            ):
                with pytest.raises(ZkError) as failed:
                    await attempt
                assert failed.value.code is Code.NO_AUTH
