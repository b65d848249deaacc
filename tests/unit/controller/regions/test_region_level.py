"""The level of a store: where it begins, what it keeps from being written, how it is raised, and who refuses it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from controller.http.documents import ViewRefused
from controller.regions.domain import RegionsDomain
from controller.regions.levels import OF_ROWS
from controller.regions.operator.requests import Change, caller_of, start
from controller.regions.operator.upgrade import UpgradeView, lacking_features
from controller.regions.procedures.balance import problem_of
from controller.regions.procedures.every import KINDS as ALL_KINDS
from controller.regions.procedures.servers import MARK_TASK, UNMARK, MarkTask
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import (
    NAMES as SMALL_NAMES,
)
from metadata_store.catalog.rows import (
    HeirRow,
    MarkRow,
    ParentRow,
    PublishedRow,
    Put,
    PutMark,
    PutTable,
    Small,
    SnapshotPartRow,
    SnapshotRow,
    Source,
    TableRow,
)
from metadata_store.records.claims import Holder
from metadata_store.records.port import StoreFailed
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.balancing.checks import Bar
from state_machines.regions.levels import KINDS, NEWEST
from state_machines.regions.marks import STORE, MarkKind
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.shapes import Inheriting
from tests.kit.regions.term import stage
from tests.kit.regions.world import Server, creates, ended, procedure, running, serving, virtual
from tests.unit.metadata_store.catalog.test_sqlite_versions import FIRST, a_file

LEVEL = MarkKind.LEVEL
AT = (LEVEL, STORE)


class Former(MemoryRegionStore):
    """A store of the first level, as an earlier release has left it in ZooKeeper. ``writes``: rows of each write."""

    level = 1

    def __init__(self, disk: RegionDisk, above: int = 0) -> None:
        super().__init__(disk, above)
        self.writes: list[list[object]] = []

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        self.writes.append(found := list(rows))
        await super().write(puts, deletes, found)


class Domain(NamedTuple):
    """What the view needs of a domain."""

    term: RegionsTerm

    def suspended(self) -> str:
        return ""


def of_before(*rows: object) -> RegionDisk:
    """Returns a disk with a table and other rows, which names no level."""
    disk = RegionDisk()
    for one in (PutTable(TableRow("t", 2, 0)), *rows):
        disk.put(one)
    return disk


def upgrades(term: RegionsTerm) -> UpgradeView:
    return UpgradeView(cast("RegionsDomain", Domain(term)))


def levels_in(store: Former) -> list[list[object]]:
    """Returns the writes that have a level."""
    return [one for one in store.writes if any(isinstance(row, PutMark) and row.row.kind == LEVEL for row in one)]


def test_each_kind_of_procedure_and_of_rows_has_a_level() -> None:
    assert set(KINDS) == {one.name for one in ALL_KINDS}
    assert set(OF_ROWS) == set(SMALL_NAMES)


@virtual
async def test_a_new_store_has_the_newest_level_in_the_write_that_has_its_lease() -> None:
    disk, stores = RegionDisk(), list[Former]()

    def opened(on: RegionDisk) -> Former:
        stores.append(Former(on))
        return stores[-1]

    for _ in range(2):
        async with running(disk, store=opened) as term:
            assert term.env.model.marks.level == NEWEST
    [write] = levels_in(stores[0])
    assert {row.row.kind for row in write if isinstance(row, PutMark)} == {"regime", "level"}
    assert not levels_in(stores[1]), "the second daemon reads it"


SOURCE = Source(9, b"", b"", 5, 1)
FORMS: list[Small] = [
    HeirRow(1, (SOURCE,)),
    ParentRow(9, "t", b"", b"", 10, (1, 2), 3, 4),
    ParentRow(9, "t", b"", b"", -1, (1, 2), 3, 4),
    SnapshotRow("s", "t", 2, (), 1, 1, 1),
    SnapshotPartRow("s", 0, (SOURCE,)),
    PublishedRow("acl", 1, b"all"),
]


@pytest.mark.parametrize("row", FORMS, ids=repr)
def test_a_store_that_has_rows_of_a_level_has_that_level(row: Small) -> None:
    @virtual
    async def story() -> None:
        disk = of_before(Put(row))
        async with running(disk, store=Former) as term:
            assert term.env.model.marks.level == 2
        assert disk.marks[AT].value == "2"

    story()


@virtual
async def test_a_store_whose_tables_were_changed_has_the_second_level() -> None:
    async with running(of_before(PutTable(TableRow("t", 2, 0, (), 3))), store=Former) as term:
        assert term.env.model.marks.level == 2


@pytest.mark.seed("S1-18")
@virtual
async def test_at_the_first_level_nothing_begins_that_an_older_daemon_could_not_go_on_with() -> None:
    disk = of_before()
    async with running(disk, store=Former) as term:
        assert term.env.model.marks.level == 1
        for kind, needs in KINDS.items():
            if needs == 1:
                continue
            for dry_run in (False, True):
                change = Change(dry_run=dry_run)
                with pytest.raises(ViewRefused, match=f"{kind} needs level 2 of the store, and it has 1") as found:
                    await start(term, kind, b"", caller_of(change, "uid 7"), change, "it")
                assert "'regent regions upgrade'" in (found.value.remedy or "")
        assert "split needs level 2" in term.growth.judge.of_domain()
        problem = problem_of(term.env)
        assert problem is not None
        assert (problem.bar, "balance needs level 2" in str(problem)) == (Bar.LEVEL, True)
        async with serving(Server(term, "a")):  # what the first level has goes on
            await ended(term, creates(term, "u", 2))
    assert not disk.small
    assert disk.marks[AT].value == "1"


@pytest.mark.seed("S1-18", "S1-97")
@virtual
async def test_the_level_is_raised_by_one_write_and_stays_for_the_next_daemon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    disk, stores = of_before(), list[Former]()

    def opened(on: RegionDisk) -> Former:
        stores.append(Former(on))
        return stores[-1]

    async with running(disk, store=opened) as term:
        dry = await upgrades(term).upgrade(Change(dry_run=True), "uid 7")
        assert (dry.pid, dry.detail) == (0, "level of the store: 1, then 2; it never falls again")
        assert term.env.model.marks.level == 1
        stores[0].writes.clear()
        begun = await upgrades(term).upgrade(Change(reason="all are new", nonce="n"), "uid 7")
        assert (await term.engine.result(begun.pid)).state is State.SUCCESS
        assert levels_in(stores[0]) == [[PutMark(MarkRow(LEVEL, STORE, "2", 0, "uid 7", "all are new"))]]
        again = await upgrades(term).upgrade(Change(reason="all are new", nonce="n"), "uid 7")
        assert again.pid == begun.pid, "a request that is repeated"
        with pytest.raises(ViewRefused, match="the store has level 2, the highest one that this daemon knows"):
            await upgrades(term).upgrade(Change(), "uid 7")
        assert "level" not in term.growth.judge.of_domain()
    assert "the store has level 2, and had 1, by uid 7" in caplog.text
    assert "the store has level 1, and this daemon knows 2" in caplog.text
    async with running(disk, store=Former) as term:
        assert term.env.model.marks.level == 2


@pytest.mark.seed("S1-18")
@virtual
async def test_a_daemon_that_does_not_know_the_level_keeps_it_from_being_raised() -> None:
    others = [Holder("old-host", 7), Holder("new-host", 8, "", NEWEST)]

    async def daemons() -> Sequence[Holder]:
        return others

    async with running(of_before(), store=Former) as term:
        term.daemons = daemons
        for dry_run in (True, False):
            with pytest.raises(
                ViewRefused, match="level 2 is not known to daemons of this store: the daemon on old-host"
            ):
                await upgrades(term).upgrade(Change(dry_run=dry_run), "uid 7")
        assert term.env.model.marks.level == 1
        del others[0]
        begun = await upgrades(term).upgrade(Change(), "uid 7")
        assert (await term.engine.result(begun.pid)).state is State.SUCCESS
        assert term.env.model.marks.level == 2


@pytest.mark.seed("S1-18")
@virtual
async def test_a_store_of_a_later_level_is_refused_and_stays_as_it_is() -> None:
    disk = of_before(PutMark(MarkRow(LEVEL, STORE, "3")))
    store = Former(disk)
    with pytest.raises(StoreFailed, match="the store has level 3, and this daemon knows levels up to 2"):
        async with running(disk, store=lambda _: store):
            pass
    assert store.writes == []


@virtual
async def test_a_damaged_level_stays_as_it_is_until_it_is_raised() -> None:
    disk = of_before(PutMark(MarkRow(LEVEL, STORE, "two")))
    async with running(disk, store=Former) as term:
        assert term.env.model.marks.level == 1
        assert [one.name for one in term.env.model.damages.rows] == ["level of store"]
        assert disk.marks[AT].value == "two"
        begun = await upgrades(term).upgrade(Change(), "uid 7")
        assert (await term.engine.result(begun.pid)).state is State.SUCCESS
    assert disk.marks[AT].value == "2"


@pytest.mark.seed("S1-18")
@virtual
async def test_no_removal_of_a_mark_lowers_the_level() -> None:
    disk = RegionDisk()
    async with running(disk, store=Former) as term:
        record = await term.engine.result(await procedure(term, UNMARK, MARK_TASK.encode(MarkTask(LEVEL, STORE))))
        assert (record.state is State.SUCCESS, "never falls" in record.error) == (False, True)
        assert term.env.model.marks.level == NEWEST
    assert disk.marks[AT].value == str(NEWEST)


@pytest.mark.seed("S3-19")
@virtual
async def test_features_that_servers_lack_are_named_by_server() -> None:
    async with running(RegionDisk()) as term:
        old, new = [Server(term, f"old-{number:02}") for number in range(22)], Inheriting(term, "new")
        new.features = ("inherit", "publish", "flush", "split_key", "discard", "stage", "unstage", "commit")
        async with serving(new, *old[:1]):
            lacks = "commit, discard, flush, inherit, publish, split_key, stage, unstage"
            assert lacking_features(term.env.model) == [f"old-00,1: {lacks}"]
            async with serving(*old[1:]):
                assert lacking_features(term.env.model)[-1] == "2 more servers: see 'regent servers list'"


@pytest.mark.seed("S1-18")
async def test_a_file_of_the_first_release_has_the_level_of_the_form_that_it_got(tmp_path: Path) -> None:
    file = a_file(tmp_path / "regions.db", *FIRST)
    async with stage(tmp_path) as found:
        assert found.term.env.model.marks.level == 2
    a_file(file, "UPDATE mark SET value = '3' WHERE kind = 'level'")
    with pytest.raises(StoreFailed, match="the store has level 3, and this daemon knows levels up to 2"):
        async with stage(tmp_path):
            pass
    a_file(file, "UPDATE mark SET value = '2' WHERE kind = 'level'")
    async with stage(tmp_path) as found:
        assert found.term.env.model.marks.level == 2
