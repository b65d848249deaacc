"""The contract of every catalog for rows of regions that were split, merged or cloned, and of snapshots."""

from __future__ import annotations

from metadata_store.catalog.rows import (
    Content,
    Drop,
    DropRegions,
    DropTable,
    HeirRow,
    NewRegions,
    Owner,
    ParentRow,
    PublishedRow,
    Put,
    PutTable,
    RegionRow,
    Reshape,
    Small,
    SnapshotPartRow,
    SnapshotRow,
    Source,
    TableRow,
    Write,
)
from state_machines.regions.states import RegionState
from tests.contracts.catalog import Catalogs, written
from tests.contracts.records import record

S = RegionState
TABLE = TableRow("sales:t", 2, 0, (("a", "1"),), 3)
WHOLE = RegionRow(7, "sales:t", b"", b"\xff\x00", S.CLOSED, "", 0, 90, 4, 3, 1)
BESIDE = RegionRow(8, "sales:t", b"\xff\x00", b"", S.OPEN, "s1", 5, 91, 0, 2)
LEFT = RegionRow(20, "sales:t", b"", b"k", S.CLOSED)
RIGHT = RegionRow(21, "sales:t", b"k", b"\xff\x00", S.CLOSED)
PARENT = ParentRow(7, "sales:t", b"", b"\xff\x00", S.SPLIT, (20, 21), 90, 4)
SOURCE = Source(7, b"", b"\xff\x00", 90, 4)
SPLIT = Reshape((PARENT,), (LEFT, RIGHT), (HeirRow(20, (SOURCE,)), HeirRow(21, (SOURCE,))))
SNAPSHOT = SnapshotRow("nightly", "sales:t", 2, (("a", "1"), ("b", "\u00fc")), 1_700_000_000_000, 2, 2)
PARTS = tuple(SnapshotPartRow("nightly", at, (SOURCE._replace(region=7 + at, snapshot="nightly"),)) for at in range(2))


async def read(catalogs: Catalogs) -> Content:
    """Reads as a daemon does that starts."""
    async with catalogs() as (_, catalog):
        return await catalog.read()


