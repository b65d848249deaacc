"""Log directories of brokers: read, chosen, counted anew, and named in files of Kafka's tool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="NumPy is not installed")
pytest.importorskip("numba", reason="Numba is not installed")

from cli.exit_codes import Exit  # noqa: E402
from pipeline.inputs import BadInput  # noqa: E402
from pipeline.planner.broker_file import GivenBroker, read_brokers  # noqa: E402
from tests.kit.command import regent, unwrapped  # noqa: E402

pytestmark = pytest.mark.timeout(600)

HEADER = "broker,rack,log_dir,disk_bytes\n"
Moves = dict[int, tuple[Sequence[int], Sequence[str]]]
TWO_EACH = "".join(f"{broker},r{broker},/d{disk},1000\n" for broker in (1, 2, 3) for disk in (1, 2))


class Cluster:
    """Files of a cluster: an assignment, loads as ``regent loads`` writes them, and brokers."""

    def __init__(self, folder: Path, brokers: str, logs: Iterable[tuple[int, int, str, int]]) -> None:
        self.folder = folder
        rows = sorted(logs)
        placed: dict[int, list[int]] = {}
        for partition, broker, _, _ in rows:
            placed.setdefault(partition, []).append(broker)
        listed = [{"topic": "t", "partition": p, "replicas": replicas} for p, replicas in placed.items()]
        (folder / "now.json").write_text(json.dumps({"version": 1, "partitions": listed}))
        lines = [f"t,{p},{broker},{path},false,{size}" for p, broker, path, size in rows]
        (folder / "loads.csv").write_text("topic,partition,broker,log_dir,is_future,size_bytes\n" + "\n".join(lines))
        (folder / "brokers.csv").write_text(HEADER + brokers)

    def plan(self, *options: Any, code: int = 0) -> str:
        """Plans files of Kafka's tool; returns what the command says."""
        files = [("--from-assignment", "now.json"), ("--loads", "loads.csv"), ("--brokers", "brokers.csv")]
        given = [each for option, name in files for each in (option, self.folder / name)]
        out = ("--export", "kafka", "--out", self.folder / "moves.json")
        return unwrapped(regent("pipeline", "plan", *given, *out, *options, code=code).stderr)

    def moves(self, name: str = "moves.json") -> Moves:
        """Returns replicas and directories by partition."""
        partitions = json.loads((self.folder / name).read_bytes())["partitions"]
        return {one["partition"]: (one["replicas"], one["log_dirs"]) for one in partitions}


def chosen(moves: Moves) -> list[tuple[int, str]]:
    """Returns broker and directory of each replica that has one named."""
    pairs = (pair for replicas, log_dirs in moves.values() for pair in zip(replicas, log_dirs, strict=True))
    return [(broker, path) for broker, path in pairs if path != "any"]


def full_and_empty(folder: Path, size: int = 100) -> Cluster:
    """Three brokers with six replicas each, all of broker 1 on its first directory; the others are even."""
    places = [(p, broker, f"/d{1 if broker == 1 else p % 2 + 1}", size) for p in range(6) for broker in (1, 2, 3)]
    return Cluster(folder, TWO_EACH, places)


def test_the_lines_of_a_broker_are_its_log_directories(tmp_path: Path) -> None:
    file = tmp_path / "b.csv"
    file.write_text("broker,rack,log_dir,disk_bytes,bytes_in_per_s\n1,a,/d1,1e3,7\n1,,/d2,2e3,\n2,b,,5e3,\n")
    assert read_brokers(file) == {
        1: GivenBroker("a", 3e3, 7.0, log_dirs={"/d1": 1e3, "/d2": 2e3}),
        2: GivenBroker("b", 5e3),
    }


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("1,a,/d1,1\n1,a,/d1,1\n", "line 3: log_dir = '/d1' of broker 1 is there twice"),
        (
            "1,a,/d1,1\n1,a,,1\n",
            "line 3: broker = 1 is there twice: keep one of the two lines, or give each its log_dir",
        ),
        ("1,a,/d1,\n", "line 2: disk_bytes is missing: give the capacity of /d1"),
        ("1,a,/d1,1\n1,b,/d2,1\n", "line 3: rack = b, and a in an earlier line of broker 1: give it once"),
    ],
)
def test_lines_that_contradict_each_other_are_refused(tmp_path: Path, lines: str, words: str) -> None:
    file = tmp_path / "b.csv"
    file.write_text(HEADER + lines)
    with pytest.raises(BadInput, match=words):
        read_brokers(file)


def test_replicas_change_the_directory_within_their_broker_and_no_broker_gets_another_one(tmp_path: Path) -> None:
    made = full_and_empty(tmp_path)
    said = made.plan()
    assert chosen(made.moves()) == [(1, "/d2")] * 3
    assert chosen(made.moves("moves.rollback.json")) == [(1, "/d1")] * 3
    assert "3 partitions change log directories within a broker, 300 B to copy" in said


def test_a_directory_that_is_too_full_is_emptied_or_named_with_the_reason(tmp_path: Path) -> None:
    assert "log directories below" not in full_and_empty(tmp_path, 150).plan()
    lines = "1,a,/d1,1000\n2,b,/d1,10000\n3,c,/d1,10000\n"
    alone = Cluster(tmp_path, lines, [(p, broker, "/d1", 150) for p in range(6) for broker in (1, 2, 3)])
    said = alone.plan(code=Exit.REFUSED)
    assert (
        "not reached: log directories below their capacity: /d1 of broker 1: it is the only one of its broker" in said
    )


def test_replicas_that_arrive_get_the_emptiest_directory(tmp_path: Path) -> None:
    """The first directory of broker 3 has 150 bytes already, and four replicas of 100 arrive."""
    logs = [(p, broker, f"/d{p % 2 + 1}", 100) for p in range(4) for broker in (1, 2)]
    made = Cluster(tmp_path, TWO_EACH, [*logs, (4, 3, "/d1", 150), (4, 2, "/d1", 150)])
    made.plan("--retire", 1)
    assert sorted(chosen(made.moves())) == [(3, "/d1"), (3, "/d2"), (3, "/d2"), (3, "/d2")]
    assert sorted(chosen(made.moves("moves.rollback.json"))) == [(1, "/d1"), (1, "/d1"), (1, "/d2"), (1, "/d2")]


def test_replicas_without_a_known_directory_are_counted(tmp_path: Path) -> None:
    made = full_and_empty(tmp_path)
    loads = (tmp_path / "loads.csv").read_text().replace("/d1", "/elsewhere")
    (tmp_path / "loads.csv").write_text(loads)
    assert "the log directories of 12 replicas are not known and not chosen" in made.plan()
