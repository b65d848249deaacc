"""Reassignments that are cancelled, overridden, or resumed by the next controller (KIP-455)."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.reassignment import (
    LAST_IN_SYNC,
    NOT_REASSIGNED,
    WAITS,
    NotReassigned,
    ReassignError,
    ReassignmentRequest,
    drop_again,
    dropped_on,
    due,
    final_rewrites,
    in_progress,
    is_complete,
    judge,
    leaves,
    reassign,
    unfinished,
    waiting_for,
)
from state_machines.machines import selectors
from state_machines.model.decision import Refusal
from state_machines.model.types import NO_LEADER, Assignment, PartitionState, TopicPartition
from tests.kit.kafka.model import P, decided, writes_of
from tests.kit.kafka.reassignment_steps import ReassignmentWorld, do

# -- cancelled and overridden


@pytest.mark.kafka("ReassignPartitionsCommandTest.testCancellationWithAddingReplicaInIsr")
@pytest.mark.seed("S4-84")
@pytest.mark.parametrize(
    ("isr", "leader", "epochs"),
    [
        pytest.param((1, 2), 1, 1, id="before it joined"),
        pytest.param((1, 2, 3), 1, 2, id="in sync by then"),
        pytest.param((1, 2, 3), 3, 2, id="leading by then"),
    ],
)
def test_a_cancel_ends_a_reassignment_at_once(isr: tuple[int, ...], leader: int, epochs: int) -> None:
    """The order of the replicas before is not restored; the added one is named until it has stopped."""
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (4, 2)}, live_only=False))
    do(w.request({0: (2, 3)}))
    assert w.deleted == {(0, 4)}
    epoch = w.row().leader_epoch
    w.found(leader, isr)
    rewritten = sum(w.rewrites)
    do(w.request({0: None}))
    assert sum(w.rewrites) == rewritten + 2
    assert (w.written[0], w.row().assignment) == (Assignment((2, 1)), Assignment((2, 1)))
    assert (w.row().isr, w.row().leader_epoch) == ((1, 2), epoch + epochs)
    assert w.row().leader == (2 if leader == 3 else 1)
    assert w.deleted == {(0, 3), (0, 4)}
    assert judge(w.cluster, ReassignmentRequest(0, None)) == NotReassigned(
        ReassignError.NO_REASSIGNMENT_IN_PROGRESS, NOT_REASSIGNED
    )


@pytest.mark.seed("S4-84")
def test_a_repeated_request_is_sent_to_replicas_again_as_new() -> None:
    """A replica that missed the first request gets the next, as from Kafka's controller."""
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    do(w.request({0: (2, 3)}))
    assert w.rewrites == [1, 0]
    assert w.row().leader_epoch == 2
    assert w.propagation.pending[3].take_lead(1) == {0: True}
    w.found(1, (1, 3))
    do(w.request({0: (2, 3)}))
    assert w.propagation.pending[3].lead == {0: False}, "in sync it has records, and keeps its log"


@pytest.mark.seed("S4-84")
def test_a_dropped_replica_that_is_added_again_deletes_its_old_log_first() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    do(w.request({0: None}))
    do(w.request({0: (2, 3)}))
    box = w.propagation.pending[3]
    assert (box.stop, box.after) == ({0: True}, {0: True}), "its old log goes before it is new again"
    do(w.isr({0: (1, 2, 3)}))
    assert w.written[0] == Assignment((2, 3))


@pytest.mark.seed("S4-84")
def test_the_last_good_copy_is_never_dropped() -> None:
    """The added replica alone is in sync: Kafka's controller would delete it at a cancel."""
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    w.found(3, (3,), w.row().leader_epoch + 1)
    refused = NotReassigned(ReassignError.INVALID_REPLICA_ASSIGNMENT, LAST_IN_SYNC)
    assert judge(w.cluster, ReassignmentRequest(0, None)) == refused
    assert judge(w.cluster, ReassignmentRequest(0, (2, 1))) == refused
    w.cluster.observe_assignments("t", 4, {0: Assignment((2, 1))})
    decision = decided(w.cluster, partial(reassign, rows=[0], again=True))
    assert decision.refusals == [Refusal(0, WAITS, LAST_IN_SYNC)]
    assert (decision.empty, decision.doubted) == (True, frozenset({0}))


