"""The view of procedures: what it lists, measures and waits for, and where a request to end one goes."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from controller.daemon.state import Mode
from controller.http.documents import NotActive, NotFound, ViewRefused
from controller.kafka.procedures import drain, elect, reassign, restart, throttle
from controller.operator import procedure_items, procedures
from controller.operator.plans import PlanView
from controller.operator.procedures import ProcedureView
from controller.operator.progress import Measured
from controller.procedures import requests
from controller.procedures.requests import Abort, Bypass, Remove
from state_machines.decisions.drain import Drain
from state_machines.decisions.plan_pace import PlanPace
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State

LIVE, OVER = State.WAITING, State.SUCCESS
ENDING = Ending("", "uid 7", "it hangs")


def plan(pid: int, topic: str, state: State = LIVE, parent: int = 0, target: tuple[int, ...] = (3,)) -> Record:
    moves = (PlannedMove(topic, 0, (1, 2), target, status=Status.BEGUN),)
    ancestors = (parent,) if parent else ()
    data = reassign.encode_plan(ReassignPlan(moves))
    return Record(pid, reassign.NAME, state, 0, 1, 1, parent=parent, ancestors=ancestors, data=data)


class ViewWorld:
    """A daemon whose term has an engine with records; ``asked`` has the requests that wait for the next term."""

    def __init__(self, *records: Record, unusable: tuple[Record | int, ...] = ()) -> None:
        known = [one for one in unusable if isinstance(one, Record)]
        self.engine: Any = SimpleNamespace(
            records={one.pid: one for one in records},
            live=lambda: [one for one in records if not one.state.is_final],
            unusable={one if isinstance(one, int) else one.pid: "it is damaged" for one in unusable},
            unusable_records={one.pid: one for one in known},
        )
        self.asked: list[tuple[object, str]] = []
        self.response = True
        self.loads = 0
        removed = SimpleNamespace(family=lambda pid: [pid, 99])
        self.parking: Any = SimpleNamespace(suspects={}, parked={}, asked=self._ask, removed=removed)
        self.daemon: Any = SimpleNamespace(role=None, mode=Mode.ACTIVE, why="it says so", parking=self.parking)
        self.procedures: Any = SimpleNamespace(
            engine=self.engine, engine_or_none=self.engine, loads_later=True, unavailable="a record is damaged",
            causes=lambda pid: {}, load_soon=self._load,
        )  # fmt: skip
        self.term: Any = SimpleNamespace(procedures=self.procedures, serving=None, stands_still=False)
        daemon: Any = self.daemon
        self.view = ProcedureView(daemon, lambda: self.term, lambda: "query another daemon")

    async def _ask(self, request: object, why: Any) -> bool:
        self.asked.append((request, why()))
        return self.response

    def _load(self) -> None:
        self.loads += 1

    def stand_still(self) -> None:
        """Has the records not be loaded yet."""
        refused = mock.PropertyMock(side_effect=requests.ProcedureRefused("they are not loaded"))
        self.procedures = type("Unloaded", (), {**vars(self.procedures), "engine": refused, "engine_or_none": None})()
        self.term.procedures = self.procedures

    async def pids(self, *concerns: Any) -> list[int]:
        return [one.pid for one in await self.view.list_all(*concerns)]


def pace(copied: int) -> Any:
    """Returns what measures plans: each one as far as its pid says."""

    async def measured(term: object, record: Record) -> Measured:
        return Measured(reassign.plan_of(record), PlanPace(copied + record.pid, 1_000, 0, None, None), [])

    return measured


async def test_records_that_cannot_be_used_are_listed_as_far_as_they_are_known() -> None:
    world = ViewWorld(plan(1, "t"), plan(2, "u", OVER), unusable=(plan(3, "u", target=(4,)), 4))
    world.parking.parked = {1: "its steps ended terms", 2: "they did before it ended"}
    found = {one.pid: one for one in await world.view.list_all()}
    assert list(found) == [1, 2, 3, 4]
    assert [(one.kind, one.unusable, one.parked) for one in found.values()] == [
        ("reassign", "", "its steps ended terms"),
        ("reassign", "", ""),
        ("reassign", "it is damaged", ""),
        ("unknown", "it is damaged", ""),
    ]
    assert [one.pid for one in await world.view.records()] == [1, 2]
    for concerns, pids in {
        ("t", None): [1], ("u", None): [2, 3], (None, 4): [3], ("u", 4): [3], ("t", 4): [], (None, 3): [1, 2],
    }.items():  # fmt: skip
        assert await world.pids(*concerns) == pids, concerns


async def test_one_procedure_is_described_without_the_others_and_a_list_leaves_turns_to_other_work() -> None:
    """Thousands of results are kept, and the loop that describes them keeps the lease."""
    world = ViewWorld(*(plan(pid, "t", OVER) for pid in range(1, 41)), unusable=(41,))
    described = mock.Mock(wraps=procedure_items.procedure_item)
    with mock.patch.object(procedures, "procedure_item", described), mock.patch.object(procedures, "ITEMS_PER_TURN", 4):
        assert [(await world.view.one(pid, 0)).pid for pid in (7, 41)] == [7, 41]
        assert described.call_count == 1
        listing, seen = asyncio.ensure_future(world.view.list_all()), [1]
        while not listing.done():
            await asyncio.sleep(0)
            seen.append(described.call_count)
    assert [one.pid for one in listing.result()] == list(range(1, 42))
    assert max(after - before for before, after in pairwise(seen)) == 4


async def test_a_procedure_has_the_progress_of_its_plan_that_runs_and_no_other() -> None:
    parent = Record(10, drain.NAME, LIVE, 0, 1, 1, data=drain.encode_drain(Drain((1,))))
    ended = [plan(8, "t", OVER), plan(11, "t", OVER, 10)]
    world = ViewWorld(plan(1, "x"), *ended, parent, plan(12, "t", LIVE, 10), unusable=(plan(3, "u"),))
    with mock.patch.object(world.view, "meter", SimpleNamespace(measured=pace(500))):
        copied = {pid: (await world.view.one(pid, 0)).copied_bytes for pid in (1, 3, 8, 10, 11, 12)}
        assert copied == {1: 501, 3: None, 8: None, 10: 512, 11: None, 12: 512}
        assert [one.status for one in await PlanView(world.view, lambda: None).moves(8)] == ["begun"], (
            "it has ended, and is not measured"
        )
    with pytest.raises(NotFound, match="no reassign plan has pid 99"):
        await PlanView(world.view, lambda: None).moves(99)


async def test_a_wait_for_an_end_returns_it_or_what_there_is_by_then() -> None:
    world = ViewWorld(plan(1, "t"))
    over = plan(1, "t", OVER)

    async def ended(pid: int) -> Record:
        return over

    async def unknown(pid: int) -> Record:
        raise requests.ProcedureRefused("it is not known")

    async def never(pid: int) -> Record:
        await asyncio.Event().wait()
        return over

    with mock.patch.object(world.view, "meter", SimpleNamespace(measured=pace(0))):
        for result, state in ((ended, "success"), (unknown, "waiting"), (never, "waiting")):
            world.engine.result = result
            assert (await world.view.one(1, 0.01)).state == state
    with pytest.raises(NotFound, match="procedure 9 is not known"):
        await world.view.one(9, 0.01)


ACTS = {"abort": Abort, "bypass": Bypass, "remove": Remove}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("between", [True, False], ids=["between terms", "in a term"])
async def test_a_request_to_end_what_stands_still_waits_for_the_next_load(act: str, between: bool) -> None:
    world = ViewWorld(plan(5, "t"))
    world.stand_still()
    why = "a record is damaged"
    if between:
        world.term, world.parking.suspects, why = None, {5: 1}, "it says so"
    found = await getattr(world.view, act)(5, "uid 7", " it\n hangs ")
    ending = replace(ENDING, act=act)
    assert world.asked == [(ACTS[act](5, ending), why)]
    assert world.loads == (not between)
    assert (found.pid, found.ended, found.end_requested) == (5, True, act)
    assert (found.end_principal, found.end_reason) == ("uid 7", "it hangs")
    assert (found.aborted, found.bypassed) == (act == "abort", act == "bypass")
    assert found.detail == ("removed with pid 99 of its family" if act == "remove" else "")


@pytest.mark.parametrize("act", ACTS)
async def test_a_request_that_the_next_load_did_not_carry_out_is_refused(act: str) -> None:
    world = ViewWorld(plan(5, "t"))
    world.term, world.parking.suspects, world.response = None, {5: 1}, False
    loaded = SimpleNamespace(procedures=world.procedures, stands_still=False)
    ask = world.parking.asked

    async def asked(*given: Any) -> bool:
        world.term = loaded
        return bool(await ask(*given))

    world.parking.asked = asked
    with pytest.raises(ViewRefused, match=r"^pid 5: ") as refused:
        await getattr(world.view, act)(5, "uid 7")
    assert "regent procedures bypass 5" in refused.value.remedy


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("suspects", [True, False])
async def test_without_a_term_a_request_waits_only_where_this_daemon_may_have_the_next_one(
    mode: Mode, suspects: bool
) -> None:
    world = ViewWorld()
    world.term, world.daemon.mode = None, mode
    world.parking.suspects = {5: 1} if suspects else {}
    waits = suspects and mode not in (Mode.CONNECTING, Mode.STANDBY, Mode.STOPPING)
    for act in ACTS:
        if waits:
            assert (await getattr(world.view, act)(5)).ended
            continue
        with pytest.raises(NotActive, match=f"this daemon is {mode.value}: it says so"):
            await getattr(world.view, act)(5)
    assert len(world.asked) == (3 if waits else 0)


async def test_in_a_term_whose_records_are_not_loaded_again_a_request_is_refused_at_once() -> None:
    world = ViewWorld()
    world.stand_still()
    world.procedures.loads_later = False
    for act in ACTS:
        with pytest.raises(NotActive, match="they are not loaded"):
            await getattr(world.view, act)(5)
    assert not world.asked
    assert not world.loads


async def test_a_record_that_can_be_used_is_not_removed_and_an_unknown_one_is_no_end() -> None:
    world = ViewWorld(plan(5, "t"), plan(6, "t", State.FAILED), unusable=(plan(7, "u"),))

    async def nothing(pid: int, ending: Ending) -> bool:
        return False

    async def removed(pid: int, ending: Ending) -> list[int]:
        return [pid, 8]

    world.engine.abort = world.engine.bypass = nothing
    world.engine.command = lambda pid, command, ending: nothing(pid, ending)
    world.engine.remove = removed
    with pytest.raises(ViewRefused, match="its record can be used"):
        await world.view.remove(5, "uid 7", "")
    found = await world.view.remove(7, "uid 7", "it is damaged")
    assert (found.kind, found.state, found.detail) == ("reassign", "removed", "removed with pid 8 of its family")
    assert (found.end_principal, found.unusable) == ("uid 7", "it is damaged")
    for pid, told in ((6, "pid 6 is being taken back already"), (9, "pid 9: it has ended already")):
        for end in (world.view.abort, world.view.bypass, world.view.cancel):
            with pytest.raises(ViewRefused) as refused:
                await end(pid)
            assert told.split(":")[0] in str(refused.value)


STOP = msgspec.json.encode(reassign.PlanCommand(stop=True))
GENTLE = {
    reassign.NAME: STOP,
    throttle.NAME: throttle.LIFT,
    elect.NAME: elect.STOP,
    drain.NAME: None,
    restart.NAME: None,
}


@pytest.mark.parametrize("kind", GENTLE)
async def test_a_cancel_is_the_gentle_stop_of_a_kind_or_an_abort(kind: str) -> None:
    world, found = ViewWorld(Record(5, kind, LIVE, 0, 1, 1)), list[tuple[Any, ...]]()

    async def noted(*given: Any) -> bool:
        found.append(given)
        return True

    world.engine.command = world.engine.abort = noted
    await world.view.cancel(5, "uid 7", " it\n hangs ")
    ending, stop = replace(ENDING, act="cancel"), GENTLE[kind]
    assert found == [(5, ending) if stop is None else (5, stop, ending)]
