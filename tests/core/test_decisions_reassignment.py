"""Reassignment over many partitions: what is asked, begun, completed, overridden, cancelled and resumed (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from state_machines.decisions.broker_change import broker_death, broker_return
from state_machines.decisions.reassignment import (
    A_DAEMON,
    EMPTY,
    LAST_IN_SYNC,
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
    final_rewrites,
    in_progress,
    is_complete,
    judge,
    leaves,
    reassign,
    rewrites,
    unfinished,
    waiting_for,
)
from state_machines.machines import selectors
from state_machines.model.decision import Refusal
from state_machines.model.types import NO_LEADER, Assignment, Leadership, PartitionState, ReplicaState, TopicPartition
from tests.core.model import P, decided, writes_of
from tests.core.reassignment_world import ReassignmentWorld, do

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
def test_the_assignment_while_it_is_under_way(before: Assignment, target: tuple[int, ...], after: Assignment) -> None:
    assert before.reassigned_to(target) == after
    assert (after.target, after.moving) == (target, bool(after.adding or after.removing))


@pytest.mark.kafka("ControllerContextTest.testReassignToIdempotence", "ControllerContextTest.testReassignTo")
@pytest.mark.seed("S4-84")
@given(first=ids, second=ids, third=ids)
def test_an_override_is_as_if_the_first_target_had_never_been(
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
    told = over.kept
    assert (told.target, set(told.replicas), set(told.adding)) == (third, set(direct.replicas), set(direct.adding))
    assert set(told.removing) == set(direct.removing)
    assert not under_way.reassigned_to(under_way.origin).kept.moving


# -- what may be asked


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
def test_judge(row: int | None, target: tuple[int, ...] | None, unsound: str | None) -> None:
    """Kafka's order: the target is looked at before the partition; a cancel of nothing before either."""
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


@pytest.mark.seed("S4-84")
def test_a_request_by_znode_may_name_brokers_that_come_later() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    assert judge(w.cluster, ReassignmentRequest(0, (2, 9)), live_only=False) == Assignment((2, 9, 1), (9,), (1,))
    found = judge(w.cluster, ReassignmentRequest(0, (2, DAEMON)), {DAEMON}, live_only=False)
    assert found == NotReassigned(ReassignError.INVALID_REPLICA_ASSIGNMENT, A_DAEMON)


@pytest.mark.seed("S4-84")
def test_a_broker_that_shuts_down_is_no_target() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    w.cluster.observe_shutting_down(3)
    assert judge(w.cluster, ReassignmentRequest(0, (1, 3))) == NotReassigned(
        ReassignError.INVALID_REPLICA_ASSIGNMENT, NOT_LIVE
    )
    assert judge(w.cluster, ReassignmentRequest(0, (2, 1))) == Assignment((2, 1)), "who is there already may be down"


@pytest.mark.seed("S4-51")
def test_one_rewrite_per_topic_and_none_where_nothing_is_new() -> None:
    w = ReassignmentWorld(*[P((1, 2), 1)] * 4)
    moved = Assignment((1, 2)).reassigned_to((2, 3))
    [change] = rewrites(w.cluster, {0: moved, 2: Assignment((1, 2)), 3: moved})
    assert (change.topic, change.version, change.partitions) == ("t", 3, {0: moved, 3: moved})
    assert change.topic_id is None, "the id in the znode stays (KAFKA-12835)"
    w.rewrite([change])
    assert rewrites(w.cluster, {0: moved, 3: moved}) == []
    assert w.zookeeper.topics["t"].topic_id is not None
    assert w.cluster.topics[0].version == 4


# -- all steps