class ShapesContract:
    """Stands beside :class:`tests.contracts.catalog.CatalogContract`."""

    async def test_versions_and_clean_closes_are_found_again(self, catalogs: Catalogs) -> None:
        await written(catalogs, PutTable(TABLE), NewRegions((WHOLE, BESIDE)))
        found = await read(catalogs)
        assert (list(found.tables), list(found.regions)) == ([TABLE], [WHOLE, BESIDE])
        await written(catalogs, Owner(7, S.OPEN, "s2", 6, 95, 9, 4, 0), Owner(8, S.CLOSED, "", 0, 91, 0, 2, 1, "s1"))
        opened = WHOLE._replace(state=S.OPEN, server="s2", incarnation=6, token=95, sequence=9, version=4, clean=0)
        closed = BESIDE._replace(state=S.CLOSED, server="", incarnation=0, clean=1, former="s1")
        assert list((await read(catalogs)).regions) == [opened, closed]

    async def test_rows_of_each_small_kind_are_replaced_found_and_dropped(self, catalogs: Catalogs) -> None:
        rows: list[Small] = [
            HeirRow(9, (SOURCE, SOURCE._replace(region=8, start=b"\xff\x00", end=b"", snapshot="n/1"))),
            HeirRow(20, (SOURCE,)),
            PARENT,
            PARENT._replace(id=12, state=S.MERGED, heirs=(20,)),
            SNAPSHOT,
            SNAPSHOT._replace(name="other \u00fc", parts=0, regions=0, options=()),
            *PARTS,
            PublishedRow("acl", 2, b"\x00\xff"),
            PublishedRow("z", 1, b""),
        ]
        await written(catalogs, Put(PublishedRow("acl", 1, b"before")), *map(Put, reversed(rows)))
        assert list((await read(catalogs)).small) == rows, "by kind, and by name"
        drops = (
            Drop(HeirRow, (20,)),
            Drop(ParentRow, (7,)),
            Drop(SnapshotRow, ("nightly",)),
            Drop(SnapshotPartRow, ("nightly", 1)),
            Drop(PublishedRow, ("z",)),
            Drop(PublishedRow, ("nobody",)),
            Drop(HeirRow, (99,)),
        )
        await written(catalogs, *drops)
        assert list((await read(catalogs)).small) == [rows[0], rows[3], rows[5], rows[6], rows[8]]

    async def test_a_split_replaces_a_region_by_its_heirs_in_one_transaction(self, catalogs: Catalogs) -> None:
        await written(catalogs, PutTable(TABLE), NewRegions((WHOLE, BESIDE)))
        async with catalogs() as (store, _):
            await store.write([record(1)], (), [SPLIT])
        found = await read(catalogs)
        assert list(found.regions) == [LEFT, RIGHT, BESIDE]
        assert list(found.small) == [*SPLIT.sources, PARENT]
        assert not found.damaged

    async def test_a_merge_replaces_several_regions_by_one(self, catalogs: Catalogs) -> None:
        await written(catalogs, PutTable(TABLE), NewRegions((LEFT, RIGHT, BESIDE)))
        parents = tuple(
            ParentRow(one.id, one.table, one.start, one.end, S.MERGED, (30,), 1, 2) for one in (LEFT, RIGHT)
        )
        heir = RegionRow(30, "sales:t", b"", b"\xff\x00", S.CLOSED)
        both = HeirRow(30, tuple(Source(one.id, one.start, one.end, 1, 2) for one in (LEFT, RIGHT)))
        await written(catalogs, Reshape(parents, (heir,), (both,)))
        found = await read(catalogs)
        assert (list(found.regions), list(found.small)) == ([heir, BESIDE], [both, *parents])

    async def test_a_split_without_data_of_its_own_has_heirs_that_refer_to_nothing(self, catalogs: Catalogs) -> None:
        await written(catalogs, PutTable(TABLE), NewRegions((WHOLE,)), SPLIT._replace(sources=()))
        assert list((await read(catalogs)).small) == [PARENT]

    async def test_heirs_are_split_once_they_are_independent_and_their_parent_is_gone(self, catalogs: Catalogs) -> None:
        parent = ParentRow(21, "sales:t", b"k", b"\xff\x00", S.SPLIT, (40, 41), 99, 7)
        heirs = (
            RegionRow(40, "sales:t", b"k", b"m", S.CLOSED),
            RegionRow(41, "sales:t", b"m", b"\xff\x00", S.CLOSED),
        )
        again: tuple[Write, ...] = (
            Owner(21, S.OPEN, "s1", 5, 99, 7, 3),
            Drop(HeirRow, (20,)),
            Drop(HeirRow, (21,)),
            Drop(ParentRow, (7,)),
            Owner(21, S.CLOSED, "", 0, 99, 7, 3, 1),
            Reshape((parent,), heirs, (HeirRow(40, (Source(21, b"k", b"\xff\x00", 99, 7),)),)),
        )
        await written(catalogs, PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT, *again)
        separate = await read(catalogs)
        async with catalogs() as (store, _):
            await store.write((), (), [DropTable("sales:t")])
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT, *again])
        together = await read(catalogs)
        assert [one.id for one in separate.regions] == [20, 40, 41, 8]
        assert list(separate.regions) == list(together.regions)
        assert (
            list(separate.small)
            == list(together.small)
            == [HeirRow(40, (Source(21, b"k", b"\xff\x00", 99, 7),)), parent]
        )

    async def test_what_regions_refer_to_goes_with_them(self, catalogs: Catalogs) -> None:
        other = RegionRow(50, "u", b"", b"", S.CLOSED)
        kept = HeirRow(50, (SOURCE,))
        await written(catalogs, PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT)
        async with catalogs() as (store, _):
            await store.write((), (), [PutTable(TableRow("u", 2, 0)), NewRegions((other,)), Put(kept)])
        elsewhere = PARENT._replace(id=51, table="u", heirs=(50,))
        await written(catalogs, Put(elsewhere), DropRegions((21, 8)))
        found = await read(catalogs)
        assert [one.id for one in found.regions] == [20, 50]
        assert list(found.small) == [SPLIT.sources[0], kept, PARENT, elsewhere]
        await written(catalogs, DropTable("sales:t"))
        found = await read(catalogs)
        assert (list(found.regions), list(found.small)) == ([other], [kept, elsewhere]), "another table's stay"

    async def test_a_table_goes_with_the_parents_that_the_same_transaction_brought(self, catalogs: Catalogs) -> None:
        async with catalogs() as (store, catalog):
            await store.write((), (), [PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT, DropTable("sales:t")])
            found = await catalog.read()
        assert not any((found.tables, found.regions, found.small))

    async def test_what_heirs_refer_to_is_told_apart_in_one_term(self, catalogs: Catalogs) -> None:
        """The catalog knows it from its own writes, too, not from a read alone."""
        async with catalogs() as (store, catalog):
            await catalog.read()
            for row in (PutTable(TABLE), NewRegions((WHOLE, BESIDE)), SPLIT, Owner(20, S.OPEN, "s1", 5, 99, 7, 3)):
                await store.write((), (), [row])
            await store.write((), (), [Drop(HeirRow, (20,)), Owner(20, S.CLOSED, "", 0, 99, 7, 3, 1)])
            found = await catalog.read()
        assert [(one.id, one.state, one.clean) for one in found.regions] == [
            (20, S.CLOSED, 1), (21, S.CLOSED, 0), (8, S.OPEN, 0)]  # fmt: skip
        assert list(found.small) == [SPLIT.sources[1], PARENT]
