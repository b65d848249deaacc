"""Heirs of split and merged regions, snapshots, and the work that regent asks for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from examples.kv import content, regions
from examples.kv.content import Content, Entry
from examples.kv.regions import Lost
from examples.kv.service import NO, READ_ONLY, YES, KeyValueService, NotOwner, Suspended
from examples.kv.upkeep import Upkeep
from regent_agent.protocol import (
    COMMIT,
    DISCARD,
    FLUSH,
    SNAPSHOT_PREFIX,
    SPLIT_KEY,
    STAGE,
    UNSTAGE,
    Published,
    RegionLoad,
    Source,
)
from regent_agent.service import OpenedRegion
from tests.kit.deadlines import eventually
from tests.kit.examples.processes import error_of, region, service, take_over

KEYS = (b"a", b"c", b"m", b"x")


@pytest.fixture
def heirs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has no region written in the background."""
    monkeypatch.setattr(Upkeep, "begin", lambda _: None)


async def closed(kv: KeyValueService, opened: OpenedRegion, keys: Iterable[bytes] = KEYS) -> Source:
    """Opens a region, puts keys, and closes it; returns it as the source of others."""
    sequence = await kv.open(opened)
    for key in keys:
        await kv.put(opened.region, opened.token, key, key)
    await kv.close(opened)
    return Source(opened.region, opened.start, opened.end, opened.token, sequence)


def heir(token: int, *sources: Source, number: int = 2, start: bytes = b"", end: bytes = b"") -> OpenedRegion:
    opened = region(token, number, start, end)
    return OpenedRegion(opened.region, opened.table, start, end, token, 0, {}, sources)


async def held(kv: KeyValueService, opened: OpenedRegion) -> dict[bytes, int]:
    """Returns the keys of a region with their versions."""
    listed, _ = await kv.scan(opened.region, opened.token, b"", 1_000)
    return {key: entry.sequence for key, entry in listed}


def file_of(data: Path, opened: OpenedRegion) -> Content:
    return content.read(regions.file_of(data, opened.region, opened.token))