@pytest.mark.seed("S4-51", "S4-52", "S4-53", "S4-54", "S4-55", "S4-56", "S4-57", "S4-58", "S4-59", "S4-60", "S4-63")
def test_the_protocols_table() -> None:
    """{1,2,3} to {4,5,6}: assignment, leader and ISR in ZooKeeper after the steps of the protocol's description."""
    w = ReassignmentWorld(P((1, 2, 3), 1), brokers=range(1, 7))
    seen = [table_row(w)]
    steps = w.request({0: (4, 5, 6)})
    assert next(steps) == "topic"
    assert next(steps) == "states"
    seen.append(table_row(w))
    assert list(steps) == []
    assert {b: box.lead for b, box in w.propagation.pending.items()} == {b: {0: b > 3} for b in range(1, 7)}
    assert [w.cluster.replica_state(0, b) for b in range(1, 7)] == [ReplicaState.ONLINE] * 3 + [ReplicaState.NEW] * 3
    steps = w.isr({0: (1, 2, 3, 4, 5, 6)})
    assert next(steps) == "states"
    seen.append(table_row(w))
    assert next(steps) == "final"
    seen.append(table_row(w))
    assert list(steps) == []
    seen.append(table_row(w))
    union = (4, 5, 6, 1, 2, 3)
    assert seen == [
        ((1, 2, 3), 1, (1, 2, 3)),
        (union, 1, (1, 2, 3)),
        (union, 1, (1, 2, 3, 4, 5, 6)),
        (union, 4, (4, 5, 6)),
        ((4, 5, 6), 4, (4, 5, 6)),
    ]
    assert w.writes[-2:] == [1, 1], "all that Kafka writes in five steps is one write here"
    assert w.row().leader_epoch == 5, "and the leader epoch is the same: begun, elected, three replicas removed"
    assert w.deleted == {(0, 1), (0, 2), (0, 3)}
    assert w.cluster.replica_states == {}
    assert {b: box.stop for b, box in w.propagation.pending.items() if box.stop} == {b: {0: True} for b in (1, 2, 3)}
    assert {b for b, box in w.propagation.pending.items() if box.lead} == {4, 5, 6}
    assert w.cluster.hosted(1) == []
    assert w.cluster.hosted(4) == [0]


def table_row(w: ReassignmentWorld) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    held = w.zookeeper.states["t", 0]
    return w.written[0].replicas, held.leader, tuple(sorted(held.isr))


@pytest.mark.seed("S4-63", "S4-64", "S4-69")
@pytest.mark.parametrize("kill_at", range(4))
def test_the_controller_dies_before_each_of_its_writes(kill_at: int) -> None:
    """The next one finishes it, whatever was written; every replica that goes was told to delete its log."""
    w = ReassignmentWorld(P((1, 2, 3), 1), brokers=range(1, 7))
    steps = chain(w.request({0: (4, 5, 6)}), later(w))
    assert [next(steps) for _ in range(kill_at + 1)] == ["topic", "states", "states", "final"][: kill_at + 1]
    w.begin_term()
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


@pytest.mark.kafka("ControllerIntegrationTest.testPartitionReassignment")
@pytest.mark.seed("S4-54", "S4-57")
def test_a_single_replica_moves_in_three_leader_epochs() -> None:
    w = ReassignmentWorld(P((1,), 1, epoch=5))
    do(w.request({0: (2,)}))
    assert (w.row().leader_epoch, w.row().leader, w.row().assignment) == (6, 1, Assignment((2, 1), (2,), (1,)))
    do(w.isr({0: (1, 2)}))
    assert (w.row().leader_epoch, w.row().leader, w.row().isr) == (8, 2, (2,))
    assert w.written[0] == Assignment((2,))


@pytest.mark.seed("S4-50", "S4-54")
def test_a_destination_that_is_down_halts_it_until_it_returns() -> None:
    """By znode, which may name a broker that is down: one epoch while it waits, one more at its return, then two."""
    w = ReassignmentWorld(P((1,), 1, epoch=5), brokers=(1, 3))
    do(w.request({0: (2,)}, live_only=False))
    assert w.row().leader_epoch == 6
    assert (due(w.cluster, [0]), waiting_for(w.cluster, [3]), waiting_for(w.cluster, [2])) == ([], [], [0])
    w.brokers(1, 2, 3)
    w.carry_out(partial(broker_return, returned=[2]))
    do(w.go_on(waiting_for(w.cluster, [2]), again=True))
    assert w.row().leader_epoch == 7
    assert w.propagation.pending[2].lead == {0: True}, "as new: it may choose a log directory that works"
    do(w.isr({0: (1, 2)}))
    assert (w.row().leader_epoch, w.written[0]) == (9, Assignment((2,)))


@pytest.mark.seed("S4-54")
def test_a_destination_that_dies_and_returns() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (1, 3)}))
    w.brokers(1, 2)
    w.carry_out(partial(broker_death, dead=[3]))
    assert w.row().assignment == Assignment((1, 3, 2), (3,), (2,))
    w.brokers(1, 2, 3, epoch=200)
    w.carry_out(partial(broker_return, returned=[3]))
    do(w.go_on(waiting_for(w.cluster, [3]), again=True))
    do(w.isr({0: (1, 2, 3)}))
    assert (w.written[0], w.row().isr) == (Assignment((1, 3)), (1, 3))


