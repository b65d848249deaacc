"""Words and rates of commands: refusals for programs, brokers that there are not, numbers with units."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

from cli import planning
from cli.exit_codes import Exit
from cli.rates import Rates, given, rates
from controller.http.procedures import Procedure
from controller.kafka.procedures.reassign import encode_plan
from controller.operator.cordons import CordonedBroker
from controller.operator.procedure_items import phase_of
from controller.operator.strays import StrayReport, UnreadBroker
from metadata_store.nodes.cordon_node import Cordon, DrainMark
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.planning.goals import Add
from state_machines.planning.planner import plan
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kit.answering import Answering
from tests.kit.command import items, regent, unwrapped
from tests.kit.kafka.model import make_cluster
from tests.kit.kafka.planning import make_view


@pytest.mark.parametrize(("form", "decoded"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_refusal_is_a_document_for_programs(view: Answering, form: str, decoded: Any) -> None:
    result = regent("elect", "unclean", "-o", form, code=Exit.USAGE)
    error = decoded(result.stderr)
    assert (error["apiVersion"], error["kind"], result.stdout) == ("regent/v1", "Error", "")
    [item] = error["items"]
    assert (item["exitCode"], bool(item["message"]), set(item)) == (2, True, {"message", "remedy", "exitCode"})
    assert "Remedy: " in regent("elect", "unclean", code=Exit.USAGE).stderr


def test_a_cause_that_there_is_not_is_refused_with_those_that_there_are(view: Answering) -> None:
    said = unwrapped(regent("can-stop", 1, "--accept", "luck", code=Exit.USAGE).stderr)
    assert "accept = 'luck': give 'offline', " in said
    assert "query.accept.0" not in said


def test_undrain_says_which_brokers_were_drained(view: Answering) -> None:
    view.marks = {3: CordonedBroker(broker=3, drained=True), 4: CordonedBroker(broker=4)}
    result = regent("undrain", 3, 5)
    assert "broker 3: it may lead again" in result.stderr
    assert "broker 5: it was not drained" in result.stderr
    view.marks = {}
    assert regent("undrain", 3).stdout == "", "no empty table"


def test_strays_of_brokers_that_sent_nothing_are_not_said_to_be_none(view: Answering) -> None:
    unread = UnreadBroker(broker=4, why="it is down")
    view.answers["strays.listed"] = StrayReport(brokers=[], unread=[unread])
    said = unwrapped(regent("strays", 4, code=Exit.FAILED).stderr)
    assert "the logs of broker 4 are not known: it is down" in said
    assert "nothing was read" in said
    assert "no strays" not in said


def test_a_table_shows_the_phase_and_programs_get_the_stored_state(view: Answering) -> None:
    view.others = [
        Procedure(pid=9, kind="reassign", state="waiting_timeout", phase="waiting for broker 4", detail="1 begun")
    ]
    assert "waiting for broker 4" in regent("procedures", "list").stdout
    [found] = [item for item in items("procedures", "list") if item["pid"] == 9]
    assert (found["state"], found["phase"]) == ("waiting_timeout", "waiting for broker 4")


def test_a_plan_shows_what_it_moves_before_it_begins(view: Answering, tmp_path: Path) -> None:
    moves = [{"topic": "t", "partition": p, "origin": [1, 2], "target": [3, 2], "bytes": 7} for p in range(22)]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "cluster_id": "abc", "goal": "a test", "moves": moves}))
    result = regent("reassign", "apply", file, "--dry-run")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[:2] == [["TOPIC", "PARTITION", "FROM", "TO", "BYTES"], ["t", "0", "1,2", "3,2", "7"]]
    assert "and 2 more moves" in result.stderr
    assert len(items("reassign", "apply", file, "--dry-run")) == 1


def stored(plan: ReassignPlan, state: State = State.WAITING_TIMEOUT, **more: Any) -> Record:
    return Record(7, "reassign", state, 0, 0, 0, data=encode_plan(plan), **more)


def test_a_procedure_has_its_phase_until_its_end() -> None:
    moves = (PlannedMove("t", 0, (1,), (4, 3)),)
    term: Any = SimpleNamespace(cluster=make_cluster(brokers=(1, 2, 3)))
    whole: Any = SimpleNamespace(cluster=make_cluster(brokers=(1, 2, 3, 4)))
    plan = ReassignPlan(moves)
    assert phase_of(stored(plan, locked=True), term) == "waiting for broker 4"
    assert [phase_of(stored(plan, locked=True), one) for one in (whole, None)] == ["running"] * 2
    assert phase_of(stored(plan), term) == "queued"
    assert phase_of(stored(ReassignPlan(moves, paused=True), locked=True), term) == "paused"
    assert phase_of(stored(plan, State.FAILED, locked=True), term) == "undoing"
    assert phase_of(stored(plan, State.SUCCESS, locked=True), term) == ""
    assert phase_of(Record(7, "drain", State.WAITING, 0, 0, 0), term) == "running"


def test_a_mark_that_keeps_a_broker_out_is_named_with_its_author_and_the_command() -> None:
    cordon = planning._in_words(Cordon("disk", "uid 0", 1_700_000_000_000))
    drain = planning._in_words(Cordon("disk", "uid 0", 1, DrainMark("new disk", "uid 7", 1_700_000_000_000, 3)))
    assert cordon == "cordoned since 2023-11-14 22:13 UTC by uid 0 (disk)"
    view = make_view({1: None, 2: None, 3: None}, {"t": [(1,)]}, cordoned={2: cordon, 3: drain})
    first, second = (one.why for one in plan(view, Add((2, 3))).refused)
    assert first == f"brokers = 2: broker 2 is {cordon}: regent uncordon 2, or name another one"
    assert second.endswith(
        "drained since 2023-11-14 22:13 UTC by uid 7 (new disk): regent undrain 3, or name another one"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", Rates(0)),
        ("50000000", Rates(50_000_000)),
        ("50M", Rates(50_000_000)),
        ("3k", Rates(3_000)),
        ("1G", Rates(1_000_000_000)),
        ("1M..50M", Rates(1_000_000, 50_000_000)),
        ("1M .. 1M", Rates(1_000_000, 1_000_000)),
    ],
)
def test_a_rate_is_a_number_with_a_unit_or_two_of_them(text: str, found: Rates) -> None:
    assert rates(text) == found


@pytest.mark.parametrize("text", ["", "-1", "5m", "1.5M", "50 MB", "..", "1M..", "..5M", "9M..1M", "0..5M", "1..2..3"])
def test_anything_else_is_refused_with_what_was_given(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"1M\.\.50M"):
        rates(text)


def test_a_request_has_an_upper_bound_only_where_one_is_given() -> None:
    assert (given(None), given(Rates(0)), given(Rates(1, 2))) == (
        {},
        {"rateBytesPerS": 0},
        {"rateBytesPerS": 1, "rateBytesPerSMax": 2},
    )
