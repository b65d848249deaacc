"""What a draft makes of several drawings: one write per znode, none where nothing changes, and `only` what is asked."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.broker_change import REPLICA_DIED, broker_death
from state_machines.decisions.controlled_shutdown import controlled_shutdown
from state_machines.decisions.failover import failover
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.decision import Change, Refusal, ReplicaMove
from state_machines.model.types import NO_LEADER, PartitionState, ReplicaState
from tests.core.model import EPOCH, P, decided, die, make_cluster, registered, shown, writes_of


@pytest.mark.seed("S4-44", "S4-45", "S4-46")
def test_elect_and_shrink_are_one_write() -> None:
    """Two epochs, as two writes of Kafka's would make; the znode is written once."""
    cluster = make_cluster(P((1, 2, 3), 1, epoch=5, version=9))
    die(cluster, 1)

    def elect_then_shrink(draft: Draft) -> None:
        PartitionStateMachine(draft).elect([0], lambda *_: selectors.Election(2, (1, 2, 3), "moved"))
        ReplicaStateMachine(draft).take_offline(1, [0], "shrunk")

    decision = decided(cluster, elect_then_shrink)
    assert writes_of(decision) == {0: (2, (2, 3), 7, 10)}
    assert [change.why for change in decision.writes] == ["shrunk"]
    assert [change.steps for change in decision.writes] == [("moved", "shrunk")]
    assert decision.moves == []
    assert decision.metadata == [], "the write tells the metadata"


def test_a_created_state_that_is_drawn_again_is_still_created() -> None:
    cluster = make_cluster(P((1, 2)))

    def create_then_shrink(draft: Draft) -> None:
        PartitionStateMachine(draft).elect_leaderless([0])
        ReplicaStateMachine(draft).take_offline(2, [0], "shrunk")

    [change] = decided(cluster, create_then_shrink).writes
    assert shown(change) == (1, (1,), 1, 0)
    assert change.creates
    assert change.is_new


def test_the_model_is_not_touched_by_a_draft() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), P((4,)), brokers=(2, 3))
    rows, leaderless = list(cluster.rows), set(cluster.leaderless)
    assert writes_of(decided(cluster, partial(broker_death, dead=[1]))) == {0: (2, (2,), 1, 1), 1: (2, (2,), 1, 1)}
    assert all(a is b for a, b in zip(rows, cluster.rows, strict=True))
    assert cluster.leaderless == leaderless
    assert cluster.replica_states == {}


@pytest.mark.parametrize("decide", [partial(broker_death, dead=[1]), failover])
def test_only_restricts_everything_but_the_answers(decide: partial[None]) -> None:
    """Decided again after a conflict: the same answers for what is unsettled, silence about the rest."""
    behind = P((2, 1), 2, (2,))
    cluster = make_cluster(*[P((1, 2), 1)] * 3, *[P((2, 1), 2)] * 3, *[P((1,), 1)] * 3, behind, behind, brokers=(2, 3))
    whole = decided(cluster, decide)
    for only in ([0], [3], [6], [1, 4, 7, 10], []):
        part = decided(cluster, decide, only)
        assert writes_of(part) == {i: w for i, w in writes_of(whole).items() if i in only}
        assert part.refusals == [refusal for refusal in whole.refusals if refusal.entity in only]
        assert all(change.entity in only for change in part.moves)
        assert part.metadata == [i for i in whole.metadata if i in only]
        assert part.empty == (not only)


def test_only_restricts_replica_moves() -> None:
    cluster = make_cluster(*[P((2, 1), 2)] * 4)
    cluster.observe_shutting_down(1)
    part = decided(cluster, partial(controlled_shutdown, broker=1), [1, 3])
    assert [move.entity for move in part.replica_moves] == [1, 3]
    assert sorted(writes_of(part)) == [1, 3]


def test_illegal_transitions_outside_of_only_are_not_refused() -> None:
    draft = Draft(make_cluster(P((1, 2), 1), P((1, 2), 1)), only=[1])
    PartitionStateMachine(draft).create([0, 1], "asked")
    assert draft.finish().refusals == [Refusal(1, "NEW", "illegal partition transition ONLINE -> NEW")]


def test_a_draft_holds_only_by_itself() -> None:
    """Whoever draws: a machine, or a decision that draws directly."""
    draft = Draft(make_cluster(*[P((1, 2), 1, epoch=3, version=4)] * 2), only=[1])
    for i in (0, 1):
        draft.lead(i, 2, (2,), "lead")
    assert writes_of(draft.finish()) == {1: (2, (2,), 4, 5)}
    draft = Draft(draft.cluster, only=[1])
    for i in (0, 1):
        draft.change_isr(i, (1,), False, "ISR")
    assert writes_of(draft.finish()) == {1: (1, (1,), 3, 5)}
    draft = Draft(draft.cluster, only=[1])
    for i in (0, 1):
        draft.move(i, PartitionState.OFFLINE, "marked")
        draft.move_replica(ReplicaMove(i, 1, ReplicaState.OFFLINE, "marked"))
    draft.send_metadata([0])
    decision = draft.finish()
    assert [change.entity for change in decision.moves] == [1]
    assert [move.entity for move in decision.replica_moves] == [1]
    assert decision.metadata == []