@pytest.mark.seed("S4-84")
@pytest.mark.parametrize("target", [None, (2, 4)], ids=["cancelled", "overridden"])
def test_a_leader_outside_of_the_target_stays_until_another_replica_can_lead(target: tuple[int, ...] | None) -> None:
    w = ReassignmentWorld(P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({0: (2, 3)}))
    w.found(3, (3, 2))
    w.brokers(1, 3, 4)
    do(w.request({0: target}))
    assert w.refusals == [Refusal(0, WAITS, selectors.NO_TARGET)]
    assert (w.row().leader, w.deleted) == (3, set())
    assert decided(w.cluster, partial(reassign, rows=[0])).doubted == {0}, "another ISR would allow it"
    w.brokers(1, 2, 3, 4)
    assert due(w.cluster, [0]) == [0]
    do(w.steps(waiting_for(w.cluster, [2]), again=True))
    assert (w.row().leader, w.row().isr, w.deleted) == (2, (2,), {(0, 3)})


@pytest.mark.seed("S4-84")
@pytest.mark.parametrize(
    ("leader", "isr"), [(1, (1, 3)), (3, (1, 3)), (NO_LEADER, (1, 3)), (1, (1,)), (NO_LEADER, (1,))]
)
def test_a_reassignment_of_a_leaderless_partition_can_be_cancelled(leader: int, isr: tuple[int, ...]) -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    w.brokers(2)
    w.found(leader, isr)
    do(w.request({0: None}))
    assert w.row().leader_epoch == (3 if 3 in (leader, *isr) else 2)
    assert (w.row().leader, w.row().isr) == (1 if leader == 1 else NO_LEADER, (1,))
    assert (w.row().state, w.written[0]) == (PartitionState.OFFLINE, Assignment((2, 1)))


@pytest.mark.seed("S4-84")
def test_a_partition_that_never_started_starts_on_its_target() -> None:
    w = ReassignmentWorld(P((8, 9)))
    assert w.row().state is PartitionState.NEW
    do(w.request({0: (3, 1)}))
    assert (w.row().leader, w.row().isr, w.row().assignment) == (3, (3, 1), Assignment((3, 1, 8, 9), (3, 1), (8, 9)))
    do(w.steps(due(w.cluster, [0])))
    assert (w.written[0], w.row().isr) == (Assignment((3, 1)), (3, 1))


@pytest.mark.seed("S4-60", "S4-84")
def test_a_reassignment_is_complete_before_the_final_rewrite() -> None:
    """The final rewrite met a conflict: it is tried again, a cancel comes too late, another target starts anew."""
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    steps = w.isr({0: (1, 2, 3)})
    assert [next(steps), next(steps)] == ["states", "final"]
    assert is_complete(w.cluster, 0)
    assert due(w.cluster, [0]) == []
    assert decided(w.cluster, partial(reassign, rows=[0], again=True)).empty
    assert judge(w.cluster, ReassignmentRequest(0, None)) == NotReassigned(
        ReassignError.NO_REASSIGNMENT_IN_PROGRESS, NOT_REASSIGNED
    )
    assert judge(w.cluster, ReassignmentRequest(0, (2, 1))) == Assignment((2, 1, 3), (1,), (3,))
    [change] = final_rewrites(w.cluster, [0])
    w.cluster.observe_assignments("t", 9, {0: w.written[0]})
    [again] = final_rewrites(w.cluster, [0])
    assert (change.version, again.version, again.partitions) == (4, 9, {0: Assignment((2, 3))})


# -- many at once


@pytest.mark.seed("S4-57")
def test_a_repeated_decision_reassigns_its_rows_only() -> None:
    w = ReassignmentWorld(*[P((1, 2), 1)] * 3)
    steps = w.request(dict.fromkeys(range(3), (2, 3)))
    assert [next(steps), next(steps)] == ["topic", "states"]
    whole = decided(w.cluster, partial(reassign, rows=[0, 1, 2]))
    part = decided(w.cluster, partial(reassign, rows=[0, 1, 2]), only=[1])
    assert writes_of(part) == {1: writes_of(whole)[1]}
    assert {move.entity for move in part.replica_moves} == {1}


