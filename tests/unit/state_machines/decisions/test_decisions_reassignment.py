"""Reassignments: assignments under way, the judgement of requests, begin and completion (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from state_machines.decisions.broker_change import broker_return
from state_machines.decisions.reassignment import (
    A_DAEMON,
    EMPTY,
    NEGATIVE,
    NOT_LIVE,
    NOT_REASSIGNED,
    TWICE,
    UNKNOWN,
    WAITS,
    NotReassigned,
    ReassignError,
    ReassignmentRequest,
    due,
    in_progress,
    judge,
    reassign,
    rewrites,
    waiting_for,
)
from state_machines.machines import selectors
from state_machines.model.decision import Refusal
from state_machines.model.types import NO_LEADER, Assignment, PartitionState
from tests.kit.kafka.model import P, decided, writes_of
from tests.kit.kafka.reassignment_steps import ReassignmentWorld, do

DAEMON = 1000001
ids = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True).map(tuple)


# -- the algebra of assignments


@pytest.mark.kafka(
    "ControllerContextTest.testPartitionReplicaAssignment",
    "ControllerContextTest.testReassignToIdempotence",
    "ControllerContextTest.testReassignTo",
    "ControllerContextTest.testUpdatePartitionFullReplicaAssignmentUpdatesReplicaAssignment",
)
@pytest.mark.seed("S4-51", "S4-84")
@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        (Assignment((1, 2)), (2, 3), Assignment((2, 3, 1), (3,), (1,))),
        (Assignment((1, 2, 3)), (4, 5, 6), Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        (Assignment((1, 2, 3)), (3, 1), Assignment((3, 1, 2), (), (2,))),
        (Assignment((1, 2, 3, 4)), (4, 2, 5, 3), Assignment((4, 2, 5, 3, 1), (5,), (1,))),
        (Assignment((1, 2)), (2, 1), Assignment((2, 1))),
        (Assignment((1, 2)), (1, 2), Assignment((1, 2))),
        pytest.param(Assignment((2, 3, 1), (3,), (1,)), (2, 3), Assignment((2, 3, 1), (3,), (1,)), id="again"),
        pytest.param(
            Assignment((2, 3, 1), (3,), (1,)), (2, 4), Assignment((2, 4, 1, 3), (4, 3), (1, 3)), id="override"
        ),
        pytest.param(Assignment((2, 3, 1), (3,), (1,)), (2, 1), Assignment((2, 1, 3), (3,), (3,)), id="cancel"),
    ],
)
def test_an_assignment_under_way_names_what_is_added_and_removed(
    before: Assignment, target: tuple[int, ...], after: Assignment
) -> None:
    assert before.reassigned_to(target) == after
    assert (after.target, after.moving) == (target, bool(after.adding or after.removing))


@pytest.mark.kafka("ControllerContextTest.testReassignToIdempotence", "ControllerContextTest.testReassignTo")
@pytest.mark.seed("S4-84")
@given(first=ids, second=ids, third=ids)
def test_an_override_has_the_origin_and_target_of_a_first_request(
    first: tuple[int, ...], second: tuple[int, ...], third: tuple[int, ...]
) -> None:
    under_way = Assignment(first).reassigned_to(second)
    assert set(under_way.replicas) == {*first, *second}
    assert under_way.target == second
    assert set(under_way.origin) == set(first)
    assert under_way.reassigned_to(second) == under_way
    over, direct = under_way.reassigned_to(third), Assignment(first).reassigned_to(third)
    assert (over.target, set(over.origin)) == (third, set(first))
    assert set(over.replicas) == {*first, *second, *third}, "what the first target added is named until it has stopped"
    sent = over.kept
    assert (sent.target, set(sent.replicas), set(sent.adding)) == (third, set(direct.replicas), set(direct.adding))
    assert set(sent.removing) == set(direct.removing)
    assert not under_way.reassigned_to(under_way.origin).kept.moving


# -- requests


@pytest.mark.seed("S4-84")
@pytest.mark.parametrize("row", [0, 1, 2, None], ids=["there", "under way", "unknown", "no such topic"])
@pytest.mark.parametrize(
    ("target", "unsound"),
    [
        ((), EMPTY),
        ((2, 2), TWICE),
        ((2, -1), NEGATIVE),
        ((2, DAEMON), A_DAEMON),
        ((2, 9), NOT_LIVE),
        ((2, 3), None),
        (None, None),
    ],
)
def test_a_request_gets_its_error_in_the_order_of_kafka(
    row: int | None, target: tuple[int, ...] | None, unsound: str | None
) -> None:
    """The target is judged before the partition, a cancel of nothing before either."""
    w = ReassignmentWorld(P((1, 2), 1), P((1, 2), 1), P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({1: (2, 4)}))
    w.cluster.rows[2] = replace(w.cluster.rows[2], state=PartitionState.NON_EXISTENT)
    found = judge(w.cluster, ReassignmentRequest(row, target), {DAEMON, 9_000_000})
    if unsound is not None:
        assert found == NotReassigned(ReassignError.INVALID_REPLICA_ASSIGNMENT, unsound)
    elif target is None and row != 1:
        assert found == NotReassigned(ReassignError.NO_REASSIGNMENT_IN_PROGRESS, NOT_REASSIGNED)
    elif row is None or row == 2:
        assert found == NotReassigned(ReassignError.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
    else:
        dropped = () if row == 0 else (4,)
        good = Assignment((2, 3, 1, *dropped), (3, *dropped), (1, *dropped))
        assert found == (good if target is not None else Assignment((2, 1, 4), (4,), (4,)))


@pytest.mark.kafka("DeleteTopicTest.testPartitionReassignmentDuringDeleteTopic")
@pytest.mark.seed("S4-78", "S4-84")
def test_a_reassignment_of_a_queued_topic_can_be_cancelled_but_not_begun() -> None:
    """The deletion waits for its end."""
    w = ReassignmentWorld(P((1, 2), 1), P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({1: (2, 3)}))
    w.cluster.observe_deletions(["t"])
    for row in (0, 1):
        refused = judge(w.cluster, ReassignmentRequest(row, (2, 4)))
        assert refused == NotReassigned(ReassignError.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
    assert judge(w.cluster, ReassignmentRequest(1, None)) == Assignment((2, 1, 3), (3,), (3,))


@pytest.mark.seed("S4-84")
def test_a_request_by_znode_may_name_brokers_that_come_later() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    assert judge(w.cluster, ReassignmentRequest(0, (2, 9)), live_only=False) == Assignment((2, 9, 1), (9,), (1,))
    found = judge(w.cluster, ReassignmentRequest(0, (2, DAEMON)), {DAEMON}, live_only=False)
    assert found == NotReassigned(ReassignError.INVALID_REPLICA_ASSIGNMENT, A_DAEMON)


@pytest.mark.seed("S4-84")
def test_a_broker_that_shuts_down_is_not_added() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    w.cluster.observe_shutting_down(3)
    assert judge(w.cluster, ReassignmentRequest(0, (1, 3))) == NotReassigned(
        ReassignError.INVALID_REPLICA_ASSIGNMENT, NOT_LIVE
    )
    assert judge(w.cluster, ReassignmentRequest(0, (2, 1))) == Assignment((2, 1)), (
        "a replica that is there already may be down"
    )


def test_a_target_may_be_broker_0() -> None:
    w = ReassignmentWorld(P((1, 2), 1), brokers=(0, 1, 2))
    assert judge(w.cluster, ReassignmentRequest(0, (0, 1))) == Assignment((0, 1, 2), (0,), (2,))


@pytest.mark.seed("S4-51")
def test_a_topic_is_rewritten_once_and_only_where_an_assignment_is_new() -> None:
    w = ReassignmentWorld(*[P((1, 2), 1)] * 4)
    moved = Assignment((1, 2)).reassigned_to((2, 3))
    [change] = rewrites(w.cluster, {0: moved, 2: Assignment((1, 2)), 3: moved})
    assert (change.topic, change.version, change.partitions) == ("t", 3, {0: moved, 3: moved})
    assert change.topic_id is None, "the id in the znode stays (KAFKA-12835)"
    w.rewrite([change])
    assert rewrites(w.cluster, {0: moved, 3: moved}) == []
    assert w.zookeeper.topics["t"].topic_id is not None
    assert w.cluster.topics[0].version == 4


# -- steps


@pytest.mark.seed("S4-63", "S4-64", "S4-69")
@pytest.mark.parametrize("kill_at", range(4))
def test_a_new_controller_finishes_a_reassignment_that_ended_before_any_of_its_writes(kill_at: int) -> None:
    """Each replica that goes is sent the deletion of its log."""
    w = ReassignmentWorld(P((1, 2, 3), 1), brokers=range(1, 7))
    steps = chain(w.request({0: (4, 5, 6)}), later(w))
    assert [next(steps) for _ in range(kill_at + 1)] == ["topic", "states", "states", "final"][: kill_at + 1]
    w.next_term()
    do(w.resume())
    if kill_at == 0:
        assert w.written[0] == Assignment((1, 2, 3)), "nothing was acknowledged"
        return
    if w.cluster.reassigning:
        do(later(w))
    held = w.zookeeper.states["t", 0]
    assert w.written[0] == Assignment((4, 5, 6))
    assert w.cluster.reassigning == {}
    assert held.leader in held.isr
    assert set(held.isr) <= {4, 5, 6}
    assert w.deleted == {(0, 1), (0, 2), (0, 3)}


def later(w: ReassignmentWorld) -> Iterator[str]:
    yield from w.isr({0: (1, 2, 3, 4, 5, 6)})


@pytest.mark.seed("S4-50", "S4-54")
def test_a_reassignment_to_a_broker_that_is_down_waits_until_it_returns() -> None:
    """By znode, which may name a broker that is down: one epoch while it waits, one more at its return, then two."""
    w = ReassignmentWorld(P((1,), 1, epoch=5), brokers=(1, 3))
    do(w.request({0: (2,)}, live_only=False))
    assert w.row().leader_epoch == 6
    assert (due(w.cluster, [0]), waiting_for(w.cluster, [3]), waiting_for(w.cluster, [2])) == ([], [], [0])
    w.brokers(1, 2, 3)
    w.carry_out(partial(broker_return, returned=[2]))
    do(w.steps(waiting_for(w.cluster, [2]), again=True))
    assert w.row().leader_epoch == 7
    assert w.propagation.pending[2].lead == {0: True}, "as new: it may choose a log directory that works"
    do(w.isr({0: (1, 2)}))
    assert (w.row().leader_epoch, w.written[0]) == (9, Assignment((2,)))


@pytest.mark.seed("S4-54", "S4-69")
def test_a_reassignment_waits_until_its_target_is_in_sync() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    before = w.row()
    assert due(w.cluster, [0]) == []
    w.carry_out(partial(reassign, rows=[0]))
    assert w.row() is before
    assert in_progress(w.cluster) == {0: Assignment((2, 3, 1), (3,), (1,))}


@pytest.mark.seed("S4-54")
@pytest.mark.parametrize(
    ("partition", "brokers", "leaving"),
    [
        pytest.param(P((1, 2), 1), (1, 2, 3), 1, id="the leader shuts down"),
        pytest.param(P((1, 2), NO_LEADER, (1,)), (2, 3), None, id="without a leader"),
    ],
)
def test_a_reassignment_begins_under_the_present_leader(
    partition: P, brokers: tuple[int, ...], leaving: int | None
) -> None:
    w = ReassignmentWorld(partition, P((1, 2), 1), brokers=brokers)
    if leaving is not None:
        w.cluster.observe_shutting_down(leaving)
    before = w.row()
    do(w.request({0: (2, 3)}))
    assert (w.row().leader, w.row().isr, w.row().leader_epoch) == (before.leader, before.isr, 1)
    assert w.row().assignment == Assignment((2, 3, 1), (3,), (1,))


@pytest.mark.seed("S4-54")
def test_partitions_that_are_gone_do_not_end_a_decision_on_the_others() -> None:
    w = ReassignmentWorld(*[P((1, 2), 1)] * 3)
    steps = w.request({1: (2, 3), 2: (2, 3)})
    assert [next(steps), next(steps)] == ["topic", "states"]
    w.cluster.rows[1] = replace(w.row(1), state=PartitionState.NON_EXISTENT)
    assert list(writes_of(decided(w.cluster, partial(reassign, rows=[0, 1, 2])))) == [2]


@pytest.mark.seed("S4-57")
@pytest.mark.parametrize(
    ("leader", "live", "elected"),
    [
        pytest.param(2, (1, 2, 3), 2, id="it stays"),
        pytest.param(1, (1, 2, 3), 2, id="the first of the target"),
        pytest.param(1, (1, 3), 3, id="the first that is live"),
        pytest.param(1, (1,), None, id="none of the target is live"),
    ],
)
def test_a_completion_keeps_or_elects_a_live_leader_of_the_target(
    leader: int, live: tuple[int, ...], elected: int | None
) -> None:
    w = ReassignmentWorld(P((1, 2), leader))
    do(w.request({0: (2, 3)}))
    isr = (1, 2, 3)
    w.found(leader, isr)
    w.brokers(*live)
    assert due(w.cluster, [0]) == [0]
    do(w.steps([0]))
    if elected is None:
        assert w.refusals == [Refusal(0, WAITS, selectors.NO_TARGET)]
        assert (w.row().leader, w.row().isr, w.deleted) == (1, isr, set()), "the last live copy is not given away"
        assert decided(w.cluster, partial(reassign, rows=[0])).doubted == set(), "no ISR would allow it"
        w.brokers(*live, 3)
        do(w.steps(waiting_for(w.cluster, [3]), again=True))
        elected = 3
    assert (w.row().leader, w.row().isr, w.written[0]) == (elected, (2, 3), Assignment((2, 3)))
    assert w.deleted == {(0, 1)}


@pytest.mark.seed("S4-56")
@pytest.mark.parametrize("target", [(2, 1), (1,), (2,)], ids=["another order", "fewer", "fewer, another leader"])
def test_a_reassignment_that_adds_no_replica_is_complete_at_once(target: tuple[int, ...]) -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: target}))
    assert (w.written[0], w.row().assignment, w.cluster.reassigning) == (Assignment(target), Assignment(target), {})
    assert w.row().leader == (1 if 1 in target else 2)
    assert w.deleted == {(0, b) for b in (1, 2) if b not in target}


def test_a_reassignment_to_the_present_replicas_writes_nothing() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    before = w.row()
    do(w.request({0: (1, 2)}))
    assert w.row() is before
    assert w.rewrites == [0]
