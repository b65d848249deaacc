"""Files of the planner: racks and capacities in, plans in parts and files of Kafka's tool out; the command itself."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="NumPy is not installed")
pytest.importorskip("numba", reason="Numba is not installed")

from cli.commands.reassign import read_plan
from cli.exit_codes import Exit
from pipeline.inputs import BadInput
from pipeline.planner import output
from pipeline.planner.broker_file import GivenBroker, read_brokers
from pipeline.planner.broker_sets import read_sets
from pipeline.planner.parting import in_parts
from pipeline.planner.problem import Problem
from pipeline.planner.scenarios import read_scenarios, side_by_side
from state_machines.planning.json_files import decode_plan
from tests.kit.command import items, regent, unwrapped
from tests.kit.kafka.planning import CLUSTER_ID
from tests.real.pipeline.planner_kit import cluster, plan
from tests.real.pipeline.test_inputs import BODY, END, HEADER, write

pytestmark = pytest.mark.timeout(600)

PLACED = [(1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1)]


@pytest.fixture
def assignment(tmp_path: Path) -> Path:
    """Writes six partitions on brokers 1 and 2."""
    listed = [{"topic": "t", "partition": at, "replicas": list(p)} for at, p in enumerate(PLACED)]
    file = tmp_path / "now.json"
    file.write_text(json.dumps({"version": 1, "partitions": listed}))
    return file


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    """Writes three brokers, of which the last one is new."""
    file = tmp_path / "brokers.csv"
    file.write_text("broker,rack\n1,a\n2,b\n3,c\n")
    return file


def test_racks_and_capacities_are_read(tmp_path: Path) -> None:
    file = tmp_path / "b.csv"
    file.write_text("broker,rack,disk_bytes\n1,a,1e12\n2,,\n")
    assert read_brokers(file) == {1: GivenBroker("a", 1e12), 2: GivenBroker()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id\n1\n", "no column broker|unknown columns id"),
        ("broker,color\n1,red\n", "unknown columns color"),
        ("broker\nx\n", "line 2: broker = 'x' is no broker id"),
        ("broker,rack\n*,a\n", r"line 2: rack = 'a' of \*: give racks in lines of single brokers"),
        ("broker\n*\n*\n", r"line 3: broker = \* is there twice"),
        ("broker\n1\n1\n", "line 3: broker = 1 is there twice"),
        ("broker,disk_bytes\n1,-5\n", "line 2: disk_bytes = '-5': give a number above 0"),
        ("broker,disk_bytes\n1,much\n", "line 2: disk_bytes = 'much'"),
    ],
)
def test_a_wrong_file_of_brokers_is_refused_by_line_and_field(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "b.csv"
    file.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_brokers(file)


def test_one_line_gives_the_capacity_of_all_brokers_without_a_line(tmp_path: Path) -> None:
    file = tmp_path / "b.csv"
    file.write_text("broker,disk_bytes\n*,1e12\n2,4e12\n")
    problem = cluster({1: "a", 2: "b", 3: "c"}, {"t": PLACED}, given=read_brokers(file))
    assert problem.brokers.ids.tolist() == [1, 2, 3]
    assert problem.brokers.disk.tolist() == [1e12, 4e12, 1e12]


def test_a_plan_for_apply_has_reasons_and_the_replicas_that_it_expects(
    assignment: Path, brokers: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plan.json"
    said = regent(
        "pipeline", "plan", "--from-assignment", assignment, "--brokers", brokers, "--retire", 1, "--rate", "1M",
        "--cluster-id", CLUSTER_ID, "--out", out,
    )  # fmt: skip
    assert f"regent reassign apply {out}" in unwrapped(said.stderr)
    assert "size is unknown of all partitions: no goal looks at it ('regent loads' has it" in unwrapped(said.stderr)
    assert "the bytes to copy are not known" in unwrapped(said.stderr)
    assert {move["reason"] for move in json.loads(out.read_bytes())["moves"]} == {
        "no replica on dead or retiring brokers"
    }
    assert len(read_plan(out)["moves"]) == 6
    saved = decode_plan(out.read_bytes())
    assert saved.cluster_id == CLUSTER_ID
    assert {(move.partition, move.origin) for move in saved.moves} == set(enumerate(PLACED))


def test_programs_get_the_moves(assignment: Path, brokers: Path) -> None:
    found = items("pipeline", "plan", "--from-assignment", assignment, "--brokers", brokers, "--retire", "2")
    assert len(found) == 6
    assert all(2 not in move["target"] and move["reason"] for move in found)
    assert {move["sizeBytes"] for move in found} == {None}


def test_parts_of_an_earlier_plan_and_loads_of_another_cluster_are_told(
    assignment: Path, brokers: Path, tmp_path: Path
) -> None:
    loads, older, other = tmp_path / "loads.csv", tmp_path / "plan-4.json", tmp_path / "plan-b.json"
    loads.write_text("topic,partition,size_bytes\nt,0,7\nelsewhere,0,7\n")
    older.touch()
    other.touch()
    said = regent(
        "pipeline", "plan", "--from-assignment", assignment, "--brokers", brokers, "--retire", 2, "--loads", loads,
        "--cluster-id", CLUSTER_ID, "--parts", 3, "--out", tmp_path / "plan.json",
    )  # fmt: skip
    assert f"1 rows of {loads} are about partitions that are not in the cluster" in unwrapped(said.stderr)
    told = f"not of this plan, remove what an earlier one left: {older}"
    assert unwrapped(said.stderr).rstrip().endswith(told)


def test_files_for_kafkas_tool_come_in_parts_each_with_its_way_back(
    assignment: Path, brokers: Path, tmp_path: Path
) -> None:
    out = tmp_path / "moves.json"
    regent(
        "pipeline", "plan", "--from-assignment", assignment, "--brokers", brokers, "--retire", "1",
        "--export", "kafka", "--parts", "2", "--out", out,
    )  # fmt: skip
    names = sorted(file.name for file in tmp_path.glob("moves*"))
    assert names == ["moves-1.json", "moves-1.rollback.json", "moves-2.json", "moves-2.rollback.json"]
    there, back = (
        [one for name in names if ("rollback" in name) == rolls for one in _partitions(tmp_path / name)]
        for rolls in (False, True)
    )
    assert all(1 not in one["replicas"] for one in there)
    assert {(one["partition"], tuple(one["replicas"])) for one in back} == set(enumerate(PLACED))


PAGE = Path(__file__).parents[3] / "docs/how-to/plan-a-rebalance.md"


def test_the_commands_of_the_page_run_on_its_files(
    assignment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"(?s)```\n(.*?)```", PAGE.read_text(encoding="utf-8"))
    loads, brokers, scenarios, sets, disks = (block for block in blocks if not block.startswith("regent"))
    (tmp_path / "scenarios.json").write_text(scenarios)
    (tmp_path / "loads.csv").write_text(loads)
    (tmp_path / "brokers.csv").write_text(disks)
    assert read_brokers(tmp_path / "brokers.csv")[1].disk_bytes == 4e12
    (tmp_path / "sets.json").write_text(sets)
    assert read_sets(tmp_path / "sets.json")[0].brokers == (1, 2, 3)
    (tmp_path / "brokers.csv").write_text(brokers)
    listed = [{"topic": "orders", "partition": at, "replicas": [1, 2]} for at in range(2)]
    listed.append({"topic": "audit-log", "partition": 0, "replicas": [1, 3]})
    assignment.write_text(json.dumps({"version": 1, "partitions": listed}))
    (tmp_path / "snapshots").mkdir()
    write(tmp_path / "snapshots/0000000005-000000000017.jsonl.gz", [HEADER, *BODY, END])
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("regent pipeline")]
    assert len(commands) == 7
    for line in commands:
        # In this snapshot a broker is dead, and one of its partitions is being reassigned.
        said = regent(
            *shlex.split(line)[1:],
            code=Exit.REFUSED if "plan --snapshot" in line or "maintenance" in line else Exit.DONE,
        )
        if "--snapshot" in line:
            assert "the newest snapshot there is 0000000005-000000000017.jsonl.gz" in unwrapped(said.stderr)
    assert len(read_plan(Path("plan.json"))["moves"]) > 0
    assert Path("moves-1.rollback.json").exists()


SCENARIOS = [{"name": "now"}, {"name": "without 1", "retire": [1]}, {"name": "still", "exclude_topics": ["t"]}]


def test_scenarios_are_compared(assignment: Path, brokers: Path, tmp_path: Path) -> None:
    file = tmp_path / "scenarios.json"
    file.write_text(json.dumps(SCENARIOS))
    found = items("pipeline", "plan", "--from-assignment", assignment, "--brokers", brokers, "--scenarios", file)
    assert [one["scenario"] for one in found] == ["now", "without 1", "still"]
    assert [one["hardBroken"] for one in found] == [0, 0, 0]
    assert found[0]["partitions"] > 0 < found[1]["partitions"]
    assert (found[2]["partitions"], found[2]["softBroken"] > 0) == (0, True)
    words = regent("pipeline", "plan", "--scenarios", file, "--out", tmp_path / "x", code=Exit.USAGE).stderr
    assert "--scenarios compares plans and writes none" in unwrapped(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"retire": [1]}]', "missing required field `name`"),
        ('[{"name": "a"}, {"name": "a"}]', "name = 'a' is there twice"),
        ("[]", "has 0 scenarios: give 1 to 100"),
        ('[{"name": "a", "spread": 0}]', "spread"),
    ],
)
def test_a_wrong_file_of_scenarios_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "s.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_scenarios(file)


def test_the_searches_run_as_tasks_of_spark(spark: Any) -> None:
    from pipeline.executors import workers_of

    problems = [cluster({1: "a", 2: "b", 3: "c"}, {"t": PLACED}, retire=gone) for gone in ([], [2])]
    there = list(side_by_side(problems, 2, 0, workers_of(spark).each))
    here = list(side_by_side(problems, 2, 0, lambda function, values: list(map(function, values))))
    for one, other in zip(there, here, strict=True):
        assert (one.best.replicas == other.best.replicas).all()
        assert one.best.rank == other.best.rank


def test_only_some_scenarios_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.planner.scenarios.TRIED_MAX", 4)
    taken: list[int] = []
    together: list[int] = []

    def problems() -> Iterator[Problem]:
        for number in range(5):
            taken.append(number)
            yield cluster({1: "a", 2: "b", 3: "c"}, {"t": PLACED})

    def each(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        together.append(len(values))
        return list(map(function, values))

    found = side_by_side(problems(), 2, 0, each)
    next(found)
    assert taken == [0, 1]
    assert len(list(found)) == 4
    assert together == [4, 4, 2]


def _partitions(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_bytes())["partitions"]
    return found


def test_a_goal_that_cannot_be_reached_ends_with_code_3(assignment: Path) -> None:
    said = regent("pipeline", "plan", "--from-assignment", assignment, "--retire", "1", code=Exit.REFUSED)
    assert "not reached: no replica on dead or retiring brokers: t-0, t-1" in unwrapped(said.stderr)
    assert "it has 2 replicas and 1 brokers may take any" in unwrapped(said.stderr)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no partitions are given"),
        (["--retire", "9"], "--retire 9: the cluster has no such broker"),
        (["--exclude-topic", "x"], "--exclude-topic x: the cluster has no such topic"),
        (["--out", "plan.json"], "the input does not name its cluster"),
        (["--loads-before", "x.csv"], "--loads-before has no --loads beside it"),
    ],
)
def test_wrong_options_are_refused(assignment: Path, options: list[str], words: str) -> None:
    given = ["--from-assignment", assignment] if options else []
    assert words in unwrapped(regent("pipeline", "plan", *given, *options, code=Exit.USAGE).stderr)


def test_a_plan_with_more_moves_than_one_may_have_comes_in_parts(tmp_path: Path) -> None:
    found = plan(cluster({1: "a", 2: "b", 3: "c"}, {"t": PLACED}, retire=[2]))
    moves = output.moves_of(found)
    files = output.write_plan(tmp_path / "p.json", "c", output.moves_by_part(in_parts(found, 1, 4)))
    saved = [decode_plan(file.read_bytes()) for file in files]
    assert [len(one.moves) for one in saved] == [3, 3]
    assert [move.name for one in saved for move in one.moves] == [move.name for move in moves]
    assert saved[1].goal == "balance all brokers, part 2 of 2"
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
