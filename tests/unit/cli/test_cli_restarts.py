"""regent can-stop, can-remove and restart-next: exit codes, ids alone on stdout, and the file of a restart."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from cli.commands.restart import BROKERS_MAX
from cli.exit_codes import Exit
from controller.kafka.metrics.values import ShownMode
from controller.operator.brokers import Broker
from controller.operator.restarts import Hindrance, RestartNext
from controller.operator.status import Cluster
from state_machines.decisions.hindrances import StopCause
from tests.kit.answering import Answering
from tests.kit.command import items, regent, unwrapped

LAGS = Hindrance(
    cause="under-replicated",
    count=12,
    meaning="replicas on other brokers are not in sync",
    remedy="wait until they are",
    examples=["orders-0", "orders-3"],
    waits_for=[2],
)
BATCH = RestartNext(state="restart", why="restart brokers 1, 4 of rack a now", batch=[1, 4], rack="a", pending=[1, 4])
WAIT = RestartNext(state="wait", why="no broker may stop now", pending=[3], nearest=3, hindrances=[LAGS])
ENDED = RestartNext(state="ended", pid=12, why="restart 12 has ended: all 3 brokers were restarted")
DONE = RestartNext(state="done", why="all 3 brokers were restarted", restarted=[1, 2, 3])
PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "restart-brokers.md").read_text(encoding="utf-8")
EPOCHS = {1: 101, 2: 102, 3: 103}


@pytest.fixture(autouse=True)
def restarting(view: Answering) -> None:
    view.batches = [BATCH]


def since_of(file: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads(file.read_text())["brokers"]
    return found


@pytest.mark.parametrize(
    ("command", "yes", "no"),
    [
        ("can-stop", "brokers 1, 2 may stop together", "brokers 1, 2 must not stop together"),
        ("can-remove", "brokers 1, 2 may be removed", "brokers 1, 2 must not be removed"),
    ],
)
def test_yes_and_no_are_the_exit_code(view: Answering, command: str, yes: str, no: str) -> None:
    result = regent(command, 2, 1)
    assert yes in result.stderr
    assert result.stdout == ""
    view.hindrances = [LAGS]
    result = regent(command, 2, 1, code=Exit.REFUSED)
    assert result.stdout.splitlines()[1].split()[:4] == ["under-replicated", "12", "orders-0,orders-3", "2"]
    assert no in unwrapped(result.stderr)
    assert "Remedy for under-replicated: wait until they are" in result.stderr
    assert items(command, 1, code=Exit.REFUSED)[0]["hindrances"][0]["waitsFor"] == [2]


def test_accepted_causes_reach_the_daemon(view: Answering) -> None:
    regent("can-stop", 1, "--accept", "single-replica", "--accept", "offline")
    assert view.of("restarts") == [
        ("can_stop", frozenset({1}), frozenset({StopCause.SINGLE_REPLICA, StopCause.OFFLINE}))
    ]
    assert "accept" in regent("can-stop", 1, "--accept", "luck", code=Exit.USAGE).stderr
    regent("can-stop", code=Exit.USAGE)


def test_brokers_that_are_not_live_are_named() -> None:
    for command in ("can-remove", "can-stop"):
        said = unwrapped(regent(command, 9).stderr)
        assert "broker 9: not known; the brokers are 1,2,3" in said
        assert "together" not in said
        assert "0 partitions were judged" not in said


@pytest.mark.parametrize("command", ["can-stop 1", "can-remove 1", "restart-next"])
def test_a_standby_names_the_active_daemon(view: Answering, command: str) -> None:
    view.mode = ShownMode.STANDBY
    assert "1000002" in regent(*command.split(), code=Exit.UNREACHABLE).stderr


def test_a_batch_is_ids_alone_on_stdout() -> None:
    result = regent("restart-next")
    assert result.stdout == "1\n4\n"
    assert "restart brokers 1, 4 of rack a now" in result.stderr
    assert items("restart-next")[0]["batch"] == [1, 4]


def test_a_wait_prints_no_id_and_names_what_has_to_recover(view: Answering) -> None:
    view.batches = [WAIT]
    result = regent("restart-next", code=Exit.REFUSED)
    assert result.stdout == ""
    text = unwrapped(result.stderr)
    assert (
        "under-replicated (12: orders-0,orders-3): replicas on other brokers are not in sync; waits for broker 2"
        in text
    )


def test_the_end_prints_no_id_and_says_to_remove_the_file(view: Answering, tmp_path: Path) -> None:
    view.batches = [DONE]
    result = regent("restart-next", "--since", tmp_path / "since.json")
    assert result.stdout == ""
    assert "all 3 brokers were restarted" in result.stderr
    assert f"remove {tmp_path / 'since.json'} before the next restart" in unwrapped(result.stderr)
    assert "remove" not in regent("restart-next").stderr


def test_a_restart_that_has_ended_is_no_success_for_a_later_call(view: Answering) -> None:
    view.batches = [ENDED]
    for words in ((), ("--wait",)):
        result = regent("restart-next", *words, code=Exit.REFUSED)
        assert (result.stdout, "restart 12 has ended" in result.stderr) == ("", True)


def test_a_call_names_its_restart_by_pid(view: Answering) -> None:
    view.batches = [DONE]
    regent("restart-next", "--pid", 12)
    assert [query.pid for query in view.noted("restarts.next")] == [12]
    regent("restart-next", 2, "--pid", 12, code=Exit.USAGE)


def test_a_batch_of_no_restart_says_that_it_counts_nothing(view: Answering) -> None:
    assert "no restart was begun" in regent("restart-next").stderr
    view.batches = [BATCH.model_copy(update={"pid": 12})]
    assert "no restart was begun" not in regent("restart-next").stderr


def test_the_first_call_writes_the_epochs_and_later_calls_send_them(view: Answering, tmp_path: Path) -> None:
    file = tmp_path / "since.json"
    regent("restart-next", "--since", file, "--batch-max", 2)
    assert since_of(file) == {str(broker): epoch for broker, epoch in EPOCHS.items()}
    view.answers["brokers.listed"] = [Broker(id=1, epoch=900)]
    regent("restart-next", "--since", file)
    assert [(query.since, query.batch_max) for query in view.noted("restarts.next")] == [(EPOCHS, 2), (EPOCHS, 1_000)]
    assert [path.name for path in tmp_path.iterdir()] == ["since.json"]


def test_without_a_file_ids_send_their_present_epochs_and_nothing_the_daemon_keeps_its_own(view: Answering) -> None:
    regent("restart-next")
    regent("restart-next", 2, 3)
    assert [query.since for query in view.noted("restarts.next")] == [{}, {2: 102, 3: 103}]


def test_a_restart_that_the_daemon_keeps_is_begun_with_its_bounds(view: Answering) -> None:
    regent("restart", "begin", 2, 3, "--batch-max", 1, "--accept", "single-replica", "--reason", "new kernel")
    regent("restart", "begin")
    first, second = view.noted("restarts.begin")
    assert (first.brokers, first.batch_max, first.accept, first.reason) == (
        [2, 3],
        1,
        [StopCause.SINGLE_REPLICA],
        "new kernel",
    )
    assert (second.brokers, second.batch_max, second.nonce == first.nonce) == ([], 1_000, False)


@pytest.mark.parametrize("words", [("--accept", "nothing"), ("--batch-max", 0), ("-1",)])
def test_a_restart_with_bad_bounds_is_a_usage_error(view: Answering, words: tuple[object, ...]) -> None:
    regent("restart", "begin", *words, code=Exit.USAGE)
    assert not view.noted("restarts.begin")


def test_a_restart_of_some_brokers_keeps_those_alone(tmp_path: Path) -> None:
    file = tmp_path / "since.json"
    regent("restart-next", 1, 3, "--since", file)
    assert since_of(file) == {"1": 101, "3": 103}
    assert "names the brokers of this restart already" in unwrapped(
        regent("restart-next", 1, "--since", file, code=Exit.USAGE).stderr
    )


def test_a_broker_that_is_down_is_no_start_of_a_restart(view: Answering, tmp_path: Path) -> None:
    file = tmp_path / "since.json"
    assert "broker 9 is not registered" in regent("restart-next", 1, 9, "--since", file, code=Exit.REFUSED).stderr
    assert not file.exists()
    dead = [Broker(id=1, epoch=101), Broker(id=2, state="dead")]
    view.answers["brokers.listed"] = dead
    regent("restart-next", "--since", file)
    assert since_of(file) == {"1": 101}


@pytest.mark.parametrize(("brokers", "code"), [(BROKERS_MAX, Exit.DONE), (BROKERS_MAX + 1, Exit.USAGE)])
def test_the_brokers_of_one_restart_are_bounded(view: Answering, tmp_path: Path, brokers: int, code: Exit) -> None:
    many = [Broker(id=b, epoch=2**62) for b in range(1_000, 1_000 + brokers)]
    view.answers["brokers.listed"] = many
    regent("restart-next", "--since", tmp_path / "since.json", code=code)
    assert [len(query.since) for query in view.noted("restarts.next")] == ([BROKERS_MAX] if code is Exit.DONE else [])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "does not hold the start of a restart"),
        ("[]", "does not hold the start of a restart"),
        ('{"clusterId": "abc"}', "does not hold the start of a restart"),
        ('{"clusterId": "abc", "brokers": {"x": 1}}', "does not hold the start of a restart"),
        ('{"clusterId": "abc", "brokers": {}}', "does not hold the ids and epochs of 1 to 500 brokers"),
        ('{"clusterId": "abc", "brokers": {"1": -1}}', "does not hold the ids and epochs of 1 to 500 brokers"),
        ('{"clusterId": "other", "brokers": {"1": 1}}', "is of the cluster other, not of abc"),
    ],
)
def test_a_file_that_is_no_start_is_refused_with_its_remedy(
    view: Answering, tmp_path: Path, content: str, why: str
) -> None:
    file = tmp_path / "since.json"
    file.write_text(content)
    text = unwrapped(regent("restart-next", "--since", file, code=Exit.USAGE).stderr)
    assert why in text
    assert "remove it to begin anew" in text
    assert view.noted("restarts.next") == []
    assert file.read_text() == content


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    assert "cannot be read" in unwrapped(regent("restart-next", "--since", tmp_path, code=Exit.USAGE).stderr)
    nowhere = tmp_path / "no" / "since.json"
    assert "cannot be written" in unwrapped(regent("restart-next", "--since", nowhere, code=Exit.FAILED).stderr)


def test_a_cluster_without_an_id_is_one_cluster(view: Answering, tmp_path: Path) -> None:
    unnamed = Cluster(
        cluster_id=None, controller_id=1, controller_epoch=7, ibp="3.9-IV0", on_absence="brokers", role_flag="regent"
    )
    view.answers["whole.cluster"] = unnamed
    for _ in range(2):
        regent("restart-next", "--since", tmp_path / "since.json")


def test_waiting_ends_with_the_first_batch_and_reports_each_reason_once(
    view: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.commands.restarting.POLL_S", 0.0)
    view.batches = [WAIT, WAIT, WAIT, BATCH]
    result = regent("restart-next", "--wait")
    assert result.stdout == "1\n4\n"
    assert result.stderr.count("no broker may stop now") == 1
    view.batches = [WAIT, DONE]
    assert regent("restart-next", "--wait").stdout == ""


def test_waiting_too_long_is_unfinished(view: Answering) -> None:
    view.batches = [WAIT]
    with mock.patch("cli.commands.restarting.time", autospec=True) as clock:
        clock.monotonic.side_effect = [0.0, 1.0, 4.9, 5.0]
        result = regent("restart-next", "--wait", "--timeout", 5, code=Exit.UNFINISHED)
    assert len(view.noted("restarts.next")) == 3
    assert "no broker may stop now" in result.stderr


@pytest.mark.parametrize(("ids", "queries"), [((), 4), ((2, 3), 2)])
def test_waiting_goes_on_over_a_failover(view: Answering, ids: tuple[int, ...], queries: int) -> None:
    """A standby refuses two queries. Where brokers are named, it refuses their epochs before."""
    pauses: list[float] = []

    def passes(seconds: float) -> None:
        pauses.append(seconds)
        view.mode = ShownMode.ACTIVE if len(pauses) > 1 else ShownMode.STANDBY

    view.mode, view.batches = ShownMode.STANDBY, [WAIT, BATCH]
    with mock.patch("cli.commands.restarting.time", autospec=True) as clock:
        clock.monotonic.return_value, clock.sleep.side_effect = 0.0, passes
        result = regent("restart-next", *ids, "--wait")
    assert (result.stdout, len(pauses)) == ("1\n4\n", 3)
    assert result.stderr.count("this daemon is standby") == 1
    assert [list(query.since) for query in view.noted("restarts.next")] == [list(ids)] * queries


def test_waiting_without_a_daemon_to_the_end_is_unfinished(view: Answering) -> None:
    view.mode = ShownMode.STANDBY
    with mock.patch("cli.commands.restarting.time", autospec=True) as clock:
        clock.monotonic.side_effect = [0.0, 1.0, 5.0]
        result = regent("restart-next", "--wait", "--timeout", 5, code=Exit.UNFINISHED)
    assert "no daemon judged the restart" in unwrapped(result.stderr)


def test_the_documented_commands_run_in_their_order(
    view: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    documented = re.findall(r"(?m)^regent (.*)$", PAGE)
    assert {line.split()[0] for line in documented} == {
        "can-stop",
        "can-remove",
        "restart-next",
        "restart",
        "procedures",
        "end",
        "cordon",
        "uncordon",
        "drain",
        "undrain",
        "shutdown",
        "pause",
        "resume",
        "status",
        "list",
    }
    view.ends("success")
    for line in documented:
        view.batches = [DONE if line.startswith("restart run") else BATCH]
        regent(*shlex.split(line))
    assert (
        len(view.noted("restarts.can_stop", "restarts.can_remove")),
        len(view.noted("restarts.next")),
        len(view.noted("restarts.begin")),
    ) == (4, 4, 2)


def test_the_documented_causes_are_all_causes() -> None:
    assert re.findall(r"(?m)^\| `([a-z-]+)` \|", PAGE) == list(StopCause)


@pytest.mark.parametrize(("last", "code"), [(DONE, Exit.DONE), (WAIT, Exit.UNFINISHED)])
def test_the_documented_script_restarts_batch_by_batch(
    view: Answering, tmp_path: Path, last: RestartNext, code: Exit
) -> None:
    """Runs the script with a shell; ``ssh`` notes its arguments, and the timeout is shorter than documented."""
    script = PAGE.split("```sh\n")[1].split("```")[0].replace("--timeout 1800", "--timeout 1")
    (tmp_path / "restart.sh").write_text(script)
    _program(tmp_path / "regent", f'exec {sys.executable} -c "from cli.main import main; main()" "$@"')
    _program(tmp_path / "ssh", f'echo "$@" >> {tmp_path}/restarted')
    view.batches = [BATCH, BATCH.model_copy(update={"batch": [2]}), last]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(root)}
    ended = subprocess.run(
        ["sh", "restart.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stderr
    lines = (tmp_path / "restarted").read_text().splitlines()
    assert sorted(lines[:2]) == [f"broker-{b} sudo systemctl restart kafka" for b in (1, 4)]
    assert lines[2:] == ["broker-2 sudo systemctl restart kafka"]
    if code is Exit.DONE:
        assert not (tmp_path / "restart.json").exists(), "the next run begins anew"
    else:
        assert len(since_of(tmp_path / "restart.json")) == 3


def _program(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)
