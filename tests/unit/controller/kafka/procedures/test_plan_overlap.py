"""Plans beside each other and other clients: no partition in common, superseded moves, sizes of others' moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from brokers.wire.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ReassignedPartition,
    ReassignedTopic,
)
from controller.kafka.path.controller import Controller
from controller.kafka.procedures import environment, plan_conflicts, reassign
from controller.kafka.procedures.environment import ForeignSizes
from controller.kafka.procedures.plan_conflicts import callers_of
from controller.kafka.procedures.reassign import NAME, admit, demand, encode_plan, members, plan_of
from controller.operator.plans import move_items
from controller.procedures.recorder import CallKind
from state_machines.decisions import plan_checks
from state_machines.decisions.plan_checks import BY_BYTES_MAX, NOTED_MAX, newly_superseded, noted
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status, Superseded, advance
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicPartition
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kit.kafka.calls import carried
from tests.kit.kafka.model import P, make_cluster
from tests.kit.kafka.plans import applied, finished, moves, record, running
from tests.kit.kafka.world import KafkaWorld, in_world

MANY = reassign.DECODED_MAX + 10


def planned(pid: int, *partitions: int, status: Status = Status.QUEUED) -> Record:
    moves = tuple(PlannedMove("t", number, (1, 2), (2, 3), status=status) for number in partitions)
    data = encode_plan(ReassignPlan(moves, moves_max=4, broker_moves_max=2))
    return Record(pid, NAME, State.RUNNABLE, 0, 0, 0, data=data)


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[mock.Mock]:
    """Counts the messages that are decoded; none is kept from an earlier test."""
    found = mock.Mock(wraps=msgspec.json.Decoder(ReassignPlan))
    monkeypatch.setattr(reassign, "_decoder", found)
    reassign._decoded.cache_clear()
    reassign.LEFT.keep(())
    yield found
    reassign._decoded.cache_clear()
    reassign.LEFT.keep(())


def test_a_further_plan_decodes_none_of_those_that_wait(decoder: mock.Mock) -> None:
    waiting = [planned(pid, pid) for pid in range(1, MANY + 1)]
    for at, one in enumerate(waiting):
        assert admit(one, waiting[:at]) is None
    decoder.decode.reset_mock()
    assert admit(planned(MANY + 1, MANY + 1), waiting) is None
    assert decoder.decode.call_count == 1, "its own"


def test_a_term_that_begins_has_decoded_the_plans_before_one_is_added(decoder: mock.Mock) -> None:
    waiting = [planned(pid, pid) for pid in range(1, MANY + 1)]
    for one in waiting:
        demand(one)
    decoder.decode.reset_mock()
    assert admit(planned(MANY + 1, MANY + 1), waiting) is None
    assert decoder.decode.call_count == 1


def test_a_plan_that_goes_on_leaves_what_it_has_moved_to_others(decoder: mock.Mock) -> None:
    first, second = planned(1, 0, 1, 2), planned(2, 2, 1, 7)
    why = admit(second, [first])
    assert why is not None
    assert why.startswith("plan 1 moves 2 of these 3 partitions: t-1, t-2: wait for its end, ")
    assert admit(second, [planned(1, 0, 1, 2, status=Status.DONE)]) is None
    assert (admit(second, [replace(first, state=State.FAILED)]) or "").count("cancel") == 0


def test_a_message_that_cannot_be_read_is_not_taken_for_the_one_before(decoder: mock.Mock) -> None:
    record = planned(1, 0)
    demand(record)
    with pytest.raises(msgspec.DecodeError):
        demand(replace(record, data=b"{"))


def test_a_plan_beyond_the_most_is_refused_with_the_one_to_wait_for(
    decoder: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_conflicts, "PLANS_MAX", 2)
    assert admit(planned(3, 3), [planned(1, 1)]) is None
    assert admit(planned(3, 3), [planned(2, 2), planned(1, 1)]) == (
        "2 plans run or wait, at most 2 may: "
        "wait for the end of one, 'regent procedures wait 1'; then apply this one again"
    )


def test_the_partitions_of_some_plans_are_kept_and_no_more(decoder: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that has given the role back admits no plan, so nothing else would forget those that have ended."""
    monkeypatch.setattr(plan_conflicts, "KNOWN_MAX", 2)
    records = [planned(pid, pid) for pid in (1, 2, 3)]
    for one in records:
        demand(one)
    reassign._decoded.cache_clear()
    decoder.decode.reset_mock()
    for one in reversed(records[1:]):
        demand(one)
    assert decoder.decode.call_count == 0
    demand(records[0])
    assert decoder.decode.call_count == 1


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
async def test_the_plan_shows_when_and_by_which_recorded_call_a_move_was_superseded(w: KafkaWorld) -> None:
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
async def test_a_move_that_no_recorded_call_names_has_a_time_and_no_client(w: KafkaWorld) -> None:
    await running(w)
    gone = PlannedMove("gone", 0, (1,), (2,))
    pid = await applied(w, ReassignPlan((*moves(), gone)))
    [note] = plan_of(record(w, pid)).superseded
    assert (note.move, note.by, note.found_ms > 0) == (len(moves()), "", True)