@pytest.mark.seed("S4-54", "S4-69")
def test_nothing_happens_before_the_target_is_in_sync() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    before = w.row()
    assert due(w.cluster, [0]) == []
    w.carry_out(partial(reassign, rows=[0]))
    assert w.row() is before
    assert in_progress(w.cluster) == {0: Assignment((2, 3, 1), (3,), (1,))}


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
def test_who_leads_in_the_end(leader: int, live: tuple[int, ...], elected: int | None) -> None:
    w = ReassignmentWorld(P((1, 2), leader))
    do(w.request({0: (2, 3)}))
    isr = (1, 2, 3)
    w.zookeeper.set_isr(("t", 0), isr)
    w.cluster.observe_leadership(0, w.zookeeper.states["t", 0])
    w.brokers(*live)
    assert due(w.cluster, [0]) == [0]
    do(w.go_on([0]))
    if elected is None:
        assert w.refusals == [Refusal(0, WAITS, selectors.NO_TARGET)]
        assert (w.row().leader, w.row().isr, w.deleted) == (1, isr, set()), "the last live copy is not given away"
        w.brokers(*live, 3)
        do(w.go_on(waiting_for(w.cluster, [3]), again=True))
        elected = 3
    assert (w.row().leader, w.row().isr, w.written[0]) == (elected, (2, 3), Assignment((2, 3)))
    assert w.deleted == {(0, 1)}


@pytest.mark.seed("S4-56")
@pytest.mark.parametrize("target", [(2, 1), (1,), (2,)], ids=["another order", "fewer", "fewer, another leader"])
def test_what_needs_no_new_replica_is_complete_at_once(target: tuple[int, ...]) -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: target}))
    assert (w.written[0], w.row().assignment, w.cluster.reassigning) == (Assignment(target), Assignment(target), {})
    assert w.row().leader == (1 if 1 in target else 2)
    assert w.deleted == {(0, b) for b in (1, 2) if b not in target}


def test_what_is_there_already_costs_nothing() -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    before = w.row()
    do(w.request({0: (1, 2)}))
    assert w.row() is before
    assert w.rewrites == [0]


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
def test_a_cancel_ends_it_at_once(isr: tuple[int, ...], leader: int, epochs: int) -> None:
    """The order of the replicas before is not restored; the added one is named until it has stopped."""
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (4, 2)}, live_only=False))
    do(w.request({0: (2, 3)}))
    assert w.deleted == {(0, 4)}
    held = w.zookeeper.states["t", 0]
    w.zookeeper.states["t", 0] = Leadership(leader, held.leader_epoch, isr, held.controller_epoch, held.version + 1)
    w.cluster.observe_leadership(0, w.zookeeper.states["t", 0])
    rewritten = sum(w.rewrites)
    do(w.request({0: None}))
    assert sum(w.rewrites) == rewritten + 2
    assert (w.written[0], w.row().assignment) == (Assignment((2, 1)), Assignment((2, 1)))
    assert (w.row().isr, w.row().leader_epoch) == ((1, 2), held.leader_epoch + epochs)
    assert w.row().leader == (2 if leader == 3 else 1)
    assert w.deleted == {(0, 3), (0, 4)}
    assert judge(w.cluster, ReassignmentRequest(0, None)) == NotReassigned(
        ReassignError.NO_REASSIGNMENT_IN_PROGRESS, NOT_REASSIGNED
    )


@pytest.mark.seed("S4-84")
def test_an_override_drops_what_the_first_target_added() -> None:
    w = ReassignmentWorld(P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({0: (2, 3)}))
    do(w.request({0: (2, 4)}))
    assert w.written[0] == w.row().assignment == Assignment((2, 4, 1), (4,), (1,))
    assert w.deleted == {(0, 3)}
    assert w.propagation.pending[3].stop == {0: True}
    assert w.propagation.pending[3].lead == {}
    do(w.isr({0: (1, 2, 4)}))
    assert (w.written[0], w.row().isr, w.deleted) == (Assignment((2, 4)), (2, 4), {(0, 1), (0, 3)})


@pytest.mark.seed("S4-84")
def test_a_repeated_request_tells_again() -> None:
    """A replica that missed its first order hears the next, as Kafka's controller does it."""
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    do(w.request({0: (2, 3)}))
    assert w.rewrites == [1, 0]
    assert w.row().leader_epoch == 2
    assert w.propagation.pending[3].lead == {0: True}


