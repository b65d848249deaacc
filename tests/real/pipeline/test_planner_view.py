"""regent reassign plan --balance: the planner on the cluster as ZooKeeper and brokers show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="NumPy is not installed")
pytest.importorskip("numba", reason="Numba is not installed")

from cli import planning
from cli.exit_codes import Exit
from pipeline.planner.view import balanced
from state_machines.model.types import Assignment
from state_machines.planning.json_files import decode_plan
from tests.kit.command import regent, unwrapped
from tests.kit.kafka.planner_views import cluster, viewed
from tests.kit.kafka.planning import make_view, moves_of

pytestmark = pytest.mark.timeout(600)

RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "c", 4: "d"}


def test_a_new_broker_gets_replicas_and_racks_stay_distinct() -> None:
    view = make_view(RACKS, {f"t{i}": [((i % 3) + 1, ((i + 1) % 3) + 1)] for i in range(30)})
    plan = balanced(view, None)
    loads = {load.broker: load.replicas_after for load in plan.summary.brokers}
    assert (plan.refused, plan.summary.rack_violations_after) == ((), 0)
    assert all(13 <= count <= 17 for count in loads.values())
    assert plan.goal == "balance all brokers"


def test_only_chosen_topics_move_and_neither_those_that_move_already_nor_those_being_deleted() -> None:
    placed: list[Any] = [(1, 2)] * 6
    view = make_view(
        RACKS,
        {"a": placed, "b": placed, "gone": placed, "moving": [Assignment((1, 2, 3), adding=(3,), removing=(1,))]},
        deleting=["gone"],
    )
    moved = {name.rpartition("-")[0] for name in moves_of(balanced(view, ("a", "gone", "moving")))}
    assert moved == {"a"}


def test_replicas_leave_dead_brokers_and_cordoned_ones_get_none() -> None:
    view = make_view(RACKS, {"t": [(1, 2), (2, 3), (3, 1)] * 4}, dead=[1], cordoned=[4])
    plan = balanced(view, None)
    targets = {broker for _, target in moves_of(plan).values() for broker in target}
    assert targets == {2, 3}
    assert not plan.refused


def test_what_cannot_be_reached_and_topics_that_do_not_exist_are_refused() -> None:
    view = make_view({1: "a", 2: "b"}, {"t": [(1, 2)]}, dead=[1])
    (refused,) = balanced(view, None).refused
    assert (refused.subject, "1 brokers may take any" in refused.why) == ("t-0", True)
    assert [one.subject for one in balanced(view, ("x",)).refused] == ["topic x"]
    assert [one.subject for one in balanced(make_view({1: "a"}, {"t": [(1,)]}, dead=[1]), None).refused] == ["brokers"]


def test_the_command_writes_a_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def make_balance(_: Any, topics: Any, warn: Any, *, sizes: bool) -> Any:
        return balanced(await viewed(await cluster(1, 2, 3), [], sizes=sizes), topics)

    monkeypatch.setattr(planning, "make_balance", make_balance)
    settings, out = tmp_path / "regent.toml", tmp_path / "plan.json"
    settings.write_text(
        '[zookeeper]\nconnect = "127.0.0.1:1"\n[controller]\nid = 1000001\n[listener]\nadvertised_host = "127.0.0.1"\n'
    )
    monkeypatch.setenv("REGENT_CONFIG", str(settings))
    regent("reassign", "plan", "--balance", "--out", out)
    saved = decode_plan(out.read_bytes())
    assert (saved.goal, [move.added for move in saved.moves]) == ("balance all brokers", [(3,)])
    words = unwrapped(regent("reassign", "plan", "--balance", "--restore-racks", code=Exit.USAGE).stderr)
    assert "several goals are given" in words
