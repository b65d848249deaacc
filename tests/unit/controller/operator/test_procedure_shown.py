"""Operators see each field of a procedure's record, and of its plan or throttle, in the field of that name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from controller.http.procedures import (
    Procedure,
    ServerResult,
    ended_item,
    record_item,
    removed_item,
    time_of,
    unreadable_item,
)
from controller.kafka.procedures import reassign, throttle
from controller.kafka.procedures.throttle import ThrottleOrder
from controller.operator.plans import move_items, planned_item
from controller.operator.procedure_items import broker_results, procedure_item
from controller.operator.procedures import BY_NAME
from controller.procedures.broadcast import Broadcast
from controller.procedures.broadcast import Result as BrokerResult
from controller.procedures.refusals import ending_of
from state_machines.admin_rules.throttles import Entity, Throttle
from state_machines.decisions.plan_pace import MovePace
from state_machines.decisions.plan_progress import STOPPED, PlannedMove, ReassignPlan, Status, Superseded, reverted
from state_machines.procedures import kernel
from state_machines.procedures.record import Caller, Ending, Record
from state_machines.procedures.states import State

CALLER = Caller("uid 7", "regent", "rack 3 is full", "n1")
ENDING = Ending("bypass", "uid 8", "it hangs", 4_000)
RECORD = Record(
    12, "of another version", State.WAITING, 3, 1_000, 2_000, parent=5, ancestors=(5,), attempts=2, aborted=True,
    bypassed=True, error="no broker", result=b"done", caller=CALLER, ending=ENDING,
)  # fmt: skip
SHOWN: dict[str, Any] = {
    "pid": 12, "kind": "of another version", "state": "waiting", "step": "3", "parent": 5, "principal": "uid 7",
    "client": "regent", "reason": "rack 3 is full", "submitted": datetime.fromtimestamp(1, UTC),
    "updated": datetime.fromtimestamp(2, UTC), "attempts": 2, "aborted": True, "bypassed": True,
    "end_requested": "bypass", "end_principal": "uid 8", "end_reason": "it hangs",
    "end_at": datetime.fromtimestamp(4, UTC), "error": "no broker",
}  # fmt: skip


def test_each_field_of_a_record_is_shown_in_the_field_of_its_name() -> None:
    assert procedure_item(RECORD, BY_NAME) == Procedure(**SHOWN)
    results = [ServerResult(broker=1, ok=True)]
    more = record_item(RECORD, "wait", "two moves", results, "it is damaged", "a region is left")
    assert more == Procedure(
        **{**SHOWN, "step": "wait"}, detail="two moves", results=results, unusable="it is damaged",
        unmet="a region is left",
    )  # fmt: skip
    bare = procedure_item(Record(1, "x", State.RUNNABLE, 0, 0, 0), BY_NAME)
    assert bare == Procedure(pid=1, kind="x", state="runnable", step="0")
    assert time_of(0) is None


@pytest.mark.parametrize("state", State)
def test_a_result_is_shown_of_a_success_alone_and_an_end_of_each_final_state(state: State) -> None:
    found = procedure_item(replace(RECORD, state=state), BY_NAME)
    assert found.state == state.name.lower()
    assert found.result == ("done" if state is State.SUCCESS else "")
    assert found.ended == (state in (State.SUCCESS, State.ROLLEDBACK))


def test_a_procedure_is_stuck_once_a_step_was_tried_so_often() -> None:
    tried = [replace(RECORD, attempts=kernel.STUCK_ATTEMPTS + more) for more in (-1, 0)]
    assert [procedure_item(one, BY_NAME).stuck for one in tried] == [False, True]


def test_a_step_has_its_name_as_long_as_this_daemon_has_it() -> None:
    steps = BY_NAME[reassign.NAME].steps
    record = replace(RECORD, kind=reassign.NAME, data=reassign.encode_plan(ReassignPlan(())))
    names = [procedure_item(replace(record, step=at), BY_NAME).step for at in range(len(steps) + 1)]
    assert names == [*(one.name for one in steps), str(len(steps))]


@pytest.mark.parametrize("kind", sorted(BY_NAME))
def test_a_message_that_cannot_be_read_leaves_its_record_shown(kind: str) -> None:
    record = replace(RECORD, kind=kind, step=99, data=b"\xff")
    expected = Procedure(**{**SHOWN, "kind": kind, "step": "99"})
    assert procedure_item(record, BY_NAME) == expected
    whole = replace(record, data=throttle.encode_order(ThrottleOrder((1,), 7)))
    unusable = procedure_item(whole, BY_NAME, "it is damaged")
    assert unusable == expected.model_copy(update={"unusable": "it is damaged"})


def test_an_end_is_shown_with_its_request_where_nothing_else_is_kept() -> None:
    told = {"end_principal": "uid 8", "end_reason": "it hangs", "ended": True}
    for act, done in (("abort", {"aborted": True}), ("bypass", {"bypassed": True}), ("remove", {})):
        found = ended_item(12, replace(ENDING, act=act))
        assert found == Procedure(pid=12, kind="unknown", state="ended", end_requested=act, **told, **done)
    removal = replace(ENDING, act="remove")
    lost = removed_item(unreadable_item(12, "no bytes"), removal, [12])
    base = {"kind": "unknown", "state": "removed", "end_requested": "remove", **told}
    assert lost == Procedure(pid=12, unusable="no bytes", detail="removed", **base)
    whole = removed_item(procedure_item(RECORD, BY_NAME).model_copy(update={"detail": "x"}), removal, [5, 12, 13])
    assert whole.detail == "x; removed with pid 5, pid 13 of its family"
    assert (whole.state, whole.ended, whole.pid, whole.reason) == ("removed", True, 12, "rack 3 is full")
    assert ending_of("abort", "uid 8", " it\n hangs ") == Ending("abort", "uid 8", "it hangs")


def test_each_broker_of_a_throttle_has_its_own_result() -> None:
    results = (BrokerResult(2, True, "7 bytes/s"), BrokerResult(3, False, "9 bytes/s"))
    order = ThrottleOrder((1, 2, 3, 4, 5, 6), 7, confirming=Broadcast((2, 3, 4, 5), results=results), down=(6,))
    found = broker_results(order, {5: "connection refused", 1: "not its turn", 2: "late"})
    assert found == [
        ServerResult(broker=1, ok=False, text="not queried yet"),
        ServerResult(broker=2, ok=True, text="7 bytes/s"),
        ServerResult(broker=3, ok=False, text="9 bytes/s"),
        ServerResult(broker=4, ok=False, text="it is queried, and has not reported the rate yet"),
        ServerResult(
            broker=5, ok=False,
            text="it is queried again, and has not reported the rate yet: connection refused",
        ),
        ServerResult(broker=6, ok=False, text="it is down: it reads the setting from ZooKeeper when it starts"),
    ]  # fmt: skip
    record = replace(RECORD, kind=throttle.NAME, step=99, data=throttle.encode_order(order))
    assert procedure_item(record, BY_NAME, causes={5: "x"}).results == broker_results(order, {5: "x"})
    assert procedure_item(replace(record, kind=reassign.NAME), BY_NAME).results == []


MOVES = tuple(
    PlannedMove("t", number, (1, 2), (2, 3), 100 * number, status, "because" if status is Status.REFUSED else "")
    for number, status in enumerate(Status)
)


def test_each_move_has_its_own_progress_its_own_reason_and_its_own_finding() -> None:
    plan = ReassignPlan(MOVES, superseded=(Superseded(3, 4_000, "uid 9"),))
    for each in (None, [MovePace(n, 10 * n, 100 + n, 200 + n, 300 + n, f"why {n}" if n < 2 else "") for n in range(6)]):
        for number, item in enumerate(move_items(plan, each)):
            status = Status(number)
            assert (item.topic, item.partition, item.origin, item.target) == ("t", number, (1, 2), (2, 3))
            assert item.status == status.name.lower()
            assert (item.found, item.by) == ((time_of(4_000), "uid 9") if number == 3 else (None, ""))
            stopped = STOPPED if status is Status.STOPPED else ""
            if each is None:
                assert (item.size_bytes, item.why) == (100 * number, MOVES[number].why or stopped)
                assert (item.copied_bytes, item.rate_bytes_per_s, item.remaining_s, item.records_behind) == (None,) * 4
                continue
            assert (item.copied_bytes, item.size_bytes, item.rate_bytes_per_s) == (number, 10 * number, 100 + number)
            assert (item.remaining_s, item.records_behind) == (200 + number, 300 + number)
            assert item.why == (each[number].why or stopped)


LEFT = (Throttle(Entity("brokers", "1"), "leader.replication.throttled.rate", None, "7", ("7",)),)


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({}, []),
        ({"paused": True}, ["paused"]),
        ({"held": True}, ["paused"]),
        ({"paused": True, "held": True, "reverting": True}, ["paused", "being taken back"]),
        ({"throttles": LEFT}, []),
    ],
)
@pytest.mark.parametrize("bypassed", [False, True])
def test_a_plan_names_its_marks_and_the_throttles_that_a_bypass_leaves(
    changes: dict[str, Any], marks: list[str], bypassed: bool
) -> None:
    plan = replace(ReassignPlan(MOVES[:1]), **changes)
    record = replace(RECORD, kind=reassign.NAME, data=reassign.encode_plan(plan), bypassed=bypassed)
    head, *told = procedure_item(record, BY_NAME).detail.split("; ")
    if bypassed and plan.throttles:
        assert told.pop().startswith("1 throttle setting may still stand, regent throttle clear")
    assert (head, told) == ("1 queued", marks)
    order = throttle.encode_order(ThrottleOrder((1,), 7, throttles=plan.throttles))
    ended = procedure_item(replace(record, kind=throttle.NAME, data=order), BY_NAME).detail
    assert ("may still stand" in ended) == (bypassed and bool(plan.throttles))


@pytest.mark.parametrize(
    ("moves", "rate", "size", "seconds", "progress"),
    [
        (MOVES[1:3], 0, 300, None, "300 B to copy"),
        (MOVES[1:3], 100, 300, 3, "300 B to copy, about 3 s at the throttle"),
        (MOVES[:2], 0, 100, None, "100 B to copy, without 1 move of unknown size"),
        ((replace(MOVES[0], target=(2, 1)),), 100, 0, None, "0 B to copy"),
    ],
    ids=["no throttle", "throttle", "an unknown size", "an order alone"],
)
def test_a_plan_that_is_judged_has_its_bytes_and_its_time(
    moves: tuple[PlannedMove, ...], rate: int, size: int, seconds: int | None, progress: str
) -> None:
    found = planned_item(ReassignPlan(moves, rate_bytes_per_s=rate))
    assert (found.pid, found.kind, found.state, found.ended) == (0, reassign.NAME, "planned", False)
    assert (found.size_bytes, found.remaining_s, found.progress) == (size, seconds, progress)
    assert found.detail == reassign.sentence(ReassignPlan(moves))


def test_moves_are_shown_from_origin_to_target_also_while_their_plan_is_taken_back() -> None:
    moves = tuple(PlannedMove("t", number, (1, 2), (3, 2), status=status) for number, status in enumerate(Status))
    plan = ReassignPlan(moves)
    shown = move_items(reverted(plan))
    assert {(item.origin, item.target) for item in shown} == {((1, 2), (3, 2))}
    again = [replace(move, status=Status.REFUSED) for move in reverted(plan).moves if move.status is Status.QUEUED]
    assert {(move.origin, move.target) for move in again} == {((3, 2), (1, 2))}, "the plan itself goes back"