@pytest.mark.usefixtures("heirs_stay")
async def test_heirs_of_a_split_share_the_keys_and_their_files_refer_to_the_parent(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        parent = await closed(kv, region(5))
        low, high = heir(6, parent, number=2, end=b"m"), heir(7, parent, number=3, start=b"m")
        assert await kv.open(low) == await other.open(high) == 6, "numbers go on behind those of the parent"
        assert await held(kv, low) == {b"a": 2, b"c": 3}
        assert await held(other, high) == {b"m": 4, b"x": 5}
        assert file_of(tmp_path, high) == Content(6, {}, (parent,))
        assert isinstance(await error_of(kv.get(2, 6, b"m")), NotOwner)


@pytest.mark.usefixtures("heirs_stay")
async def test_the_heir_of_a_merge_has_the_keys_of_all_its_parents(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        parents = [
            await closed(kv, region(5, 1, end=b"m"), [b"a", b"c", b"a"]),
            await closed(kv, region(6, 2, start=b"m"), [b"m"]),
        ]
        opened = heir(7, *parents, number=3)
        assert await kv.open(opened) == 5, "above the numbers of all parents"
        assert await held(kv, opened) == {b"a": 4, b"c": 3, b"m": 2}
        assert await kv.compare_and_put(3, 7, b"m", b"v", 2) == 6


@pytest.mark.usefixtures("heirs_stay")
async def test_edits_of_an_heir_survive_its_server_and_a_close(tmp_path: Path) -> None:
    """The next owners read the sources again, and on top of them what the heir's own file and its log have."""
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        parent = await closed(kv, region(5))
        await kv.open(heir(6, parent, end=b"m"))
        await kv.put(2, 6, b"a", b"flushed")
        await kv.close(heir(6, parent, end=b"m"))
        await kv.open(heir(7, parent, end=b"m"))
        assert file_of(tmp_path, heir(7)).entries == {b"a": Entry(b"flushed", 7)}
        await kv.put(2, 7, b"b", b"in the log")
        await take_over(other, "a", heir(8, parent, end=b"m"))
        assert await held(other, heir(8)) == {b"a": 7, b"b": 9, b"c": 3}


async def test_an_heir_with_a_file_of_its_own_is_independent_and_its_sources_may_go(tmp_path: Path) -> None:
    independent: list[OpenedRegion] = []
    async with service(tmp_path, "a", independent=independent.append) as kv, service(tmp_path, "b") as other:
        opened = heir(6, await closed(kv, region(5)), end=b"m")
        await kv.open(opened)
        await eventually(lambda: independent == [opened])
        assert file_of(tmp_path, opened).sources == ()
        await kv.work(DISCARD, None, b"1")
        await kv.work(DISCARD, None, b"1")
        assert not (tmp_path / "regions/1").exists()
        await take_over(other, "a", heir(7, end=b"m"))
        assert await held(other, heir(7)) == {b"a": 2, b"c": 3}


@pytest.mark.usefixtures("heirs_stay")
async def test_an_heir_whose_file_refers_to_others_still_is_not_independent(tmp_path: Path) -> None:
    independent: list[OpenedRegion] = []
    async with service(tmp_path, "a", independent=independent.append) as kv:
        opened = heir(6, await closed(kv, region(5)))
        await kv.open(opened)
        await kv.put(2, 6, b"k", b"v")
        await kv.save()
        assert file_of(tmp_path, opened).entries == {b"k": Entry(b"v", 7)}
        with pytest.raises(
            Lost, match="region 2, token 6, ends at edit 7 and refers to 1 regions; expected 6 at least"
        ):
            await kv.open(heir(7, Source(2, b"", b"", 6, 6), number=3))
        assert not independent
        await kv.work(FLUSH, opened, b"")
        assert independent == [opened]


async def test_an_heir_says_again_that_it_is_independent_where_the_daemon_does_not_know(tmp_path: Path) -> None:
    independent: list[OpenedRegion] = []
    async with service(tmp_path, "a") as kv, service(tmp_path, "b", independent=independent.append) as other:
        parent = await closed(kv, region(5))
        await kv.open(heir(6, parent))
        await kv.work(FLUSH, heir(6, parent), b"")
        await take_over(other, "a", heir(7, parent))
        await eventually(lambda: independent == [heir(7, parent)])


async def test_a_server_dies_in_the_middle_of_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, independent = regions.save, list[OpenedRegion]()
    async with service(tmp_path, "a", independent=independent.append) as kv, service(tmp_path, "b") as other:
        parent = await closed(kv, region(5))

        def torn(data: Path, number: int, token: int, saved: Content) -> None:
            if saved.sources:
                return save(data, number, token, saved)
            regions.file_of(data, number, token).with_suffix(".tmp").write_bytes(b"torn")
            raise OSError("killed")

        monkeypatch.setattr(regions, "save", torn)
        await kv.open(heir(6, parent))
        await eventually(kv._log.failed.done)
        assert not independent
        monkeypatch.setattr(regions, "save", save)
        await take_over(other, "a", heir(7, parent))
        assert await held(other, heir(7)) == {b"a": 2, b"c": 3, b"m": 4, b"x": 5}


async def test_a_source_that_is_missing_or_older_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        parent = await closed(kv, region(5))
        with pytest.raises(Lost, match=r"00000000000000000004\.sqlite is missing, which other regions refer to"):
            await kv.open(heir(6, Source(1, b"", b"", 4, 1)))
        with pytest.raises(Lost, match="region 1, token 5, ends at edit 5 and refers to 0 regions; expected 6"):
            await kv.open(heir(6, Source(1, b"", b"", 5, 6)))
        await kv.open(heir(7, parent))
        assert len(await held(kv, heir(7))) == 4, "a failed open leaves nothing behind"


async def test_a_snapshot_has_what_was_put_before_it_and_nothing_else(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        await kv.put(1, 5, b"a", b"before")
        await kv.work(STAGE, region(5), b"ns:nightly/1")
        await kv.work(STAGE, region(5), b"ns:nightly/1")
        await kv.put(1, 5, b"a", b"after")
        await kv.put(1, 5, b"b", b"after")
        await kv.close(region(5))
        await kv.work(DISCARD, None, b"1")
        clone = heir(9, Source(1, b"", b"", 8, 1, "ns:nightly/1"))
        await other.open(clone)
        assert await other.get(2, 9, b"a") == Entry(b"before", 2)
        assert await other.get(2, 9, b"b") is None


async def test_a_clone_has_the_latest_copy_up_to_the_token_of_its_source(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        for token, value in ((5, b"first"), (6, b"second")):
            await kv.open(region(token))
            await kv.put(1, token, b"a", value)
            await kv.work(STAGE, region(token), b"s")
            await kv.close(region(token))
        for token, number, value in ((5, 2, b"first"), (7, 3, b"second")):
            clone = heir(9, Source(1, b"", b"", token, 1, "s"), number=number)
            await other.open(clone)
            found = await other.get(number, 9, b"a")
            assert found is not None
            assert found.value == value


async def test_a_snapshot_of_an_heir_refers_to_no_other_region(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        opened = heir(6, await closed(kv, region(5)), end=b"m")
        await kv.open(opened)
        await kv.work(STAGE, opened, b"s")
        await kv.work(DISCARD, None, b"1")
        clone = heir(9, Source(2, b"", b"m", 6, 6, "s"), number=3, end=b"m")
        await kv.open(clone)
        assert await held(kv, clone) == {b"a": 2, b"c": 3}


async def test_a_snapshot_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        for number in (1, 2):
            await kv.open(region(5, number))
            await kv.work(STAGE, region(5, number), b"..")
        assert len(list((tmp_path / "snapshots").rglob("*.sqlite"))) == 2
        for number in (1, 2, 2):
            await kv.work(UNSTAGE, region(5, number), b"..")
        assert not list((tmp_path / "snapshots").iterdir())


async def test_a_snapshot_is_deleted_whole(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.work(DISCARD, None, SNAPSHOT_PREFIX + b"old")
        for number in (1, 2):
            await kv.open(region(5, number))
            for name in (b"old", b"new"):
                await kv.work(STAGE, region(5, number), name)
        for _ in range(2):
            await kv.work(DISCARD, None, SNAPSHOT_PREFIX + b"old")
        assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["new"]


async def test_a_late_discard_of_a_snapshot_leaves_the_next_one_of_its_name_whole(tmp_path: Path) -> None:
    """A folder with the name alone is that of a regent before ids, and is found as before."""
    former, later, without = b"s 7-1764435600000", b"s 12-1764435700000", b"s"
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        await kv.put(1, 5, b"a", b"v")
        await kv.work(STAGE, region(5), former)
        await kv.work(DISCARD, None, SNAPSHOT_PREFIX + former)
        for identity in (later, without):
            await kv.work(STAGE, region(5), identity)
        await kv.work(DISCARD, None, SNAPSHOT_PREFIX + former)
        await kv.work(UNSTAGE, region(5), former)
        for number, identity in enumerate((later, without), 2):
            clone = heir(9, Source(1, b"", b"", 5, 1, identity.decode()), number=number)
            await kv.open(clone)
            assert await kv.get(number, 9, b"a") == Entry(b"v", 2)
        await kv.work(DISCARD, None, SNAPSHOT_PREFIX + later)
        assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["s"]


async def test_the_key_that_halves_a_region_has_keys_on_both_sides(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        for key, median in ((b"m", b""), (b"a", b"m"), (b"b", b"b"), (b"c", b"c")):
            await kv.put(1, 5, key, b"v")
            assert await kv.work(SPLIT_KEY, region(5), b"") == median


async def test_the_load_of_a_region_has_its_requests_and_the_bytes_of_its_data(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        await kv.put_many(1, 5, [(b"a", bytes(10)), (b"b", bytes(10)), (b"a", bytes(20))])
        await kv.get(1, 5, b"a")
        await kv.scan(1, 5, b"", 10)
        assert kv.loads() == [RegionLoad(1, reads=2, writes=3, size_bytes=32, files=1)]


async def test_work_is_refused_where_it_could_do_harm(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        with pytest.raises(ValueError, match="region 1 is open here"):
            await kv.work(DISCARD, None, b"1")
        with pytest.raises(NotOwner):
            await kv.work(STAGE, region(4), b"s")
        with pytest.raises(ValueError, match="the work 'x' is none of"):
            await kv.work("x", region(5), b"")


async def test_a_value_that_is_published_makes_the_service_read_only(tmp_path: Path) -> None:
    published: dict[str, Published] = {}
    async with service(tmp_path, "a", published=lambda: published) as kv:
        await kv.open(region(5))
        for data in (YES, NO):
            value = Published(READ_ONLY, 1, data)
            await kv.work(STAGE, None, msgspec.msgpack.encode(value))
            await kv.work(COMMIT, None, msgspec.msgpack.encode(value))
            published[READ_ONLY] = value
            error = await error_of(kv.put(1, 5, b"k", b"v"))
            assert isinstance(error, Suspended if data == YES else type(None))
        with pytest.raises(ValueError, match=r"kv\.read_only: b'perhaps', expected b'1' or b'0'"):
            await kv.work(STAGE, None, msgspec.msgpack.encode(Published(READ_ONLY, 2, b"perhaps")))


async def test_files_of_servers_before_have_no_sources(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await closed(kv, region(5))
        path = regions.file_of(tmp_path, 1, 5)
        with closing(sqlite3.connect(path)) as db:
            db.execute("DROP TABLE source")
        await kv.open(region(6))
        assert len(await held(kv, region(6))) == 4
