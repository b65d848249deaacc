"""regent reassign plan on an in-memory ZooKeeper: goals, files, summaries and refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli import planning
from cli.exit_codes import Exit, Failure
from controller.http.documents import NotFound
from metadata_store import paths
from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.goals import Decommission
from state_machines.planning.json_files import decode_plan
from state_machines.planning.planner import plan
from tests.kit.answering import Answering, daemon_in_thread
from tests.kit.command import items, regent, unwrapped
from tests.kit.kafka.planner_views import cluster, viewed


async def test_the_view_has_brokers_topics_sizes_and_settings_of_zookeeper_and_brokers() -> None:
    said: list[str] = []
    view = await viewed(await cluster(1, 2, 3), said)
    assert (view.cluster_id, sorted(view.brokers), list(view.topics)) == ("here", [1, 2, 3], ["t"])
    assert view.sizes == {("t", 0): 699, ("t", 1): 9}, "the largest replica counts, future ones do not"
    assert (view.min_isr_of("t"), set(view.daemons), said) == (2, {1_000_001}, [])


async def test_what_cannot_be_read_is_said_and_left_out() -> None:
    said: list[str] = []
    zk = await cluster(1, 2, 3)
    await zk.create(paths.topic("broken"), b"{")
    await zk.create(paths.deletion("t"), None)
    view = await viewed(zk, said, silent=2)
    assert (list(view.topics), set(view.deleting)) == (["t"], {"t"})
    assert [text.partition(" ")[0] for text in said] == [paths.topic("broken"), "broker"]


async def test_without_a_cluster_id_nothing_is_planned() -> None:
    zk = await cluster(1, 2)
    await zk.delete(paths.CLUSTER_ID, -1)
    with pytest.raises(Failure, match="names no cluster"):
        await viewed(zk, [])


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replaces the connection to ZooKeeper; returns the settings file that each command needs."""

    async def make_plan(_: Any, goal: Any, warn: Any, *, sizes: bool) -> Any:
        return plan(await viewed(await cluster(1, 2, 3), [], sizes=sizes), goal)

    monkeypatch.setattr(planning, "make_plan", make_plan)
    file = tmp_path / "regent.toml"
    file.write_text(
        '[zookeeper]\nconnect = "127.0.0.1:1"\n[controller]\nid = 1000001\n[listener]\nadvertised_host = "127.0.0.1"\n',
        encoding="utf-8",
    )
    return file


def test_a_plan_shows_costs_and_writes_its_file(planned: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    shown = regent("reassign", "plan", "--decommission", 2, "--out", out, "--config", planned)
    assert "decommission brokers 2: 2 moves, 708 B to copy" in unwrapped(shown.stderr)
    assert "2 -> 0" in shown.stdout
    saved = decode_plan(out.read_bytes())
    assert (saved.cluster_id, [move.partition for move in saved.moves]) == ("here", [0, 1])
    assert saved.moves[0].bytes == 699


def test_a_plan_shows_the_time_that_it_takes_at_a_rate(planned: Path) -> None:
    for rate, worded in (7, "7 B"), ("50M", "50.0 MB"):
        shown = regent("reassign", "plan", "--decommission", 2, "--rate", rate, "--config", planned)
        assert f"at {worded}/s for each broker and direction: broker " in unwrapped(shown.stderr)
    for wrong in ("10m", "1M..2M", "0"):
        refused = regent("reassign", "plan", "--decommission", 2, "--rate", wrong, code=Exit.USAGE).stderr
        assert f"{wrong}: give bytes per second, at least 1" in unwrapped(refused)


def test_programs_get_the_moves(planned: Path) -> None:
    found = items("reassign", "plan", "--decommission", 2, "--config", planned)
    assert [(item["partition"], 2 in item["target"]) for item in found] == [(0, False), (1, False)]


def test_refusals_are_grouped_and_end_with_their_exit_code(planned: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    shown = regent("reassign", "plan", "--decommission", 1, "--decommission", 2, "--out", out, "--config", planned,
                   code=Exit.REFUSED)  # fmt: skip
    assert "refused: t-0 and 1 more" in unwrapped(shown.stderr)
    assert "nothing is to be moved:" in shown.stderr, "an older file of that name is not taken for this plan"
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "no goal is given"),
        (("--decommission", 1, "--add", 3), "several goals are given"),
        (("--replication-factor", 2), "--replication-factor needs topics"),
        (("--target", "/no/such/file"), "/no/such/file cannot be read: No such file or directory"),
        (("--undo", "/no/such/file"), "/no/such/file cannot be read: No such file or directory"),
    ],
)
def test_one_goal_is_given(planned: Path, options: tuple[object, ...], why: str) -> None:
    shown = regent("reassign", "plan", *options, "--config", planned, code=Exit.USAGE)
    assert why in unwrapped(shown.stderr)