def test_the_notes_take_a_small_part_of_a_record() -> None:
    plan = superseded(NOTED_MAX)
    callers = {TopicPartition("t", p): "x" * 1_000 for p in range(NOTED_MAX)}
    full = plan_checks.noted(plan, range(NOTED_MAX), 2**41, callers)
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


PLAN = ReassignPlan((), bytes_max=1_000)
ADDING = SimpleNamespace(kept=SimpleNamespace(adding=(4,)))


def name(row: int) -> TopicPartition:
    return TopicPartition("others", row)


class QueriedCluster:
    """A controller of which other clients reassign some rows; its leaders report, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.read: list[list[TopicPartition]] = []
        self.fails = False
        self.cluster = SimpleNamespace(
            name=name, reassigning={}, rows={row: SimpleNamespace(leader=row % 2) for row in range(9)}, brokers={}
        )
        self.dial = object()
        monkeypatch.setattr(environment, "sizes_on", self.sizes_on)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def sizes_on(self, _: object, __: object, by_leader: dict[int, list[TopicPartition]], ___: float) -> Any:
        self.read.append(sorted(one for names in by_leader.values() for one in names))
        if self.fails:
            raise OSError("a test")
        return {
            leader: {one: SimpleNamespace(size_bytes=100 + one.partition) for one in names}
            for leader, names in by_leader.items()
        }

    def reassigns(self, *rows: int) -> None:
        self.cluster.reassigning = dict.fromkeys(rows, ADDING)

    async def reports(self) -> None:
        """Lets the reads end that are under way."""
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()


async def test_each_further_reassignment_of_another_client_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, sizes = QueriedCluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    assert sizes.are_known(c, PLAN), "there is none"
    for rows in ((1,), (1, 2), (2, 3, 4)):
        world.reassigns(*rows)
        assert not sizes.are_known(c, PLAN)
        assert not sizes.are_known(c, PLAN)
        assert len(world.tasks) == 1, "one read at a time"
        await world.reports()
        assert sizes.are_known(c, PLAN)
        assert sizes.known == {name(row): 100 + row for row in rows}, "those that have ended are forgotten"
    assert world.read == [[name(1)], [name(2)], [name(3), name(4)]]


async def test_a_read_that_fails_holds_up_neither_the_plan_nor_the_next_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, sizes = QueriedCluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.fails = True
    world.reassigns(1)
    assert not sizes.are_known(c, PLAN)
    await world.reports()
    assert sizes.are_known(c, PLAN)
    assert sizes.known == {name(1): 0}
    world.fails = False
    world.reassigns(1, 2)
    assert not sizes.are_known(c, PLAN)
    await world.reports()
    assert (sizes.are_known(c, PLAN), sizes.known[name(2)]) == (True, 102)


async def test_a_leader_of_several_partitions_is_queried_for_all_of_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, sizes = QueriedCluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.reassigns(1, 2, 3, 4, 5)
    assert not sizes.are_known(c, ReassignPlan((), broker_bytes_max=1)), "the cap of a broker needs them, too"
    await world.reports()
    assert sizes.are_known(c, ReassignPlan((), broker_bytes_max=1))
    assert sizes.known == {name(row): 100 + row for row in range(1, 6)}


async def test_only_moves_of_others_that_copy_data_are_read_and_a_plan_without_caps_in_bytes_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, sizes = QueriedCluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.cluster.reassigning = {1: ADDING, 2: SimpleNamespace(kept=SimpleNamespace(adding=())), 3: ADDING}
    own = ReassignPlan((PlannedMove("others", 1, (1, 2), (3, 4)),), bytes_max=1_000)
    assert sizes.are_known(c, ReassignPlan(own.moves))
    assert not world.tasks
    assert not sizes.are_known(c, own)
    await world.reports()
    assert sizes.are_known(c, own)
    assert world.read == [[name(3)]], "row 1 is a move of the plan, row 2 drops replicas"


async def test_more_partitions_than_one_request_may_name_are_read_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PARTITIONS_PER_REQUEST_MAX", 3)
    world, sizes = QueriedCluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.reassigns(*range(1, 9))
    for _ in range(3):
        assert not sizes.are_known(c, PLAN)
        await world.reports()
    assert sizes.are_known(c, PLAN)
    assert [len(names) for names in world.read] == [3, 3, 2]
    assert sizes.known == {name(row): 100 + row for row in range(1, 9)}
