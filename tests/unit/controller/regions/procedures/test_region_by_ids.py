"""Which of the regions that an operator names are left out, in which batches the others go, and what they weigh."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple, cast

import pytest

from controller.procedures.kinds import Kind
from controller.procedures.writes import CHANGE_BYTES_MAX
from controller.regions.environment import RegionsEnv
from controller.regions.operator.progress import locks_beside
from controller.regions.operator.region_changes import region_problem
from controller.regions.procedures import by_ids, many
from controller.regions.procedures.by_ids import BY_IDS, ByIds
from controller.regions.procedures.every import NAMES
from controller.regions.procedures.messages import MANY, Many
from state_machines.procedures.outcome import Children, Next
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members
from state_machines.regions.choosing import IDS_MAX, SHOWN_MAX, Cause, LeftOut, added, in_words, left_out, missed
from state_machines.regions.damage import Damages
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.states import REPLACED, WANTED, RegionState, ServerState, TableKind, TableState

S = RegionState
HIGHEST: Final = (1 << 63) - 1


def server(state: ServerState | None) -> Server | None:
    return None if state is None else Server("a", 1, "a:1", "", state, {})


def region_of(state: RegionState, owner: ServerState | None, table: TableState, pid: int = 0) -> Region:
    return Region(1, Table("t", TableKind.USER, table, {}, []), b"", b"", state, server(owner), pid=pid)


def env_of(model: Any, ending: object = None) -> RegionsEnv:
    endings: Any = {} if ending is None else SimpleNamespace(of=lambda _: ending)
    return cast("RegionsEnv", SimpleNamespace(model=model, endings=endings, cooldown=None))


CASES: Final = list(
    product([one for one in S if one not in REPLACED], [None, *ServerState], TableState, ["assign", "unassign"])
)


@pytest.mark.parametrize(("state", "owner", "table", "act"), CASES)
def test_a_region_of_a_file_is_left_out_where_the_request_for_it_alone_is_refused(
    state: RegionState, owner: ServerState | None, table: TableState, act: Literal["assign", "unassign"]
) -> None:
    region = region_of(state, owner, table)
    alone = region_problem(env_of(SimpleNamespace(transit={}, damages=Damages())), region, act, "")
    assert (left_out(region, opens=act == "assign") is None) is (alone is None), alone


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("state", [S.OPEN, S.CLOSED, S.OFFLINE, S.CLOSING])
def test_a_region_that_a_procedure_has_is_left_out_unless_it_is_as_it_is_to_be(state: RegionState, opens: bool) -> None:
    owner = ServerState.ONLINE if state in (S.OPEN, S.CLOSING) else None
    region = region_of(state, owner, TableState.ENABLED, pid=7)
    met = {True: {S.OPEN: Cause.OPEN}, False: {S.CLOSED: Cause.CLOSED, S.OFFLINE: Cause.CLOSED}}[opens]
    assert left_out(region, opens=opens) is met.get(state, Cause.BUSY)


def test_a_table_that_is_about_to_be_closed_gets_no_region_opened() -> None:
    region = region_of(S.CLOSED, None, TableState.ENABLED)
    assert left_out(region, opens=True, ends=True) is Cause.TABLE
    assert left_out(region_of(S.OPEN, ServerState.ONLINE, TableState.ENABLED), opens=False, ends=True) is None
    model = SimpleNamespace(regions={1: region}, damages=Damages())
    assert by_ids.judged(env_of(model, "ends"), by_ids.ASSIGN, [1])[1] == [(Cause.TABLE, 1)]


@pytest.mark.parametrize(("state", "owner", "table", "act"), CASES)
def test_in_the_end_a_region_is_as_it_was_to_be_or_has_a_cause(
    state: RegionState, owner: ServerState | None, table: TableState, act: str
) -> None:
    cause = missed(region_of(state, owner, table), opens=act == "assign")
    if act == "assign":
        met = state is S.OPEN and owner in (None, ServerState.ONLINE)
        failed = Cause.FAILED if state is S.FAILED_OPEN else Cause.NOT_YET
        assert cause is (None if met else failed if table in WANTED else Cause.TABLE)
    else:
        closed = state in (S.CLOSED, S.OFFLINE, S.FAILED_OPEN)
        assert cause is (None if closed else Cause.NOT_YET)
    assert missed(None, opens=act == "assign") is Cause.GONE


def test_causes_are_counted_with_the_first_ids_and_told_in_one_order() -> None:
    left = added((), [(Cause.BUSY, 9), *((Cause.OPEN, one) for one in range(1, 6)), (Cause.GONE, 8)])
    left = added(left, [(Cause.OPEN, 6)])
    assert left[0] == LeftOut(Cause.OPEN, 6, tuple(range(1, SHOWN_MAX + 1)))
    assert in_words(left) == (
        "8 left out: #1, #2, #3 and 3 more are open already, #8 does not exist, #9 is moved by another procedure"
    )
    assert in_words(()) == ""
    worst = added((), [(cause, HIGHEST - at) for cause in Cause for at in range(1_200)])
    assert len(in_words(worst)) < 980, "the result of a procedure is cut behind 1,000 bytes"


# -- batches


class ByIdsWorld(NamedTuple):
    """A model with closed regions of some tables."""

    env: RegionsEnv
    ids: list[int]


def world(regions: int, tables: int = 1, first: int = 1) -> ByIdsWorld:
    model = Regions()
    ids = list(range(first, first + regions))
    for number in range(tables):
        table = Table(f"t{number}", TableKind.USER, TableState.ENABLED, {}, [])
        model.add_table(table)
        mine = [Region(one, table, b"%d" % one, b"", S.CLOSED) for one in ids[number::tables]]
        model.add_regions(table, mine)
    return ByIdsWorld(env_of(model), ids)


def record_of(task: ByIds, kind: str = by_ids.ASSIGN) -> Record:
    return Record(5, kind, State.RUNNABLE, 0, 0, 0, data=BY_IDS.encode(task))


async def begun(found: ByIdsWorld, ids: list[int], why: str = "w") -> Children:
    outcome = await by_ids.begin(found.env, record_of(by_ids.naming(ids, why)))
    assert isinstance(outcome, Children)
    return outcome


async def test_a_part_that_fits_leaves_exactly_the_other_regions_to_the_next_round() -> None:
    found = world(1_000, tables=3)
    outcome = await begun(found, [*found.ids, HIGHEST])
    sizes = [len(MANY.decode(one.data).ids) for one in outcome.children]
    assert sizes == [334, 333, 333]
    assert outcome.rest is not None
    for count in range(len(sizes) + 1):
        task: ByIds = BY_IDS.decode(outcome.rest(count))
        children: list[Many] = [MANY.decode(one.data) for one in outcome.children[:count]]
        assert sorted(task.begun) == sorted(id_ for one in children for id_ in one.ids)
        assert sorted(task.begun + task.ids) == found.ids
        assert task.left == (LeftOut(Cause.GONE, 1, (HIGHEST,)),), "it is counted once"
    assert BY_IDS.decode(outcome.data).ids == ()
    assert all(one.waits and one.why == "w" for one in map(MANY.decode, [one.data for one in outcome.children]))


async def test_a_round_has_as_many_batches_as_a_write_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "BATCHES_MAX", 7)
    found = world(50, tables=25)
    outcome = await begun(found, found.ids)
    after: ByIds = BY_IDS.decode(outcome.data)
    assert (len(outcome.children), len(after.begun), len(after.ids)) == (7, 14, 36)
    regions = found.env.model.regions
    for one in after.begun[1:]:
        regions[one].state = S.OPEN
    again = await by_ids.begin(found.env, record_of(after))
    assert isinstance(again, Children)
    second: ByIds = BY_IDS.decode(again.data)
    assert (second.done, len(second.begun), len(second.ids)) == (13, 14, 22)
    assert second.left == (LeftOut(Cause.NOT_YET, 1, (after.begun[0],)),)


async def test_the_largest_request_is_one_write_and_its_end_has_no_ids() -> None:
    found = world(IDS_MAX, first=HIGHEST - IDS_MAX)
    outcome = await begun(found, found.ids, "\U0001f680" * 1_000)
    weight = len(outcome.data) + sum(len(one.data) for one in outcome.children)
    assert len(outcome.children) == IDS_MAX / many.TOGETHER
    assert 2 * 9 * IDS_MAX < weight < CHANGE_BYTES_MAX * 4 / 5
    for one in found.env.model.regions.values():
        one.state = S.OPEN
    ended = await by_ids.begin(found.env, record_of(BY_IDS.decode(outcome.data)))
    assert isinstance(ended, Next)
    assert BY_IDS.decode(ended.data).done == IDS_MAX
    assert len(ended.data) < 5_000


@pytest.mark.parametrize(
    ("record", "waits"),
    [
        (Record(5, "move", State.RUNNABLE, 0, 0, 0), True),
        (Record(5, "move", State.WAITING, 0, 0, 0, locked=True), False),
        (Record(5, "assign", State.RUNNABLE, 1, 0, 0, locked=True, parent=4, ancestors=(4,)), True),
        (Record(5, "assign", State.RUNNABLE, 1, 0, 0, locked=True, parent=4, ancestors=(4,), done=(0,)), False),
    ],
)
def test_the_locks_of_others_are_listed_for_what_may_wait_for_one_alone(record: Record, waits: bool) -> None:
    engine: Any = SimpleNamespace(locks=lambda: ["a lock"])
    assert bool(locks_beside(record, engine)) is waits


@pytest.mark.parametrize("kind", [by_ids.ASSIGN_BY_IDS, by_ids.CLOSE_BY_IDS])
def test_the_journal_has_how_many_regions_were_named_and_why(kind: Kind[RegionsEnv]) -> None:
    record = record_of(by_ids.naming([1, 2, 2, *range(10, 2_000)], "the disk"), kind.name)
    assert NAMES.members(record) == Members(why="the disk", what="1,992 regions")
    assert not kind.demand(record).exclusive, "two files may be under way"