def test_a_target_is_a_file_of_kafkas_tool(planned: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.json"
    wanted.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1]}]}), encoding="utf-8"
    )
    [move] = items("reassign", "plan", "--target", wanted, "--config", planned)
    assert (move["origin"], move["target"]) == ([1, 2], [3, 1])


def test_a_view_is_planned_without_sizes_too() -> None:
    view = asyncio.run(_without_sizes())
    found = plan(view, Decommission((2,)))
    assert [move.bytes for move in found.moves] == [None, None]


async def _without_sizes() -> ClusterView:
    return await viewed(await cluster(1, 2, 3), [], sizes=False)


def undo(planned: Path, named: object, *words: object, code: Exit = Exit.DONE) -> str:
    return unwrapped(regent("reassign", "plan", "--undo", named, *words, "--config", planned, code=code).stderr)


def test_the_way_back_of_a_file_is_a_plan(planned: Path, tmp_path: Path) -> None:
    """The topic t is on 1 and 2 now: a file that moved it there from 3 is undone, and one that did not is refused."""
    file, back = tmp_path / "plan.json", tmp_path / "back.json"
    move = {"topic": "t", "partition": 0, "origin": [3, 2], "target": [1, 2], "bytes": None}
    saved = {"version": 1, "cluster_id": "here", "goal": "a test", "moves": [move]}
    file.write_text(json.dumps(saved))
    assert "undo the plan of plan.json: 1 moves" in undo(planned, file, "--out", back)
    assert [(one.origin, one.target) for one in decode_plan(back.read_bytes()).moves] == [((1, 2), (3, 2))]
    file.write_text(json.dumps(saved | {"moves": [move | {"target": [2, 3, 1]}]}))
    assert "it was moved since" in undo(planned, file, code=Exit.REFUSED)
    said = undo(planned, file, "--topic", "other", code=Exit.REFUSED)
    assert "the plan of plan.json moved none of the topics that are chosen" in said
    file.write_text('{"version": 1, "partitions": []}')
    assert "it has the former replicas" in undo(planned, file, code=Exit.USAGE)
    file.write_text(json.dumps(saved))
    assert "several goals" in undo(planned, file, "--restore-racks", code=Exit.USAGE)


def test_the_way_back_of_a_procedure_is_read_from_the_daemon(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Answering()
    with daemon_in_thread(tmp_path, double) as socket:
        monkeypatch.setenv("REGENT_SERVER", str(socket))
        assert "regent end 12 --undo takes it back" in undo(planned, 12, code=Exit.REFUSED)
        double.ends("success")
        said = undo(planned, 12, code=Exit.REFUSED)
        assert "undo procedure 12: 0 moves" in said
        assert "orders-0 and 1 more: it does not exist any more" in said
        double.refuse = NotFound("no reassign plan has pid 13", "look")
        double.answers["procedures.list_all"] = []
        assert "give the plan's file" in undo(planned, 13, code=Exit.REFUSED)