@pytest.mark.seed("S4-84")
def test_a_replica_that_was_dropped_comes_back() -> None:
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
    held = w.zookeeper.states["t", 0]
    w.zookeeper.states["t", 0] = Leadership(3, held.leader_epoch + 1, (3,), 7, held.version + 1)
    w.cluster.observe_leadership(0, w.zookeeper.states["t", 0])
    refused = NotReassigned(ReassignError.INVALID_REPLICA_ASSIGNMENT, LAST_IN_SYNC)
    assert judge(w.cluster, ReassignmentRequest(0, None)) == refused
    assert judge(w.cluster, ReassignmentRequest(0, (2, 1))) == refused
    w.cluster.observe_assignments("t", 4, {0: Assignment((2, 1))})
    decision = decided(w.cluster, partial(reassign, rows=[0], again=True))
    assert decision.refusals == [Refusal(0, WAITS, LAST_IN_SYNC)]
    assert decision.empty


@pytest.mark.seed("S4-84")
@pytest.mark.parametrize("target", [None, (2, 4)], ids=["cancelled", "overridden"])
def test_a_leader_goes_only_where_another_replica_can_lead(target: tuple[int, ...] | None) -> None:
    w = ReassignmentWorld(P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({0: (2, 3)}))
    held = w.zookeeper.states["t", 0]
    w.zookeeper.states["t", 0] = Leadership(3, held.leader_epoch, (3, 2), 7, held.version + 1)
    w.cluster.observe_leadership(0, w.zookeeper.states["t", 0])
    w.brokers(1, 3, 4)
    do(w.request({0: target}))
    assert w.refusals == [Refusal(0, WAITS, selectors.NO_TARGET)]
    assert (w.row().leader, w.deleted) == (3, set())
    w.brokers(1, 2, 3, 4)
    assert due(w.cluster, [0]) == [0]
    do(w.go_on(waiting_for(w.cluster, [2]), again=True))
    assert (w.row().leader, w.row().isr, w.deleted) == (2, (2,), {(0, 3)})


@pytest.mark.seed("S4-84")
@pytest.mark.parametrize("leader", [1, 3, NO_LEADER])
def test_a_partition_without_a_leader_can_be_cancelled(leader: int) -> None:
    w = ReassignmentWorld(P((1, 2), 1))
    do(w.request({0: (2, 3)}))
    held = w.zookeeper.states["t", 0]
    w.zookeeper.states["t", 0] = Leadership(leader, held.leader_epoch, (1, 3), 7, held.version + 1)
    w.brokers(2)
    w.cluster.observe_leadership(0, w.zookeeper.states["t", 0])
    do(w.request({0: None}))
    assert (w.row().leader, w.row().isr) == (1 if leader == 1 else NO_LEADER, (1,))
    assert (w.row().state, w.written[0]) == (PartitionState.OFFLINE, Assignment((2, 1)))


@pytest.mark.seed("S4-84")
def test_a_partition_that_never_started_starts_where_it_is_moved_to() -> None:
    w = ReassignmentWorld(P((8, 9)))
    assert w.row().state is PartitionState.NEW
    do(w.request({0: (3, 1)}))
    assert (w.row().leader, w.row().isr, w.row().assignment) == (3, (3, 1), Assignment((3, 1, 8, 9), (3, 1), (8, 9)))
    do(w.go_on(due(w.cluster, [0])))
    assert (w.written[0], w.row().isr) == (Assignment((3, 1)), (3, 1))


@pytest.mark.seed("S4-60", "S4-84")
def test_between_the_last_two_writes_it_counts_as_complete() -> None:
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


@pytest.mark.seed("S4-51", "S4-52", "S4-53", "S4-57", "S4-60")
def test_many_partitions_are_one_rewrite_per_topic_and_one_write_each() -> None:
    w = ReassignmentWorld(*[P((1, 2), 1)] * 50, *[P((2, 1), 2)] * 50, brokers=(1, 2, 3, 4))
    rows = list(range(100))
    moved = {i: (w.row(i).leader, 3 + i % 2) for i in rows}
    do(w.request(dict(moved)))
    assert (w.rewrites, w.writes[1:]) == ([1], [100])
    assert w.propagation.pending[3].lead == {i: True for i in rows if i % 2 == 0}
    do(w.isr({i: (*w.row(i).isr, 3 + i % 2) for i in rows[:60]}))
    assert (w.rewrites, w.writes[1:]) == ([1, 1], [100, 60])
    assert sorted(w.cluster.reassigning) == rows[60:]
    assert {i: w.written[i].replicas for i in rows[:60]} == {i: moved[i] for i in rows[:60]}
    assert w.cluster.hosted(3) == [i for i in rows if i % 2 == 0]
    assert w.cluster.hosted(2) == rows[50:]


