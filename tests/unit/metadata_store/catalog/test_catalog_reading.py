"""A catalog in ZooKeeper is read as a whole: all buckets, in the order of keys, beside znodes of other clients."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from metadata_store.catalog import zookeeper_reading
from metadata_store.catalog.rows import DropRegions, MarkRow, NewRegions, PutMark, PutServer, RegionRow, ServerRow
from metadata_store.catalog.znodes import BUCKET_IDS
from metadata_store.port import ANY_VERSION
from tests.contracts.catalog_zookeeper import ROOT, both, regions
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import Session, session


@pytest.fixture
async def s() -> AsyncIterator[Session]:
    async with session(MemoryBackend()) as found:
        yield found


@pytest.mark.parametrize("buckets", [32, 33, 70])
async def test_more_buckets_than_are_listed_together_are_all_read(s: Session, buckets: int) -> None:
    assert zookeeper_reading.LISTED_TOGETHER == 32
    made = tuple(one for n in range(buckets) for one in regions(2, first=n * BUCKET_IDS + 5))
    store, catalog = await both(s)
    await store.write((), (), [NewRegions(made)])
    assert (await catalog.read()).regions == list(made)
    await store.write((), (), [DropRegions(tuple(one.id for one in made[:-1]))])
    assert await s.names(f"{ROOT}/regions") == [f"{buckets - 1:07}"], "the buckets that are empty are gone"


async def test_regions_come_by_table_and_start_key_whatever_their_ids(s: Session) -> None:
    """A region that was split has a higher id than the one behind it."""
    made = [
        RegionRow(9, "a", b"", b"m", 0),
        RegionRow(3, "a", b"m", b"", 0),
        RegionRow(2, "b", b"", b"k", 0),
        RegionRow(1, "b", b"k", b"", 0),
    ]
    store, catalog = await both(s)
    await store.write((), (), [NewRegions(tuple(reversed(made)))])
    assert (await catalog.read()).regions == made


async def test_a_bucket_stays_until_the_last_znode_of_others_and_the_last_damaged_region_are_gone(s: Session) -> None:
    store, catalog = await both(s)
    await store.write((), (), [NewRegions(regions(4))])
    strange = ("notes", "more", "1")
    for name in strange:
        await s.zk.create(f"{ROOT}/regions/0000000/{name}", b"by hand")
    for name in ("7", "00000001"):
        await s.zk.create(f"{ROOT}/regions/{name}", b"by hand")
    for pid in (1, 2):
        await s.zk.set(f"{ROOT}/regions/0000000/{pid:010}", b"damaged", ANY_VERSION)
    found = await catalog.read()
    assert (found.regions, [one.region for one in found.damaged]) == (list(regions(2, first=3)), [1, 2])
    await store.write((), (), [DropRegions((3, 4))])
    await store.write((), (), [NewRegions(regions(1, first=5))])
    await store.write((), (), [DropRegions((5,))])
    assert await s.names(f"{ROOT}/regions/0000000") == ["0000000001", "0000000002", *sorted(strange)]
    for name in (*strange, "0000000001", "0000000002"):
        await s.zk.delete(f"{ROOT}/regions/0000000/{name}", ANY_VERSION)
    await catalog.read()
    await store.write((), (), [NewRegions(regions(1))])
    await store.write((), (), [DropRegions((1,))])
    assert await s.names(f"{ROOT}/regions") == ["00000001", "7"]
    await store.write((), (), [NewRegions(regions(1, first=7 * BUCKET_IDS))])
    assert await s.names(f"{ROOT}/regions") == ["00000001", "0000007", "7"], "7 is no bucket"


async def test_damage_is_named_by_the_name_that_operators_know(s: Session) -> None:
    store, catalog = await both(s)
    server, mark = ServerRow("a/b, c", 5, "h:1"), MarkRow("cordon", "a/b, c")
    await store.write((), (), [PutServer(server), PutMark(mark)])
    for folder in ("servers", "marks"):
        [name] = await s.names(f"{ROOT}/{folder}")
        await s.zk.set(f"{ROOT}/{folder}/{name}", b"damaged", ANY_VERSION)
    found = await catalog.read()
    assert sorted(one.name for one in found.damaged) == ["a/b, c,5", "cordon of a/b, c"]
    assert not found.servers
    assert not found.marks
