"""What splits, merges and snapshots left is entered by the next term; what of it cannot be read is left out alone."""

from __future__ import annotations

import logging

import pytest

from controller.regions.procedures import publish, snapshots
from controller.regions.procedures.discard import due
from controller.regions.procedures.messages import SNAPSHOT_TASK, SnapshotTask
from controller.regions.procedures.publish import PUBLISH_TASK, PublishTask
from metadata_store.catalog.rows import (
    HeirRow,
    ParentRow,
    PublishedRow,
    Put,
    RegionRow,
    Reshape,
    ServerRow,
    Small,
    SnapshotPartRow,
    SnapshotRow,
    Source,
    TableRow,
    flat,
)
from state_machines.regions.references import snapshot_problem
from state_machines.regions.states import RegionState, TableKind, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import ended, procedure, running, until, virtual

S = RegionState
WHOLE = RegionRow(7, "t", b"", b"m", S.CLOSED, "", 0, 90, 4, 3, 1)
BESIDE = RegionRow(8, "t", b"m", b"", S.OPEN, "a", 1, 91)
SOURCE = Source(7, b"", b"m", 90, 4)
PARENT = ParentRow(7, "t", b"", b"m", S.SPLIT, (20, 21), 90, 4)
HEIRS = (RegionRow(20, "t", b"", b"k", S.CLOSED), RegionRow(21, "t", b"k", b"m", S.CLOSED))
SPLIT = Reshape((PARENT,), HEIRS, (HeirRow(20, (SOURCE,)), HeirRow(21, (SOURCE,))))
SNAPSHOT = SnapshotRow("nightly", "t", 2, (), 5, 2, 2)
PARTS = tuple(SnapshotPartRow("nightly", at, (SOURCE._replace(region=7 + at),)) for at in range(2))
PUBLISHED = PublishedRow("acl", 3, b"all")


def a_disk(*small: Small) -> RegionDisk:
    """Returns a store in which a table has been split."""
    disk = RegionDisk()
    disk.namespaces.add("default")
    disk.tables["t"] = TableRow("t", TableKind.USER, TableState.ENABLED, (), 3)
    disk.regions = {one.id: one for one in (WHOLE, BESIDE)}
    disk.servers["a", 1] = ServerRow("a", 1, "a:1")
    for write in flat([SPLIT, *map(Put, small)]):
        disk.put(write)
    return disk


@virtual
async def test_a_term_knows_what_the_terms_before_have_left() -> None:
    disk = a_disk(SNAPSHOT, *PARTS, PUBLISHED)
    async with running(disk) as term:
        model = term.env.model
        assert [one.id for one in model.tables["t"].regions] == [20, 21, 8]
        assert model.tables["t"].version == 3
        assert model.parents == {7: PARENT}
        assert model.sources == {20: (SOURCE,), 21: (SOURCE,)}
        assert model.snapshots["nightly"].row == SNAPSHOT
        assert model.snapshots["nightly"].parts == tuple(one.regions for one in PARTS)
        assert model.published == {"acl": PUBLISHED}
        assert not model.damages.count
        assert not due(model)


@virtual
async def test_a_region_that_would_open_without_its_data_is_left_out_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    disk = a_disk(HeirRow(20, ()))
    async with running(disk) as term:
        model = term.env.model
        assert [one.id for one in model.tables["t"].regions] == [21, 8]
        assert (20 in model.ids, list(model.sources)) == (True, [21])
        [gap] = model.damages.of_keys("t")
        assert (gap.start, gap.end) == (b"", b"k")
        assert model.damages.of_region(20) == (
            "region 20: sources: what it refers to cannot be read: its data begins as that of others"
        )
        assert model.parents == {7: PARENT}
        del model.sources[21]
        assert not due(model), "no parent is discarded until it is known what refers to it"
    assert "sources is (): it is no list of regions" in caplog.text


@virtual
async def test_a_damaged_parent_is_named_and_its_heirs_are_opened(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    disk = a_disk(PARENT._replace(state=S.OPEN))
    async with running(disk) as term:
        model = term.env.model
        assert [one.id for one in model.tables["t"].regions] == [20, 21, 8]
        assert (model.parents, list(model.sources)) == ({}, [20, 21])
        assert [(one.name, one.field) for one in model.damages.rows] == [("#7", "state")]
        assert not model.damages.of_table("t"), "nothing of the table itself is left out"
    assert (ParentRow, (7,)) in disk.small, "it stays in the store"


@pytest.mark.parametrize(
    ("small", "why"),
    [
        ((SNAPSHOT._replace(kind=99), *PARTS), "kind is 99: expected one of"),
        ((SNAPSHOT, PARTS[0]), "parts is 2: it has 1 parts that can be read: delete it, and make another one"),
        ((SNAPSHOT, PARTS[1]), "parts is 2: it has 1 parts that can be read"),
        ((SNAPSHOT, PARTS[0], PARTS[1]._replace(regions=())), "regions is (): it is no list of regions"),
    ],
)
def test_a_damaged_snapshot_is_left_out_alone(small: tuple[Small, ...], why: str) -> None:
    @virtual
    async def story() -> None:
        disk = a_disk(*small, SNAPSHOT._replace(name="whole", parts=0))
        async with running(disk) as term:
            model = term.env.model
            assert list(model.snapshots) == ["whole"]
            assert any(why in str(one) for one in model.damages.rows), model.damages.rows
            assert [one.id for one in model.tables["t"].regions] == [20, 21, 8]
            problem = snapshot_problem(model, "nightly", model.tables["t"]) or ""
            assert problem.startswith("snapshot 'nightly' is left out ("), "its rows may be restored from a copy"
            await procedure(term, snapshots.DELETE, SNAPSHOT_TASK.encode(SnapshotTask("nightly")))
            await until(lambda: not model.damages.rows)
            assert not model.damages.count, "the status is sound again, and parents are discarded"
            assert [one for one in disk.small if one[1][0] == "nightly"] == []
            assert not model.drafts

    story()


@virtual
async def test_a_damaged_value_that_is_published_again_is_damaged_no_more() -> None:
    async with running(a_disk(PUBLISHED._replace(number=-1), PARENT._replace(id=9, state=99))) as term:
        damages = term.env.model.damages
        assert [one.name for one in damages.rows] == ["#9", "acl"]
        term.env.model.servers.clear()  # none has to prepare it
        await ended(term, procedure(term, publish.NAME, PUBLISH_TASK.encode(PublishTask("acl", b"some"))))
        assert [one.name for one in damages.rows] == ["#9"]
        assert damages.count.total() == 1
