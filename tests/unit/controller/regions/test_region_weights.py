"""A weight that means nothing comes neither from operators, nor from a store, to where regions are placed by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from controller.http.documents import Invalid, NotFound, ViewRefused
from controller.regions.operator.marks import MarkRemoval, MarkRequest
from controller.regions.procedures.servers import MARK, MARK_TASK, MarkTask
from controller.regions.term import RegionsTerm
from metadata_store.catalog.judging import sound
from metadata_store.catalog.rows import MarkRow
from state_machines.procedures.states import State
from state_machines.regions.damage import Damage
from state_machines.regions.levels import OLDEST
from state_machines.regions.marks import STORE, Mark, MarkKind
from tests.kit.regions.balances import balances, counts, lopsided, result
from tests.kit.regions.term import view_of
from tests.kit.regions.world import Server, ended, procedure, regions_of, serving, virtual


class Shown(NamedTuple):
    """A domain, as a view sees it."""

    term: RegionsTerm


@pytest.mark.parametrize("value", ["1e400", "", "0", "-1", "nan", "1000.1", "2.5\n"])
def test_a_row_with_a_weight_that_is_none_is_left_out_and_named(value: str) -> None:
    damaged: list[Damage] = []
    assert not sound(MarkRow(MarkKind.WEIGHT, "a", value), "a row", damaged)
    assert [(one.field, one.why) for one in damaged] == [("value", "it is no weight from 0.1 to 1000")]
    assert sound(MarkRow(MarkKind.WEIGHT, "a", "2.5"), "a row", damaged)


@virtual
async def test_a_mark_that_no_daemon_could_read_again_is_not_stored() -> None:
    async with lopsided() as (term, _):
        task = MarkTask(MarkKind.WEIGHT, "a", "1e400")
        record = await result(term, await procedure(term, MARK, MARK_TASK.encode(task)))
        assert record.error == "the mark could not be read again: its value: it is no weight from 0.1 to 1000"
        assert term.env.model.marks.weights == {}
        await result(term, await balances(term))


@virtual
async def test_a_weight_belongs_to_a_server_alone_and_to_a_store_of_its_level() -> None:
    async with lopsided() as (term, _):
        marks = view_of(Shown(term)).marks
        asked: list[dict[str, Any]] = [
            {"kind": "pin", "subject": str(regions_of(term)[0].id), "server": "a", "weight": 2},
            {"kind": "cordon", "subject": "a", "weight": 2},
            {"kind": "weight", "subject": "a"},
        ]
        for one in asked:
            with pytest.raises(Invalid, match="a weight needs its number, and no other mark has one"):
                await marks.mark(MarkRequest(**one), "ops")
        with pytest.raises(Invalid, match=r"weight 0\.05 is out of range"):
            await marks.mark(MarkRequest(kind="weight", subject="a", weight=0.05), "ops")
        term.env.model.marks.put(Mark(MarkKind.LEVEL, STORE, str(OLDEST)))
        with pytest.raises(ViewRefused, match="weight needs level 2 of the store"):
            await marks.mark(MarkRequest(kind="weight", subject="a", weight=2), "ops")
        assert [one for one in term.env.model.marks if one.kind is not MarkKind.LEVEL] == []


@virtual
async def test_a_weight_may_come_before_its_server_and_counts_once_that_is_there() -> None:
    async with lopsided() as (term, _):
        marks = view_of(Shown(term)).marks
        ahead = "no server d is known: the weight counts once one comes, and 'regent servers weight d 1' removes it"
        planned = await marks.mark(MarkRequest(kind="weight", subject="d", weight=3, dry_run=True), "ops")
        assert planned.detail == f"weight of d; {ahead}"
        record = await result(term, (await marks.mark(MarkRequest(kind="weight", subject="d", weight=3), "ops")).pid)
        assert (record.state, record.result.decode()) == (State.SUCCESS, ahead)
        assert [(one.kind, one.subject, one.weight) for one in marks.listed()] == [("weight", "d", 3)]
        async with serving(Server(term, "d")):
            assert await ended(term, balances(term))
            assert counts(term)["d"] == 4
            known = MarkRequest(kind="weight", subject="d", weight=2)
            assert not (await result(term, (await marks.mark(known, "ops")).pid)).result, "it is known by now"
        removal = MarkRemoval(kind="weight", subject="d")
        await result(term, (await marks.unmark(removal, "ops")).pid)
        assert marks.listed() == []


@virtual
async def test_a_weight_is_for_no_name_that_no_server_can_have_and_other_marks_come_after_their_server() -> None:
    async with lopsided() as (term, _):
        marks = view_of(Shown(term)).marks
        with pytest.raises(Invalid, match="takes 300 bytes in the path of a znode, at most 255 fit"):
            await marks.mark(MarkRequest(kind="weight", subject="\u00e9" * 50, weight=2), "ops")
        for one in (MarkRequest(kind="weight", subject="d,1", weight=2), MarkRequest(kind="cordon", subject="d")):
            with pytest.raises(NotFound, match="is not known"):
                await marks.mark(one, "ops")
        assert marks.listed() == []