@pytest.mark.seed("S4-59", "S4-84")
def test_a_dropped_replica_is_sent_its_deletion_again_where_its_broker_returns() -> None:
    w = ReassignmentWorld(P((1, 2), 1), P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    assert (leaves(w.cluster, 0), leaves(w.cluster, 1)) == ((), ())
    steps = w.request({0: None})
    assert [next(steps), next(steps), next(steps)] == ["topic", "states", "final"]
    assert (leaves(w.cluster, 0), leaves(w.cluster, 1)) == ((3,), ())
    assert [dropped_on(w.cluster, brokers) for brokers in ([3], [1, 2], [2, 3], [])] == [[0], [], [0], []]
    again = decided(w.cluster, partial(drop_again, rows=[0, 1], brokers=[2, 3]))
    assert [(m.entity, m.broker, m.stop, m.delete) for m in again.replica_moves] == [(0, 3, True, True)]
    assert decided(w.cluster, partial(drop_again, rows=[0], brokers=[1, 2])).empty


# -- the next controller


@pytest.mark.seed("S4-64", "S4-69", "S4-84")
@pytest.mark.parametrize("target", [None, (2, 4)], ids=["cancelled", "overridden"])
@pytest.mark.parametrize(("leader", "isr"), [(1, (1, 3)), (3, (1, 3)), (1, (1,))])
def test_the_next_controller_drops_the_replicas_of_a_cancel_that_was_not_written(
    target: tuple[int, ...] | None, leader: int, isr: tuple[int, ...]
) -> None:
    """Of broker 3 only the topic znode knows any more where it is not in the ISR, and only until it has stopped."""
    w = ReassignmentWorld(P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({0: (2, 3)}))
    w.found(leader, isr)
    steps = w.request({0: target})
    assert [next(steps), next(steps)] == ["topic", "states"]
    w.next_term()
    assert (w.row().isr, w.cluster.hosted(3), w.deleted) == (isr, [0], set())
    assert list(w.cluster.reassigning) == [0]
    do(w.resume())
    assert (w.row().leader, w.row().isr, w.deleted) == (1, (1,), {(0, 3)})
    assert w.row().assignment == w.written[0]
    assert (w.cluster.hosted(3), w.propagation.pending[3].stop) == ([], {0: True})


@pytest.mark.seed("S4-64", "S4-84")
def test_replicas_that_kafkas_controller_cancelled_leave_the_isr() -> None:
    """It had written the topic znode, which names broker 3 no more, and died before the state."""
    w = ReassignmentWorld(P((1, 2), 1, (1, 3)))
    w.next_term()
    assert (w.row().isr, w.cluster.hosted(3), list(w.cluster.reassigning)) == ((1, 3), [0], [0])
    do(w.resume())
    assert (w.row().leader, w.row().isr, w.deleted) == (1, (1,), {(0, 3)})
    assert (w.row().assignment, w.cluster.reassigning) == (Assignment((1, 2)), {})


@pytest.mark.seed("S4-84")
def test_a_replica_that_stops_is_named_in_every_rewrite_until_the_last() -> None:
    """What stops is named in every rewrite until the last."""
    w = ReassignmentWorld(P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({0: (2, 3)}))
    steps = w.request({0: (2, 4)})
    assert [next(steps), next(steps), next(steps)] == ["topic", "states", "final"]
    assert (w.written[0], leaves(w.cluster, 0)) == (Assignment((2, 4, 1, 3), (4, 3), (1, 3)), (3,))
    assert in_progress(w.cluster) == {0: Assignment((2, 4, 1), (4,), (1,))}
    steps = w.request({0: None})
    assert [next(steps), next(steps), next(steps)] == ["topic", "states", "final"]
    assert (w.written[0], leaves(w.cluster, 0)) == (Assignment((2, 1, 4, 3), (4, 3), (4, 3)), (4, 3))
    assert in_progress(w.cluster) == {}
    do(steps)
    assert (w.written[0], w.deleted) == (Assignment((2, 1)), {(0, 3), (0, 4)})


@pytest.mark.seed("S4-64")
def test_a_model_whose_isrs_are_assigned_has_no_strays() -> None:
    w = ReassignmentWorld(P((1, 2), 1), P((2, 1, 3), 1, (3, 1)), P((1, 2)))
    before = list(w.cluster.rows)
    assert w.cluster.observe_strays() == []
    assert all(a is b for a, b in zip(before, w.cluster.rows, strict=True))


@pytest.mark.seed("S4-61", "S4-84")
def test_the_znode_of_reassignments_keeps_targets_that_are_under_way() -> None:
    """Partitions that are unknown, finished, or superseded by a request go."""
    w = ReassignmentWorld(*[P((1, 2), 1)] * 4, brokers=(1, 2, 3, 4))
    targets = {TopicPartition("t", p): (2, 3) for p in range(5)}
    assert unfinished(w.cluster, targets) == {}
    do(w.request(dict.fromkeys(range(3), (2, 3)), live_only=False))
    assert list(unfinished(w.cluster, targets)) == [("t", 0), ("t", 1), ("t", 2)]
    do(w.request({0: (2, 4)}))
    do(w.isr({1: (1, 2, 3)}))
    assert unfinished(w.cluster, targets) == {("t", 2): (2, 3)}
    do(w.request({2: None}))
    assert unfinished(w.cluster, targets) == {}
