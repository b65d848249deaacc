"""regent procedures, locks and reassign against the double of a daemon: requests, exit codes, plan files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.commands.reassign import MOVES_MAX
from cli.exit_codes import Exit
from controller.http.documents import NotActive, NotFound, ViewRefused
from controller.http.procedures import END_REASON_MAX, Procedure
from tests.kit.answering import Answering
from tests.kit.command import items, regent, unwrapped

PLAN = {"version": 1, "partitions": [{"topic": "orders", "partition": n, "replicas": [3]} for n in range(2)]}


pytestmark = pytest.mark.usefixtures("view")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(PLAN), encoding="utf-8")
    return file


def test_a_plan_reaches_the_daemon_with_its_caps_and_its_caller(view: Answering, plan: Path) -> None:
    caps = ("--moves-max", 7, "--broker-moves-max", 3)
    [found] = items("reassign", "apply", plan, "--yes", *caps, "--nonce", "n", "--reason", "rack 3 is full")
    assert found["pid"] == 12
    [(name, request, principal)] = view.of("procedures", "plans")
    assert (name, principal.startswith("uid ")) == ("apply", True)
    assert [(move.topic, move.partition, move.origin, move.target) for move in request.moves] == [
        ("orders", 0, None, (3,)),
        ("orders", 1, None, (3,)),
    ]
    assert (request.moves_max, request.broker_moves_max, request.nonce, request.reason) == (7, 3, "n", "rack 3 is full")
    assert not request.dry_run


def test_without_a_nonce_each_call_has_one_of_its_own_and_the_daemons_caps_hold(view: Answering, plan: Path) -> None:
    for _ in range(2):
        regent("reassign", "apply", plan, "--yes")
    requests = [request for _, request, _ in view.of("procedures", "plans")]
    assert len({request.nonce for request in requests} - {""}) == 2
    assert {(request.moves_max, request.broker_moves_max) for request in requests} == {(100, 10)}


def test_a_plan_that_is_not_confirmed_is_not_sent(view: Answering, plan: Path) -> None:
    assert "give --yes" in regent("reassign", "apply", plan, code=Exit.USAGE).stderr
    assert not view.of("procedures", "plans")
    regent("reassign", "apply", plan, "--dry-run")
    assert view.of("procedures", "plans")[0][1].dry_run


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty: write the plan again"),
        (b"[]", "the file is not as expected"),
        (b"{}", "the file is not as expected"),
        (b'{"version":1,"partitions":[{"topic":"t"}]}', "the file is not as expected"),
        (b'{"version":2,"partitions":[]}', "version = 2: give 1"),
        (b'{"version":1,"partitions":[]}', f"has 0 moves, a plan has between 1 and {MOVES_MAX}"),
        (b"\xff", "the file is not as expected"),
        (b'{"version":9,"cluster_id":"c","goal":"","moves":[]}', "version = 9: this program knows 1"),
        (b'{"version":1,"cluster_id":"c","goal":"","moves":[]}', "has 0 moves"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_before_anything_is_sent(
    view: Answering, plan: Path, content: bytes, why: str
) -> None:
    plan.write_bytes(content)
    assert why in unwrapped(regent("reassign", "apply", plan, "--yes", code=Exit.USAGE).stderr)
    assert not view.of("procedures", "plans")


def test_a_plan_with_more_moves_than_the_daemon_takes_is_refused(view: Answering, plan: Path) -> None:
    partitions = [{"topic": "t", "partition": n, "replicas": [1]} for n in range(MOVES_MAX + 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
    said = unwrapped(regent("reassign", "apply", plan, "--yes", code=Exit.USAGE).stderr)
    assert f"has {MOVES_MAX + 1} moves" in said
    assert "limit the plan with --topic" in said


def test_a_file_of_regents_own_carries_origins_sizes_and_the_cluster(view: Answering, plan: Path) -> None:
    move = {"topic": "orders", "partition": 0, "origin": [1, 2], "target": [3], "bytes": 7}
    plan.write_text(json.dumps({"version": 1, "cluster_id": "c", "goal": "g", "moves": [move]}), encoding="utf-8")
    regent("reassign", "apply", plan, "--yes")
    [(_, request, _)] = view.of("procedures", "plans")
    [sent] = request.moves
    assert (request.cluster_id, sent.origin, sent.target, sent.size_bytes) == ("c", (1, 2), (3,), 7)


def test_a_missing_file_is_named(plan: Path) -> None:
    plan.unlink()
    assert "cannot be read: No such file or directory" in unwrapped(
        regent("reassign", "apply", plan, "--yes", code=Exit.USAGE).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (("reassign", "pause", 12), ("command", 12, {"paused": True})),
        (("reassign", "resume", 12), ("command", 12, {"paused": False})),
        (("reassign", "resume", 12, "--moves-max", 5), ("command", 12, {"paused": False, "moves_max": 5})),
        (("reassign", "cancel", 12, "--yes"), ("command", 12, {"stop": True})),
        (
            ("reassign", "cancel", 12, "--yes", "--reason", "too slow"),
            ("command", 12, {"stop": True, "reason": "too slow"}),
        ),
        (("reassign", "cancel", 12, "--roll-back", "--yes"), ("abort", 12)),
        (("procedures", "abort", 12, "--yes"), ("abort", 12)),
        (("procedures", "cancel", 12, "--yes"), ("cancel", 12)),
        (("procedures", "bypass", 12, "--yes"), ("bypass", 12)),
        (("procedures", "show", 12), ("one", 12, 0)),
        (("reassign", "show", 12, "-o", "json"), ("moves", 12)),
        (("reassign", "set", 12, "--bytes-max", 9), ("command", 12, {"bytes_max": 9})),
        (("reassign", "set", 12, "--broker-bytes-max", 9), ("command", 12, {"broker_bytes_max": 9})),
        (("reassign", "set", 12, "--throttle", 0), ("command", 12, {"rate_bytes_per_s": 0})),
        (
            ("reassign", "set", 12, "--bytes-max", 0, "--broker-bytes-max", 0),
            ("command", 12, {"bytes_max": 0, "broker_bytes_max": 0}),
        ),
        (("reassign", "resume", 12, "--throttle", 0), ("command", 12, {"paused": False, "rate_bytes_per_s": 0})),
    ],
)
def test_each_command_is_one_request(view: Answering, arguments: tuple[object, ...], request_: tuple[Any, ...]) -> None:
    regent(*arguments)
    assert view.of("procedures", "plans") == [request_]


def test_reassignments_are_listed_and_those_of_other_clients_become_a_plan(view: Answering) -> None:
    assert [(one["partition"], one.get("pid"), one["by"]) for one in items("reassign", "list")] == [
        (0, 12, "plan of uid 0"),
        (1, None, "another client"),
    ]
    view.calls.clear()
    regent("reassign", "adopt", "--topic", "orders", "--throttle", 7, "--reason", "too fast", "--yes")
    _, (name, request, _) = view.of("procedures", "plans")
    assert (name, request.adopts, request.rate_bytes_per_s, request.reason) == ("apply", True, 7, "too fast")
    assert [(move.partition, move.origin, move.target) for move in request.moves] == [(1, (1, 2), (3, 2))]
    refused = unwrapped(regent("reassign", "adopt", "--topic", "gone", "--yes", code=Exit.REFUSED).stderr)
    assert "no reassignment of another client is under way in gone" in refused


def test_a_change_of_nothing_is_refused(view: Answering) -> None:
    assert "give a cap or --throttle" in unwrapped(regent("reassign", "set", 12, code=Exit.USAGE).stderr)
    assert not view.of("procedures", "plans")


def test_the_moves_of_a_plan_are_shown_with_its_progress(view: Answering) -> None:
    view.progresses(progress="1.0 GB of 4.0 GB copied", copied_bytes=10**9, size_bytes=4 * 10**9)
    result = regent("reassign", "show", 12)
    assert "pid 12: 2 queued; 1.0 GB of 4.0 GB copied" in unwrapped(result.stderr)
    assert [column in result.stdout for column in ("COPIED", "BYTES/S", "LEFT-S", "WHY")] == [True] * 4
    assert "1.0 GB of 4.0 GB copied" in regent("procedures", "show", 12).stdout


@pytest.mark.parametrize("terminal", [False, True])
def test_a_wait_shows_a_line_at_each_change_or_a_bar_on_a_terminal(
    view: Answering, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1" if terminal else "")
    view.progresses(progress="1.0 GB of 4.0 GB copied", copied_bytes=10**9, size_bytes=4 * 10**9)
    said = regent("procedures", "wait", 12, "--timeout", 1, code=Exit.UNFINISHED).stderr
    assert "1.0 GB of 4.0 GB copied" in unwrapped(said)
    assert ("pid 12: 2 queued" in said, "━" in said) == (not terminal, terminal)


def test_lists_name_procedures_moves_and_locks() -> None:
    assert [item["pid"] for item in items("procedures", "list")] == [12, 13]
    assert [item["pid"] for item in items("procedures", "list", "--live")] == [12]
    assert [item["partition"] for item in items("reassign", "show", 12)] == [0, 1]
    assert items("locks")[0]["resource"] == "server reassignments"
    assert "2 queued" in regent("procedures", "list").stdout


@pytest.mark.seed("S2-9", "S2-33", "S2-57")
@pytest.mark.parametrize(("state", "code"), [("success", Exit.DONE), ("rolledback", Exit.FAILED)])
def test_a_wait_ends_with_the_procedure_and_its_end_is_the_exit_code(
    view: Answering, plan: Path, state: str, code: Exit
) -> None:
    view.ends(state)
    assert items("procedures", "wait", 12, code=code)[0]["state"] == state
    regent("reassign", "apply", plan, "--yes", "--wait", code=code)


def test_a_wait_without_an_end_names_the_way_to_go_on(view: Answering) -> None:
    said = unwrapped(regent("procedures", "wait", 12, "--timeout", 1.04, code=Exit.UNFINISHED).stderr)
    assert "procedure 12 has not ended after 1 s" in said, "the time has no digits that say nothing"
    assert "regent procedures wait 12" in said
    assert "2 queued" in said, "progress is shown"


def test_a_wait_goes_on_while_no_daemon_is_active(view: Answering) -> None:
    view.refuse = NotActive("this daemon is standby", "query the other one")
    said = unwrapped(regent("procedures", "wait", 12, "--timeout", 1, code=Exit.UNFINISHED).stderr)
    assert "this daemon is standby" in said
    assert len(view.of("procedures", "plans")) > 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(NotFound("procedure 12 is not known", "see the list"), Exit.FAILED), (ViewRefused("no", "wait"), Exit.REFUSED)],
)
def test_a_refusal_is_shown_with_its_remedy(view: Answering, error: Any, code: Exit) -> None:
    view.refuse = error
    said = unwrapped(regent("procedures", "wait", 12, code=code).stderr)
    assert error.message in said
    assert error.remedy in said


@pytest.mark.seed("S3-32", "S3-33")
def test_long_running_stuck_and_rolled_back_procedures_are_flagged_and_come_first(view: Answering) -> None:
    now = datetime.now(UTC)
    view.progresses(submitted=now)
    view.others = [
        Procedure(pid=3, kind="drain", state="rolledback", ended=True, submitted=now - timedelta(days=2)),
        Procedure(pid=4, kind="drain", state="runnable", submitted=now - timedelta(hours=3)),
        Procedure(pid=5, kind="drain", state="waiting_timeout", stuck=True, submitted=now - timedelta(minutes=1)),
        Procedure(pid=6, kind="drain", state="failed", submitted=now),
        Procedure(pid=7, kind="unknown", state="unknown", unusable="a newer daemon wrote it"),
        Procedure(pid=8, kind="drain", state="success", ended=True, bypassed=True, submitted=now),
    ]
    found = items("procedures", "list")
    assert [(item["pid"], item["flag"]) for item in found] == [
        (7, "unusable"),
        (4, "long"),
        (5, "stuck"),
        (6, "undoing"),
        (12, ""),
        (3, "rolled back"),
        (8, "bypassed"),
        (13, ""),
    ]
    table = regent("procedures", "list").stdout
    assert "FLAG" in table
    assert "rolled back" in table


def test_procedures_are_chosen_by_topic_and_broker(view: Answering) -> None:
    regent("procedures", "list", "--topic", "orders", "--broker", "3")
    assert view.of("procedures", "plans") == [("list_all", "orders", 3)]


@pytest.mark.seed("S3-32")
def test_locks_are_listed_with_their_holders(view: Answering) -> None:
    lock = items("locks")[0]
    assert (lock["pid"], lock["resource"], lock["exclusive"], lock["waiting"]) == (
        12,
        "server reassignments",
        True,
        False,
    )


# -- several procedures


@pytest.mark.parametrize("act", ["cancel", "abort", "bypass", "remove"])
def test_several_procedures_are_named_by_pids_or_by_a_file(view: Answering, tmp_path: Path, act: str) -> None:
    file = tmp_path / "pids.txt"
    file.write_text("12\n13\n", encoding="utf-8")
    assert [item["pid"] for item in items("procedures", act, 12, 13, "--yes")] == [12, 12]
    items("procedures", act, "--file", file, "--yes")
    assert view.of("procedures", "plans") == [(act, 12), (act, 13)] * 2


@pytest.mark.parametrize("act", ["cancel", "abort", "bypass", "remove"])
def test_the_end_of_a_procedure_is_requested_with_a_reason(view: Answering, act: str) -> None:
    regent("procedures", act, 12, 13, "--reason", "wrong rack", "--yes")
    regent("procedures", act, 12, "--yes")
    assert [reason for _, reason in view.reasons] == ["wrong rack", "wrong rack", ""]
    assert all(principal.startswith("uid ") for principal, _ in view.reasons)
    regent("procedures", act, 12, "--reason", "x" * (END_REASON_MAX + 1), "--yes", code=Exit.USAGE)
    assert len(view.reasons) == 3


@pytest.mark.parametrize("content", ["", "12 x", "0", "-1", "1\n" * 1_001, "\xff"])
def test_a_file_without_pids_is_refused_before_anything_is_sent(view: Answering, tmp_path: Path, content: str) -> None:
    file = tmp_path / "pids.txt"
    file.write_bytes(content.encode("latin-1"))
    regent("procedures", "abort", "--file", file, "--yes", code=Exit.USAGE)
    regent("procedures", "abort", 12, "--file", file, "--yes", code=Exit.USAGE)
    regent("procedures", "abort", "--yes", code=Exit.USAGE)
    assert not view.of("procedures", "plans")


def test_a_refusal_of_one_procedure_keeps_no_other_from_being_requested(view: Answering) -> None:
    view.refuse = ViewRefused("it has ended", "see 'regent procedures show'")
    said = unwrapped(regent("procedures", "abort", 12, 13, "--yes", code=Exit.REFUSED).stderr)
    assert said.count("it has ended") == 2
    assert view.of("procedures", "plans") == [("abort", 12), ("abort", 13)]


@pytest.mark.parametrize("arguments", [("procedures", "abort", 12), ("reassign", "cancel", 12, "--roll-back")])
def test_the_family_that_is_undone_with_a_child_is_named(view: Answering, arguments: tuple[object, ...]) -> None:
    assert "a part of" not in unwrapped(regent(*arguments, "--yes").stderr)
    view.progresses(parent=5)
    said = unwrapped(regent(*arguments, "--yes").stderr)
    assert "procedure 12 is a part of procedure 5, which is undone with it" in said


@pytest.mark.parametrize(("typed", "code"), [("reassign/12\n", Exit.DONE), ("12\n", Exit.REFUSED)])
def test_on_a_terminal_a_bypass_has_kind_and_pid_typed(
    view: Answering, monkeypatch: pytest.MonkeyPatch, typed: str, code: Exit
) -> None:
    monkeypatch.setattr("cli.commands.procedures.on_terminal", lambda: True)
    regent("procedures", "bypass", 12, code=code, typed=typed)
    assert (("bypass", 12) in view.of("procedures", "plans")) is (code is Exit.DONE)


def test_the_list_is_narrowed_by_kind_and_to_those_that_are_stuck(view: Answering) -> None:
    assert items("procedures", "list", "--kind", "drain") == []
    said = unwrapped(regent("procedures", "list", "--kind", "drains", code=Exit.USAGE).stderr)
    assert "there is no kind drains" in said
    assert "the kinds are alter-partition-reassignments" in said
    assert [item["pid"] for item in items("procedures", "list", "--kind", "reassign", "--live")] == [12]
    assert items("procedures", "list", "--stuck") == []
    view.procedure = Procedure(pid=12, kind="reassign", state="runnable", stuck=True)
    assert [item["pid"] for item in items("procedures", "list", "--stuck")] == [12]
    for trouble in ({"parked": "its step ended 3 terms in a row"}, {"unusable": "its checksum differs"}):
        view.procedure = Procedure(pid=13, kind="reassign", state="runnable", **trouble)
        assert [item["flag"] for item in items("procedures", "list", "--stuck")] == list(trouble)


def test_locks_that_are_waited_for_have_their_holders() -> None:
    [found] = items("locks", "--waiting")
    assert (found["pid"], found["heldBy"]) == (13, [12])
    assert len(items("locks")) == 2