@pytest.mark.seed("S4-57")
def test_what_a_conflict_left_is_decided_again_and_nothing_else() -> None:
    w = ReassignmentWorld(*[P((1, 2), 1)] * 3)
    steps = w.request(dict.fromkeys(range(3), (2, 3)))
    assert [next(steps), next(steps)] == ["topic", "states"]
    whole = decided(w.cluster, partial(reassign, rows=[0, 1, 2]))
    part = decided(w.cluster, partial(reassign, rows=[0, 1, 2]), only=[1])
    assert writes_of(part) == {1: writes_of(whole)[1]}
    assert {move.entity for move in part.replica_moves} == {1}


# -- a term that ends between a cancel and its states


@pytest.mark.seed("S4-64", "S4-69", "S4-84")
@pytest.mark.parametrize("target", [None, (2, 4)], ids=["cancelled", "overridden"])
@pytest.mark.parametrize(("leader", "isr"), [(1, (1, 3)), (3, (1, 3)), (1, (1,))])
def test_what_was_to_be_dropped_when_the_controller_died_is_dropped_by_the_next(
    target: tuple[int, ...] | None, leader: int, isr: tuple[int, ...]
) -> None:
    """Of broker 3 only the topic znode knows any more where it is not in the ISR, and only until it has stopped."""
    w = ReassignmentWorld(P((1, 2), 1), brokers=(1, 2, 3, 4))
    do(w.request({0: (2, 3)}))
    held = w.zookeeper.states["t", 0]
    w.zookeeper.states["t", 0] = Leadership(leader, held.leader_epoch, isr, 7, held.version + 1)
    w.cluster.observe_leadership(0, w.zookeeper.states["t", 0])
    steps = w.request({0: target})
    assert [next(steps), next(steps)] == ["topic", "states"]
    w.begin_term()
    assert (w.row().isr, w.cluster.hosted(3), w.deleted) == (isr, [0], set())
    assert list(w.cluster.reassigning) == [0]
    do(w.resume())
    assert (w.row().leader, w.row().isr, w.deleted) == (1, (1,), {(0, 3)})
    assert w.row().assignment == w.written[0]
    assert (w.cluster.hosted(3), w.propagation.pending[3].stop) == ([], {0: True})


@pytest.mark.seed("S4-64", "S4-84")
def test_what_kafkas_controller_has_cancelled_leaves_the_isr() -> None:
    """It had written the topic znode, which names broker 3 no more, and died before the state."""
    w = ReassignmentWorld(P((1, 2), 1, (1, 3)))
    w.begin_term()
    assert (w.row().isr, w.cluster.hosted(3), list(w.cluster.reassigning)) == ((1, 3), [0], [0])
    do(w.resume())
    assert (w.row().leader, w.row().isr, w.deleted) == (1, (1,), {(0, 3)})
    assert (w.row().assignment, w.cluster.reassigning) == (Assignment((1, 2)), {})


@pytest.mark.seed("S4-84")
def test_a_target_that_is_overridden_while_the_last_one_stops() -> None:
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
def test_a_healthy_model_has_no_strays() -> None:
    w = ReassignmentWorld(P((1, 2), 1), P((2, 1, 3), 1, (3, 1)), P((1, 2)))
    before = list(w.cluster.rows)
    assert w.cluster.observe_strays() == []
    assert all(a is b for a, b in zip(before, w.cluster.rows, strict=True))


@pytest.mark.seed("S4-61", "S4-84")
def test_what_stays_in_the_znode_of_reassignments() -> None:
    """What is under way to the target named there; not what is unknown, finished, or superseded by a request."""
    w = ReassignmentWorld(*[P((1, 2), 1)] * 4, brokers=(1, 2, 3, 4))
    asked = {TopicPartition("t", p): (2, 3) for p in range(5)}
    assert unfinished(w.cluster, asked) == {}
    do(w.request(dict.fromkeys(range(3), (2, 3)), live_only=False))
    assert list(unfinished(w.cluster, asked)) == [("t", 0), ("t", 1), ("t", 2)]
    do(w.request({0: (2, 4)}))
    do(w.isr({1: (1, 2, 3)}))
    assert unfinished(w.cluster, asked) == {("t", 2): (2, 3)}
    do(w.request({2: None}))
    assert unfinished(w.cluster, asked) == {}