def test_the_reason_of_a_write_outlives_a_mark() -> None:
    draft = Draft(make_cluster(P((1, 2), 1)))
    draft.lead(0, 2, (2,), "elected")
    draft.move(0, PartitionState.OFFLINE, "marked")
    [change] = draft.finish().writes
    assert (change.why, change.after.leader, change.after.state) == ("elected", 2, PartitionState.OFFLINE)


def test_nothing_to_do_is_an_empty_decision() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), NO_LEADER, (9,)), P((9,)))
    cluster.observe_brokers(registered((1, 2, 3)))

    def retry(draft: Draft) -> None:
        PartitionStateMachine(draft).elect_leaderless(sorted(cluster.leaderless))

    decision = decided(cluster, retry)
    assert decision.empty
    assert decision.refusals == [
        Refusal(2, "ONLINE", selectors.NO_LIVE_REPLICA),
        Refusal(1, "ONLINE", selectors.NO_LIVE_ISR),
    ]


def test_a_move_to_the_present_state_is_none() -> None:
    cluster = make_cluster(P((9,), NO_LEADER, (9,)))
    assert decided(cluster, lambda d: PartitionStateMachine(d).take_offline([0], "asked")).empty


def test_a_dead_broker_outside_of_every_isr_causes_no_write() -> None:
    cluster = make_cluster(P((1, 2, 3), 1, (1, 2)))
    die(cluster, 3)
    decision = decided(cluster, partial(broker_death, dead=[3]))
    assert decision.writes == []
    assert decision.metadata == [0]


def test_a_leaderless_partition_costs_no_write_at_each_failover() -> None:
    """Where only the epoch would move, a write of its own is saved."""
    cluster = make_cluster(P((9, 8), NO_LEADER, (9,), epoch=4, version=4))
    assert decided(cluster, failover).writes == []


@pytest.mark.parametrize(
    ("before", "after", "creates", "writes"),
    [
        (P((1,)), P((1,), 1), True, True),
        (P((1,), 1, epoch=3, version=3), P((1,), NO_LEADER, (1,), epoch=4, version=4), False, True),
        (P((1, 2), 1, epoch=3, version=3), P((1, 2), 1, (1,), epoch=3, version=4), False, True),
        (P((1,), 1, epoch=3, version=3), P((1,), 1, epoch=3, version=3), False, False),
        (P((1,)), P((1,)), False, False),
        (P((1,), 1), P((1,)), False, True),
    ],
)
def test_what_a_change_means(before: P, after: P, creates: bool, writes: bool) -> None:
    first, second = make_cluster(before).rows[0], make_cluster(after).rows[0]
    change = Change(0, first, second, "test")
    assert (change.creates, change.writes) == (creates, writes)


def test_a_later_state_of_a_replica_replaces_the_earlier() -> None:
    draft = Draft(make_cluster(P((1, 2), 1)))
    draft.move_replica(ReplicaMove(0, 2, ReplicaState.NEW, "a"))
    draft.move_replica(ReplicaMove(0, 2, ReplicaState.ONLINE, "b"))
    [move] = draft.finish().replica_moves
    assert move == ReplicaMove(0, 2, ReplicaState.ONLINE, "b", passed=(ReplicaState.NEW,))
    assert draft.replica(0, 2) is ReplicaState.ONLINE


def test_all_changes_of_a_decision_carry_the_terms_epoch() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2,)))
    die(cluster, 1)
    for change in decided(cluster, partial(broker_death, dead=[1])).writes:
        assert change.after.controller_epoch == EPOCH
        assert change.after.state is PartitionState.ONLINE


def test_a_write_tells_which_states_and_epochs_it_merges() -> None:
    """What a judge needs who sees the write alone: each leader epoch has its reason, each state is in its order."""
    cluster = make_cluster(P((1, 2, 3), 1), P((1,), 1), P((2, 1), 2, isr=(2, 1)))
    die(cluster, 1)
    by_row = {change.entity: change for change in decided(cluster, partial(broker_death, dead=[1])).writes}
    assert by_row[0].steps == (selectors.OFFLINE_IN_ISR,)
    assert by_row[0].states == (PartitionState.OFFLINE, PartitionState.ONLINE)
    assert by_row[1].steps == (REPLICA_DIED,)
    assert by_row[1].states == (PartitionState.OFFLINE,)
    assert by_row[2].steps == (REPLICA_DIED,)
    assert by_row[2].states == ()
    assert [change.after.leader_epoch - change.before.leader_epoch for change in by_row.values()] == [1, 1, 1]


def test_a_replica_tells_what_it_passed() -> None:
    draft = Draft(make_cluster(P((1, 2), 1)))
    draft.move_replica(ReplicaMove(0, 2, ReplicaState.OFFLINE, "a", stop=True))
    draft.move_replica(ReplicaMove(0, 2, ReplicaState.DELETION_STARTED, "b", stop=True, delete=True))
    draft.move_replica(ReplicaMove(0, 2, ReplicaState.DELETION_SUCCESSFUL, "c"))
    [move] = draft.finish().replica_moves
    assert (move.state, move.passed) == (
        ReplicaState.DELETION_SUCCESSFUL,
        (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED),
    )
    assert (move.stop, move.delete) == (True, True)
