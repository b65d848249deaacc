"""Reassignments: those of a plan of the daemon, those of a plan's file, and how long the rest takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.inputs import BadInput
from pipeline.report.files import read_plans
from pipeline.report.merging import Known
from pipeline.report.move_sections import moves
from pipeline.report.result import Predicted, Result
from state_machines.planning.json_files import encode_plan
from state_machines.planning.plan import Move, Plan, Summary
from tests.real.pipeline.report.kit import Term, reported

GB = 1_000_000_000
SIZES = {("orders", partition): GB for partition in range(4)}


def reassigned(term: Term, partition: int, begin_s: float, end_s: float | None, added: int = 4) -> Term:
    """Adds a broker to partition 1, 2, 3 of which it removes one; without ``end_s`` it goes on."""
    during = {"replicas": [added, 1, 2, 3], "adding": [added], "removing": [1], "partition": partition}
    same = {"isr0": [1, 2, 3], "isr1": [1, 2, 3]}
    term.leader(begin_s, 2, 2, "reassignment", "ISR", **during, **same)
    if end_s is not None:
        after = {"replicas": [added, 2, 3], "partition": partition, "isr1": [added, 2, 3]}
        term.leader(end_s, 2, 2, "reassignment", "ISR", **(same | after))
    return term


def two_of_three() -> Term:
    """Partitions 0 and 1 are moved from 10 s to 30 s; partition 2 goes on at the end."""
    term = reassigned(Term().begin(0, 1, 2, 3, 4), 0, 10, 20)
    return reassigned(reassigned(term, 1, 20, 30), 2, 25, None).add(50, "CTL_PHASE")


def move(partition: int, size: int | None = GB, target: tuple[int, ...] = (4, 2, 3)) -> Move:
    return Move("orders", partition, (1, 2, 3), target, size)


def test_what_is_left_takes_its_bytes_at_the_rate_so_far() -> None:
    [found] = reported(two_of_three().lines, known=Known({}, SIZES)).moves
    assert (found.partitions, found.unfinished, found.bytes) == (3, 1, 3 * GB)
    assert (found.rate_bytes_per_s, found.unfinished_bytes, found.left_s) == (GB // 10, GB, 10.0)


@pytest.mark.parametrize("sizes", [{}, {("orders", 0): GB, ("orders", 1): GB}])
def test_without_the_sizes_of_what_is_left_its_time_is_not_known(sizes: dict[tuple[str, int], int]) -> None:
    [found] = reported(two_of_three().lines, known=Known({}, sizes)).moves
    assert (found.unfinished_bytes, found.left_s) == (None, None)


def test_a_plan_of_the_daemon_has_the_reassignments_of_its_topics_that_began_meanwhile() -> None:
    plan = {"pid": 7, "root": 7, "procedure": "reassign"}
    term = reassigned(Term().begin(0, 1, 2, 3, 4), 0, 5, 6).add(
        8, "PROC_STATE", to_state="RUNNABLE", topics=["orders"], **plan
    )
    reassigned(reassigned(term, 1, 10, 20), 2, 30, 34).add(25, "PROC_STATE", to_state="SUCCESS", result="moved", **plan)
    other = {"pid": 9, "root": 9, "procedure": "reassign", "topics": ["payments"]}
    term.add(26, "PROC_STATE", to_state="RUNNABLE", **other).add(50, "CTL_PHASE")
    ended, empty = reported(term.lines, known=Known({}, SIZES)).plans
    assert (ended.topics, ended.partitions, ended.unfinished) == (["orders"], 1, 0)
    assert (ended.bytes, ended.rate_bytes_per_s) == (GB, GB // 10)
    assert (empty.topics, empty.partitions, empty.bytes) == (["payments"], 0, 0)


def beside(*moves: Move) -> Predicted:
    found = reported(two_of_three().lines, known=Known({}, SIZES, moves)).predicted
    assert found is not None
    return found


def test_predicted_bytes_stand_beside_those_that_were_moved() -> None:
    found = beside(move(0), move(1, 2 * GB), move(2), move(3), move(9, target=(2, 1, 3)))
    assert (found.moves, found.ended, found.unfinished, found.not_begun, found.leaders_only) == (5, 2, 1, 1, 1)
    assert (found.predicted_bytes, found.bytes, found.size_unknown) == (5 * GB, 2 * GB, 0)
    [topic] = found.topics
    assert (topic.topic, topic.moves, topic.ended, topic.predicted_bytes, topic.bytes) == (
        "orders",
        4,
        2,
        5 * GB,
        2 * GB,
    )


def test_a_plan_without_sizes_predicts_nothing() -> None:
    found = beside(move(0), move(1, None))
    assert (found.predicted_bytes, found.bytes) == (None, 2 * GB)


def test_the_page_says_the_share_of_what_was_predicted() -> None:
    def shown(*planned: Move) -> str:
        result: Result = reported(two_of_three().lines, known=Known({}, SIZES, planned))
        return moves(result)

    assert "Predicted 4.0 GB, moved 2.0 GB, 50%" in shown(move(0, 2 * GB), move(1, 2 * GB))
    assert "Predicted not known, moved 2.0 GB." in shown(move(0, None), move(1))
    assert "Beside the plan" not in shown()


def test_a_plan_is_read_in_its_parts_and_one_of_another_cluster_is_refused(tmp_path: Path) -> None:
    nothing = Summary(0, 0, (), 0, 0)
    for number in range(2):
        path = tmp_path / f"plan-{number}.json"
        path.write_bytes(encode_plan(Plan("c", "balance", (move(number),), (), nothing)))
    first, second = sorted(tmp_path.iterdir())
    assert [one.partition for one in read_plans([first, second], "c")] == [0, 1]
    for paths, cluster, said in (
        ([first], "d", "is a plan for cluster c, the journal is of d"),
        ([first, first], "c", "moves orders-0, as another file does"),
        ([tmp_path / "none"], "c", "none cannot be read"),
    ):
        with pytest.raises(BadInput, match=said):
            read_plans(paths, cluster)
    first.write_bytes(b'{"version":1}')
    with pytest.raises(BadInput, match=r"plan-0\.json"):
        read_plans([first], "c")
