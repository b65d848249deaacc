"""regent end: the right way for each kind and state, said before and after; what cannot be taken back is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cli.commands.end import way_of
from cli.exit_codes import Exit, Failure
from controller.http.procedures import Procedure
from controller.operator.drains import UndrainRequest
from controller.operator.plan_requests import Move, ReassignRequest
from controller.operator.throttles import LiftRequest
from tests.kit.answering import Answering
from tests.kit.command import items, regent, unwrapped


def one(kind: str, **more: Any) -> dict[str, Any]:
    return {"pid": 12, "kind": kind, "state": "waiting_timeout", "ended": False, **more}


ENDED = {"ended": True, "state": "success"}
PLAN = one("reassign", pid=13, parent=12)


@pytest.mark.parametrize(
    ("found", "undo", "same_as"),
    [
        (one("reassign"), False, "regent reassign cancel 12"),
        (one("reassign"), True, "regent procedures abort 12"),
        (one("reassign", unusable="damaged"), False, "regent procedures remove 12"),
        (one("reassign", parked="it ended terms"), False, "regent procedures bypass 12"),
        (one("reassign", parked="it ended terms"), True, "regent procedures abort 12"),
        (one("throttle"), False, "regent throttle lift 12"),
        (one("throttle"), True, "regent throttle lift 12"),
        (one("elect"), False, "regent procedures cancel 12"),
        (one("restart"), False, "regent procedures abort 12"),
        (one("restart"), True, "regent procedures abort 12"),
        (one("drain"), True, "regent procedures abort 12"),
        (one("drain"), False, "regent procedures abort 12"),
        (one("drain", brokers=[3, 4], **ENDED), False, "regent undrain 3 4"),
        (one("drain", brokers=[3], **ENDED), True, "regent undrain 3"),
        (one("reassign", **ENDED), False, ""),
        (one("reassign", **ENDED), True, ""),
        (one("reassign", state="failed"), False, ""),
        (one("drain", aborted=True), True, ""),
        (one("drain", ended=True, state="rolledback", brokers=[3]), False, ""),
    ],
)
def test_each_kind_and_state_has_its_way(found: dict[str, Any], undo: bool, same_as: str) -> None:
    way = way_of(found, [found], undo=undo)
    assert (way.same_as, bool(way.path), bool(way.does)) == (same_as, bool(same_as), True)
    assert way.moves_back == (undo and found["ended"] and found["state"] == "success")


def test_a_drain_whose_plan_runs_is_stopped_by_its_plan_and_its_brokers_stay_drained() -> None:
    drain = one("drain", brokers=[3])
    way = way_of(drain, [drain, PLAN], undo=False)
    assert (way.same_as, way.path) == ("regent reassign cancel 13", "/v1/reassignments/13")
    assert "stay drained" in way.then


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (one("elect"), "stops it"),
        (one("restart", **ENDED), "nothing of it is left"),
        (one("reassign", ended=True, state="rolledback"), "nothing of it is left"),
    ],
)
def test_what_cannot_be_taken_back_is_refused_with_what_can_be_done(found: dict[str, Any], remedy: str) -> None:
    with pytest.raises(Failure) as refused:
        way_of(found, [found], undo=True)
    assert refused.value.code is Exit.REFUSED
    assert remedy in refused.value.remedy


def test_a_procedure_being_taken_back_in_vain_names_the_last_way_out() -> None:
    found = one("reassign", state="failed", stuck=True)
    assert "'regent procedures bypass 12' ends it as it is" in way_of(found, [found], undo=True).does


def test_a_plan_is_stopped_after_a_question_and_the_way_is_said(view: Answering) -> None:
    assert "give --yes" in regent("end", 12, code=Exit.USAGE).stderr
    assert [request for request in view.of("procedures", "plans") if request[0] == "command"] == []
    said = unwrapped(regent("end", 12, "--yes", "--reason", "wrong rack").stderr)
    assert "queued moves do not begin" in said
    assert "(regent reassign cancel 12)" in said
    stopped = ("command", 12, {"stop": True, "reason": "wrong rack"})
    items("end", 12, "--undo", "--yes", "--reason", "w")
    acts = [request for request in view.of("procedures", "plans") if request[0] in ("command", "abort")]
    assert (acts, view.reasons[-1][1]) == ([stopped, ("abort", 12)], "w")


BACK = Move(topic="orders", partition=0, origin=(3, 2), target=(1, 2), status="planned")
STAYS = Move(topic="orders", partition=1, origin=(3,), target=(1,), status="refused", why="it was moved since")


def applied(view: Answering) -> list[ReassignRequest]:
    return [request[1] for request in view.of("procedures", "plans") if request[0] == "apply"]


def test_a_drain_that_has_ended_and_moved_no_replicas_is_undone_by_its_marks_alone(view: Answering) -> None:
    view.others = [Procedure(pid=15, kind="drain", state="success", ended=True, brokers=[3])]
    said = unwrapped(regent("end", 15, "--undo", "--yes", "--reason", "done").stderr)
    assert view.of("drains") == [("undrain", UndrainRequest(brokers=[3]))]
    assert "no replica is to be moved back (regent undrain 3)" in said
    assert ("reassign" in said, applied(view)) == (False, [])


def test_a_drain_that_moved_replicas_is_undone_by_its_marks_and_then_by_a_plan(view: Answering) -> None:
    view.others = [Procedure(pid=15, kind="drain", state="success", ended=True, brokers=[3])]
    view.answers["plans.way_back"] = [BACK]
    said = unwrapped(regent("end", 15, "--undo", "--yes", "--reason", "wrong broker").stderr)
    assert view.of("drains") == [("undrain", UndrainRequest(brokers=[3]))]
    [plan] = applied(view)
    assert [(m.topic, m.partition, m.origin, m.target) for m in plan.moves] == [("orders", 0, (3, 2), (1, 2))]
    assert plan.reason == "wrong broker"
    assert "plan 12 moves replicas back" in said


def test_a_plan_that_has_ended_is_taken_back_by_a_further_plan_after_a_question(view: Answering) -> None:
    view.others = [Procedure(pid=15, kind="reassign", state="success", ended=True)]
    view.answers["plans.way_back"] = [BACK, STAYS]
    assert "give --yes" in regent("end", 15, "--undo", code=Exit.USAGE).stderr
    assert applied(view) == []
    done = regent("end", 15, "--undo", "--yes", "--reason", "r")
    said = unwrapped(done.stderr)
    assert [len(plan.moves) for plan in applied(view)] == [1]
    assert "orders-1 stays: it was moved since" in said
    assert "a plan of 1 move gives partitions their former replicas; 1 partition stay" in said
    assert "regent reassign plan --undo 15 --out back.json" in said


def test_a_dry_run_shows_the_way_and_its_moves_and_does_nothing(view: Answering) -> None:
    view.others = [
        Procedure(pid=15, kind="drain", state="success", ended=True, brokers=[3]),
        Procedure(pid=16, kind="throttle", state="waiting_timeout"),
    ]
    view.answers["plans.way_back"] = [BACK]
    done = regent("end", 15, "--undo", "--dry-run")
    assert "orders" in done.stdout
    assert "nothing was done" in done.stderr
    assert [one["status"] for one in items("end", 15, "--undo", "--dry-run")] == ["planned"]
    assert "regent throttle lift 16" in unwrapped(regent("end", 16, "--dry-run").stderr)
    assert (view.of("drains"), applied(view), view.noted("throttles.lift")) == ([], [], [])


def test_a_plan_of_which_nothing_is_left_to_take_back_says_so(view: Answering) -> None:
    view.others = [Procedure(pid=15, kind="reassign", state="success", ended=True)]
    assert "has its former replicas already" in unwrapped(regent("end", 15, "--undo").stderr)
    view.answers["plans.way_back"] = [STAYS]
    assert "nothing of plan 15 can be taken back" in regent("end", 15, "--undo", code=Exit.REFUSED).stderr
    assert applied(view) == []


def test_a_throttle_is_lifted_and_what_has_ended_is_left_alone(view: Answering) -> None:
    view.others = [Procedure(pid=15, kind="throttle", state="waiting_timeout")]
    regent("end", 15, "--yes", "--reason", "r")
    assert view.noted("throttles.lift") == [LiftRequest(pids=[15], reason="r")]
    assert "has ended already (success): nothing was done" in unwrapped(regent("end", 13).stderr)
