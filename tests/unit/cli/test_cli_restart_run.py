"""regent restart run against the double of a daemon: batches, commands that fail, brokers that stay away, kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from cli.exit_codes import Exit
from controller.http.procedures import Procedure
from controller.operator.restarts import Hindrance, RestartNext
from state_machines.decisions.hindrances import REMEDIES, StopCause
from tests.kit.answering import Answering
from tests.kit.command import regent, unwrapped
from tests.kit.deadlines import eventually


def batch(*brokers: int) -> RestartNext:
    why = f"restart brokers {list(brokers)} now"
    return RestartNext(state="restart", pid=12, why=why, batch=list(brokers), pending=list(brokers))


DOWN = RestartNext(state="wait", pid=12, why="broker 1 must come back first; 0 of 2 were restarted", down=[1])
DONE = RestartNext(state="done", pid=12, why="restart 12 has ended: all 3 brokers were restarted")
ENDED = RestartNext(state="ended", pid=12, why="restart 12 was ended by uid 0")
RUNNING = Procedure(pid=12, kind="restart", state="waiting_timeout")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cli.commands.restarting", "cli.commands.restart_run"):
        monkeypatch.setattr(f"{module}.POLL_S", 0.0)


def test_each_broker_gets_its_command_once_until_all_are_back(view: Answering, tmp_path: Path) -> None:
    view.batches = [batch(1, 4), batch(4), DOWN, DOWN, batch(2), DOWN, DONE]
    said = regent("restart", "run", "--command", f"echo {{}} >> {tmp_path}/log", "--reason", "new kernel")
    assert sorted((tmp_path / "log").read_text().split()) == ["1", "2", "4"]
    [begun] = view.noted("restarts.begin")
    assert begun.reason == "new kernel"
    assert {query.pid for query in view.noted("restarts.next")} == {12}
    assert "all 3 brokers were restarted" in said.stderr
    assert said.stdout == "", "what commands print is no data"


def test_a_command_that_fails_ends_the_call_and_keeps_the_restart(view: Answering, tmp_path: Path) -> None:
    view.batches = [batch(1, 4), batch(2), DONE]
    text = f"echo {{}} >> {tmp_path}/log; test {{}} -ne 4"
    said = unwrapped(regent("restart", "run", "--command", text, code=Exit.FAILED).stderr)
    assert "the command failed for broker 4 with 1; no further broker is restarted" in said
    assert "'regent end 12' ends the restart" in said
    assert sorted((tmp_path / "log").read_text().split()) == ["1", "4"]


def test_the_first_broker_that_does_not_return_ends_the_call(view: Answering, tmp_path: Path) -> None:
    view.batches = [batch(1), DOWN]
    with mock.patch("cli.commands.restarting.time", autospec=True) as clock:
        clock.monotonic.side_effect = [0.0, 0.0, 1.0, 5.0, 6.0]
        result = regent(
            "restart", "run", "--command", f"echo {{}} >> {tmp_path}/log", "--timeout", 5, code=Exit.UNFINISHED
        )
    said = unwrapped(result.stderr)
    assert "no further broker is restarted, after 5 s: broker 1 must come back first" in said
    assert (tmp_path / "log").read_text() == "1\n"


DEAD = RestartNext(
    state="wait", pid=12, why="broker 1 must come back first; 0 of 3 were restarted", down=[1], pending=[2, 3]
)


def test_a_broker_that_is_dead_already_is_named_at_once_and_each_minute_with_the_ways_out(view: Answering) -> None:
    view.batches = [DEAD] * 4 + [DONE]
    with mock.patch("cli.commands.restarting.time", autospec=True) as clock:
        clock.monotonic.side_effect = [0.0, 0.0, 30.0, 60.0, 150.0]
        said = unwrapped(regent("restart", "run", "--command", "true {}").stderr)
    why = "broker 1 must come back first; 0 of 3 were restarted"
    assert said.count(why) == 3, "at once, after a minute, and after the next"
    assert f"{why}; 60 s of 30 min have passed" in said
    remedy = "Remedy: start broker 1, or 'regent end 12' ends the restart, and a new one with the ids 2 3 leaves"
    assert f"{remedy} broker 1 out" in said


def test_what_no_broker_may_stop_for_is_said_with_the_option_that_accepts_it(view: Answering) -> None:
    hindrance = Hindrance(cause="single-replica", count=1, meaning="it is the only one", remedy="add one")
    waits = RestartNext(state="wait", pid=12, why="no broker may stop now", pending=[1], hindrances=[hindrance])
    view.batches = [waits, DONE]
    said = unwrapped(regent("restart", "run", "--command", "true {}").stderr)
    assert "Remedy: wait, leave a cause out with --accept, or 'regent end 12' ends the restart" in said


def test_a_command_that_has_ended_without_a_stop_is_said_while_the_call_waits(view: Answering) -> None:
    view.batches = [batch(3), batch(3), batch(3), DONE]
    said = unwrapped(regent("restart", "run", "--command", "true {}").stderr)
    assert "the command for broker 3 has ended: waits for the stop and the return" in said


def test_a_command_that_restarts_nothing_ends_the_call(view: Answering) -> None:
    view.batches = [batch(3)]
    said = unwrapped(regent("restart", "run", "--command", "true {}", "--timeout", 1, code=Exit.UNFINISHED).stderr)
    assert "broker 3 did not register anew" in said


def test_a_restart_that_somebody_ends_meanwhile_stops_the_call(view: Answering) -> None:
    view.batches = [batch(1), DOWN, ENDED]
    assert "was ended by uid 0" in regent("restart", "run", "--command", "true {}", code=Exit.REFUSED).stderr


def test_a_call_goes_on_with_the_restart_that_runs_if_it_is_of_the_same_brokers(view: Answering) -> None:
    view.others = [RUNNING]
    view.batches = [DONE.model_copy(update={"restarted": [1, 2, 3]})]
    assert "goes on with restart 12" in regent("restart", "run", 3, 2, 1, "--command", "true {}").stderr
    accepted = ("--accept", "single-replica", "--batch-max", 1)
    assert "this call accepts single-replica, too" in regent("restart", "run", *accepted, "--command", "true {}").stderr
    asked = view.noted("restarts.next")[-1]
    assert (asked.accepted, asked.batch_max, asked.pid) == (frozenset({StopCause.SINGLE_REPLICA}), 1, 12)
    assert "--accept single-replica" in REMEDIES[StopCause.SINGLE_REPLICA], "its remedy names the option"
    said = unwrapped(regent("restart", "run", 3, "--command", "true {}", code=Exit.REFUSED).stderr)
    assert "restart 12 runs already, of brokers 1, 2, 3" in said
    assert not view.noted("restarts.begin")


def test_a_command_without_a_place_for_the_broker_is_a_usage_error(view: Answering) -> None:
    assert "no {}" in unwrapped(regent("restart", "run", "--command", "reboot", code=Exit.USAGE).stderr)
    assert not view.noted("restarts.begin")


def test_a_call_that_is_killed_is_repeated_and_goes_on(view: Answering, tmp_path: Path) -> None:
    view.batches = [batch(1)]
    script = f"echo {{}} >> {tmp_path}/log; exec sleep 60"
    words = [sys.executable, "-c", "from cli.main import main; main()", "restart", "run", "--command", script]
    process = subprocess.Popen(words, cwd=Path(__file__).parents[3], env=dict(os.environ), start_new_session=True)
    try:
        asyncio.run(eventually((tmp_path / "log").exists))
        process.kill()
        process.wait()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    view.others = [RUNNING]
    view.batches = [DOWN, batch(2), DONE]
    regent("restart", "run", "--command", f"echo {{}} >> {tmp_path}/log")
    assert ((tmp_path / "log").read_text(), len(view.noted("restarts.begin"))) == ("1\n2\n", 1)
