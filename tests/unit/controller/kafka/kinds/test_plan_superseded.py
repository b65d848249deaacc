"""Moves of a plan that other clients superseded: what they did, when the plan found it, and by whom."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec.structs import replace

from brokers.wire.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ReassignedPartition,
    ReassignedTopic,
)
from controller.kafka.kinds.plan_conflicts import callers_of
from controller.kafka.kinds.reassign import encode_plan, members, plan_of
from controller.operator.procedure_items import move_items
from controller.procedures.recorder import CallKind
from state_machines.decisions import plan_superseded
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status, Superseded, advance
from state_machines.decisions.plan_superseded import BY_BYTES_MAX, NOTED_MAX, newly_superseded, noted
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicPartition
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kit.carried_kit import carried
from tests.kit.controller_world import World, in_world
from tests.kit.model import P, make_cluster
from tests.unit.controller.operator.test_reassign_plan import applied, finished, moves, record, running

ELSEWHERE = "another client reassigned the partition to"
WIDE = tuple(range(1, 13))


def cluster_with(replicas: tuple[int, ...], target: tuple[int, ...] | None) -> Cluster:
    """Partition t-0 with these replicas, and perhaps on its way to others."""
    cluster = make_cluster(P((1, 2), leader=1), brokers=(1, 2, 3, 4))
    row = cluster.topics[cluster.topic_index["t"]].rows[0]
    present = Assignment(replicas)
    written = present if target is None else present.reassigned_to(target)
    cluster.rows[row] = replace(cluster.rows[row], assignment=written)
    if target is not None:
        cluster.reassigning[row] = written
    return cluster


@pytest.mark.parametrize(
    ("replicas", "target", "status", "why"),
    [
        ((1, 2), None, Status.SUPERSEDED, "another client cancelled the reassignment"),
        ((2, 1), None, Status.SUPERSEDED, "another client cancelled the reassignment"),
        ((2, 3), None, Status.SUPERSEDED, f"{ELSEWHERE} [2, 3]"),
        ((4, 3), None, Status.SUPERSEDED, f"{ELSEWHERE} [4, 3]"),
        (WIDE, None, Status.SUPERSEDED, f"{ELSEWHERE} [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...]"),
        ((1, 2), (2, 3), Status.SUPERSEDED, f"{ELSEWHERE} [2, 3]"),
        ((1, 2), (3, 4), Status.BEGUN, ""),
        ((3, 4), None, Status.DONE, ""),
    ],
)
def test_a_begun_move_was_cancelled_only_if_its_origin_is_back(
    replicas: tuple[int, ...], target: tuple[int, ...] | None, status: Status, why: str
) -> None:
    plan = ReassignPlan((PlannedMove("t", 0, (1, 2), (3, 4), status=Status.BEGUN),))
    [found] = advance(plan, cluster_with(replicas, target), ()).plan.moves
    assert (found.status, found.why) == (status, why)


def superseded(count: int) -> ReassignPlan:
    why = f"{ELSEWHERE} [2, 3]"
    return ReassignPlan(
        tuple(PlannedMove("t", p, (1, 2), (3, 4), status=Status.SUPERSEDED, why=why) for p in range(count))
    )


def test_each_finding_is_noted_once_and_the_notes_of_a_plan_are_bounded() -> None:
    after = superseded(NOTED_MAX + 2)
    queued = replace(after, moves=tuple(replace(move, status=Status.QUEUED, why="") for move in after.moves))
    first = replace(queued, moves=(*after.moves[:2], *queued.moves[2:]))
    assert newly_superseded(queued, first) == [0, 1]
    begun = noted(first, [0, 1], 7, {TopicPartition("t", 1): "\u00fc" * BY_BYTES_MAX})
    assert begun.superseded == (Superseded(0, 7), Superseded(1, 7, "\u00fc" * (BY_BYTES_MAX // 2)))
    later = replace(begun, moves=after.moves)
    found = newly_superseded(begun, later)
    assert found == list(range(2, NOTED_MAX + 2))
    full = noted(later, found, 8, {})
    assert [note.move for note in full.superseded] == list(range(NOTED_MAX))
    assert {move.why for move in full.moves[NOTED_MAX:]} == {"another client reassigned the partition"}
    assert newly_superseded(full, full) == []


@in_world(1, 2, 3, 4)
async def test_the_plan_shows_when_and_by_which_recorded_call_a_move_was_superseded(w: World) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=3))
    began_s = time.time()
    parts = (ReassignedPartition(0, None), ReassignedPartition(1, (2, 3)))
    body = AlterPartitionReassignmentsRequest(5_000, (ReassignedTopic("a", parts),))
    await carried(w, body, principal="User:alice", client_id="admin-1")
    await asyncio.sleep(6)
    await w.settle()
    plan = plan_of(record(w, pid))
    assert [note.move for note in plan.superseded] == [0, 1]
    shown = {(item.topic, item.partition): item for item in move_items(plan)}
    for number in (0, 1):
        assert shown["a", number].by == f"User:alice (admin-1 at 10.0.0.7), pid {pid + 1}"
        found = shown["a", number].found
        assert found is not None
        assert found.timestamp() > began_s - 1
    assert (shown["a", 2].by, shown["a", 2].found) == ("", None)
    noted_then = plan.superseded
    assert plan_of(await finished(w, pid)).superseded == noted_then


@in_world(1, 2, 3, 4)
async def test_a_move_that_no_recorded_call_names_has_a_time_and_no_client(w: World) -> None:
    await running(w)
    gone = PlannedMove("gone", 0, (1,), (2,))
    pid = await applied(w, ReassignPlan((*moves(), gone)))
    [note] = plan_of(record(w, pid)).superseded
    assert (note.move, note.by, note.found_ms > 0) == (len(moves()), "", True)


def test_the_notes_take_a_small_part_of_a_record() -> None:
    plan = superseded(NOTED_MAX)
    callers = {TopicPartition("t", p): "x" * 1_000 for p in range(NOTED_MAX)}
    full = plan_superseded.noted(plan, range(NOTED_MAX), 2**41, callers)
    assert len(encode_plan(full)) - len(encode_plan(plan)) < 80_000


def test_the_latest_call_after_the_plan_that_names_a_partition_is_its_caller() -> None:
    def call(pid: int, result: str, kind: str = CallKind.ALTER_REASSIGNMENTS) -> Record:
        caller = Caller(principal=f"User:{pid}", client="kafka")
        return Record(pid, kind, State.SUCCESS, 0, 1, 2, result=result.encode(), caller=caller)

    names = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 10), TopicPartition("b", 1)]
    found = callers_of(
        [
            call(9, "a-0 to [1]"),
            call(7, "a-0, a-1: cancelled"),
            call(4, "b-10; b-1"),
            call(8, "b-10", kind=CallKind.CREATE_TOPICS),
            call(6, "a-0 b-10"),
        ],
        names,
        since=5,
    )
    by = {str(name): text for name, text in found.items()}
    assert by == {"a-0": "User:9 (kafka), pid 9", "a-1": "User:7 (kafka), pid 7", "b-10": "User:6 (kafka), pid 6"}


def test_a_plan_is_named_once_by_each_topic_that_it_moves() -> None:
    plan = ReassignPlan(tuple(PlannedMove(topic, n, (1, 2), (2, n + 3)) for topic in "ba" for n in range(3)))
    found = members(Record(1, "reassign", State.RUNNABLE, 0, 1, 2, data=encode_plan(plan)))
    assert (found.topics, found.brokers) == (("b", "a"), (1, 3, 4, 5))
