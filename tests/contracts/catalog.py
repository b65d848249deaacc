"""The contract of every catalog of regions, which shares its transactions with a store of procedure records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

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
from metadata_store.records.port import RecordStore, StoreFailed
from tests.contracts.records import record

Catalogs = Callable[[], AbstractAsyncContextManager[tuple[RecordStore, Catalog]]]
"""Opens the same store each time, as a daemon does that starts."""

TABLE = TableRow("sales:t", 2, 4, (("a", "1"), ("b", "")))
REGIONS = (RegionRow(7, "sales:t", b"", b"\xff\x00", 0), RegionRow(8, "sales:t", b"\xff\x00", b"", 0))
SERVER = ServerRow("s1", 1 << 62, "s1:7000", "2.1")


async def written(catalogs: Catalogs, *rows: Write) -> None:
    """Writes rows, each in a transaction of its own, with a daemon of its own."""
    for row in rows:
        async with catalogs() as (store, _):
            await store.write((), (), (row,))


class CatalogContract:
    """Subclasses have a fixture ``catalogs``."""

    @pytest.fixture
    def catalogs(self) -> Catalogs:
        raise NotImplementedError

    async def test_a_new_catalog_is_empty(self, catalogs: Catalogs) -> None:
        async with catalogs() as (_, catalog):
            assert not any(await catalog.read())

    @pytest.mark.seed("S1-5")
    async def test_rows_are_found_again_as_they_were_written(self, catalogs: Catalogs) -> None:
        await written(catalogs, PutNamespace("sales"), PutTable(TABLE), NewRegions(REGIONS[::-1]), PutServer(SERVER))
        async with catalogs() as (_, catalog):
            found = await catalog.read()
        assert [list(part) for part in found[:4]] == [["sales"], [TABLE], list(REGIONS), [SERVER]]

    async def test_an_owner_replaces_the_one_before_and_leaves_keys_alone(self, catalogs: Catalogs) -> None:
        await written(catalogs, NewRegions(REGIONS), Owner(7, 2, "s1", 5, 90, 3), Owner(7, 2, "s2", 6, 91, 4))
        async with catalogs() as (_, catalog):
            found = await catalog.read()
        assert list(found.regions) == [REGIONS[0]._replace(state=2, server="s2", incarnation=6, token=91, sequence=4),
                                       REGIONS[1]]  # fmt: skip

    async def test_of_two_owners_in_one_transaction_the_later_one_stays(self, catalogs: Catalogs) -> None:
        rows: list[Write] = [NewRegions(REGIONS), Owner(7, 2, "s1", 5, 90, 3), Owner(7, 2, "s2", 6, 91, 4)]
        async with catalogs() as (store, catalog):
            await store.write([record(1)], (), rows)
            found = await catalog.read()
        assert [(one.server, one.token) for one in found.regions] == [("s2", 91), ("", 0)]

    async def test_an_owner_of_a_region_that_is_gone_changes_nothing(self, catalogs: Catalogs) -> None:
        await written(catalogs, Owner(7, 2, "s1", 5, 90, 3))
        async with catalogs() as (_, catalog):
            assert list((await catalog.read()).regions) == []

    async def test_regions_that_exist_stay_as_they_are(self, catalogs: Catalogs) -> None:
        await written(catalogs, NewRegions(REGIONS[:1]), Owner(7, 2, "s1", 5, 90, 3), NewRegions(REGIONS))
        async with catalogs() as (_, catalog):
            found = await catalog.read()
        assert [one.state for one in found.regions] == [2, 0]

    async def test_a_table_goes_with_its_regions_and_no_others(self, catalogs: Catalogs) -> None:
        other = RegionRow(9, "u", b"", b"", 0)
        await written(catalogs, PutTable(TABLE), PutTable(TableRow("u", 2, 0)), NewRegions((*REGIONS, other)))
        await written(catalogs, DropTable("sales:t"))
        async with catalogs() as (_, catalog):
            found = await catalog.read()
        assert ([one.name for one in found.tables], list(found.regions)) == (["u"], [other])

    async def test_some_regions_of_a_table_are_dropped(self, catalogs: Catalogs) -> None:
        await written(catalogs, PutTable(TABLE), NewRegions(REGIONS), DropRegions((8, 9)))
        async with catalogs() as (_, catalog):
            found = await catalog.read()
        assert (list(found.tables), list(found.regions)) == ([TABLE], [REGIONS[0]])

    async def test_marks_are_replaced_and_dropped(self, catalogs: Catalogs) -> None:
        mark = MarkRow("hold", "s1", "", 5, "ops", "disk")
        await written(catalogs, PutMark(mark._replace(until_ms=4)), PutMark(mark), PutMark(MarkRow("pin", "7", "s2")))
        await written(catalogs, DropMark("pin", "7"), DropMark("pin", "8"))
        async with catalogs() as (_, catalog):
            assert list((await catalog.read()).marks) == [mark]

    async def test_rows_are_replaced_and_dropped(self, catalogs: Catalogs) -> None:
        moved, older = SERVER._replace(address="s1:8000"), SERVER._replace(incarnation=4)
        await written(catalogs, PutServer(SERVER), PutServer(older), PutServer(moved), DropServer("s1", 4))
        await written(catalogs, PutTable(TABLE), PutTable(TABLE._replace(state=0)), PutNamespace("a"))
        await written(catalogs, PutNamespace("a"), DropNamespace("b"), PutNamespace("b"), DropNamespace("a"))
        async with catalogs() as (_, catalog):
            found = await catalog.read()
        assert [list(part) for part in found[:4]] == [["b"], [TABLE._replace(state=0)], [], [moved]]

    async def test_a_server_that_is_buried_is_remembered_by_its_highest_incarnation(self, catalogs: Catalogs) -> None:
        older = SERVER._replace(incarnation=4)
        await written(catalogs, PutServer(SERVER), Bury("s1", SERVER.incarnation, 1), DropServer(*SERVER[:2]))
        await written(catalogs, PutServer(older), Bury("s1", 4, 2), Bury("s2", 9, 3))
        async with catalogs() as (_, catalog):
            found = await catalog.read()
        assert (list(found.servers), found.buried) == ([older], {"s1": SERVER.incarnation, "s2": 9})

    async def test_of_burials_in_one_term_the_highest_incarnation_stays(self, catalogs: Catalogs) -> None:
        async with catalogs() as (store, catalog):
            for number, incarnation in enumerate((3, 9, 4), 1):
                await store.write((), (), [Bury("s1", incarnation, number)])
            await store.write((), (), [Bury("s2", 3, 4), Bury("s2", 9, 5), Bury("s2", 4, 6)])
            assert (await catalog.read()).buried == {"s1": 9, "s2": 9}

    @pytest.mark.parametrize("together", [False, True])
    async def test_a_name_that_was_forgotten_is_remembered_by_what_is_buried_later(
        self, catalogs: Catalogs, together: bool
    ) -> None:
        again = (Forget("s1"), Bury("s1", 4, 2))
        async with catalogs() as (store, catalog):
            await store.write((), (), [Bury("s1", 9, 1)])
            for rows in (again,) if together else ((one,) for one in again):
                await store.write((), (), rows)
            assert (await catalog.read()).buried == {"s1": 4}

    async def test_servers_that_are_buried_come_in_the_order_of_their_latest_burials(self, catalogs: Catalogs) -> None:
        await written(catalogs, Bury("c", 1, 7), Bury("b", 1, 8))
        await written(catalogs, Bury("z", 1, 9), Bury("c", 2, 10), Bury("d", 3, 11), Forget("d"))
        await written(catalogs, Forget("b"), Forget("nobody"))
        async with catalogs() as (_, catalog):
            assert list((await catalog.read()).buried.items()) == [("z", 1), ("c", 2)]
        await written(catalogs, Bury("d", 1, 12))
        async with catalogs() as (_, catalog):
            assert (await catalog.read()).buried["d"] == 1, "a forgotten incarnation does not count"

    async def test_marks_are_replaced_and_dropped_by_kind_and_subject(self, catalogs: Catalogs) -> None:
        mark, other = MarkRow("cordon", "s1", "", 0, "ops", "rack 3"), MarkRow("pin", "7", "s1", 5)
        await written(catalogs, PutMark(other), PutMark(mark), PutMark(mark._replace(until_ms=9)))
        await written(catalogs, PutMark(mark._replace(subject="s2")), DropMark("cordon", "s2"), DropMark("pin", "s1"))
        async with catalogs() as (_, catalog):
            assert list((await catalog.read()).marks) == [mark._replace(until_ms=9), other]

    async def test_a_transaction_applies_its_rows_in_their_order(self, catalogs: Catalogs) -> None:
        rows: list[Write] = [NewRegions(REGIONS), Owner(7, 2, "s1", 5, 90, 3), Owner(7, 4, "", 0, 90, 3)]
        async with catalogs() as (store, catalog):
            await store.write([record(1)], (), [*rows, DropTable("sales:t"), NewRegions(REGIONS[1:])])
            assert list((await catalog.read()).regions) == [REGIONS[1]]

    async def test_no_row_brings_back_a_region_that_went_before_it(self, catalogs: Catalogs) -> None:
        await written(catalogs, PutTable(TABLE), NewRegions(REGIONS))
        async with catalogs() as (store, catalog):
            await store.write((), (), [DropRegions((7,)), Owner(7, 2, "s1", 5, 90, 3), DropTable("u")])
            assert list((await catalog.read()).regions) == [REGIONS[1]]

    @pytest.mark.seed("S1-2", "S3-2", "S3-8")
    async def test_a_daemon_that_was_fenced_writes_neither_records_nor_rows(self, catalogs: Catalogs) -> None:
        async with catalogs() as (first, _), catalogs() as (second, catalog):
            await second.load()
            with pytest.raises(StoreFailed):
                await first.write([record(1)], (), [PutServer(SERVER)])
            assert not (await second.load()).records
            assert not (await catalog.read()).servers
