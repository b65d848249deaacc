"""What a draft makes of several drawings, and decisions against a reference that takes one partition at a time."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from state_machines.decisions.broker_change import REPLICA_DIED, broker_death, controlled_shutdown
from state_machines.decisions.failover import failover
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.decision import Change, Refusal, ReplicaMove
from state_machines.model.types import NO_LEADER, Assignment, PartitionState, ReplicaState
from tests.kit.kafka.model import EPOCH, P, decided, die, make_cluster, registered, shown, writes_of

ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE


@pytest.mark.seed("S4-44", "S4-45", "S4-46")
def test_an_election_and_a_smaller_isr_are_one_write_of_two_leader_epochs() -> None:
    cluster = make_cluster(P((1, 2, 3), 1, epoch=5, version=9))
    die(cluster, 1)

    def elect_then_shrink(draft: Draft) -> None:
        PartitionStateMachine(draft).elect([0], lambda *_: selectors.Election(2, (1, 2, 3), "moved"))
        ReplicaStateMachine(draft).take_offline(1, [0], "shrunk")

    decision = decided(cluster, elect_then_shrink)
    assert writes_of(decision) == {0: (2, (2, 3), 7, 10)}
    [change] = decision.writes
    assert (change.why, change.steps, change.after.controller_epoch) == ("shrunk", ("moved", "shrunk"), EPOCH)
    assert (decision.moves, decision.metadata) == ([], []), "the write sends the metadata, too"


def test_a_state_znode_that_is_drawn_twice_is_created_once() -> None:
    cluster = make_cluster(P((1, 2)))

    def create_then_shrink(draft: Draft) -> None:
        PartitionStateMachine(draft).elect_leaderless([0])
        ReplicaStateMachine(draft).take_offline(2, [0], "shrunk")

    [change] = decided(cluster, create_then_shrink).writes
    assert shown(change) == (1, (1,), 1, 0)
    assert change.creates
    assert change.is_new


def test_a_decision_leaves_the_model_as_it_was() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), P((4,)), brokers=(2, 3))
    rows, leaderless = list(cluster.rows), set(cluster.leaderless)
    assert writes_of(decided(cluster, partial(broker_death, dead=[1]))) == {0: (2, (2,), 1, 1), 1: (2, (2,), 1, 1)}
    assert all(a is b for a, b in zip(rows, cluster.rows, strict=True))
    assert (cluster.leaderless, cluster.replica_states) == (leaderless, {})


@pytest.mark.parametrize("decide", [partial(broker_death, dead=[1]), failover])
def test_a_repeated_decision_is_the_same_for_its_rows_and_has_no_others(decide: partial[None]) -> None:
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


def test_a_repeated_decision_moves_the_replicas_of_its_rows_only() -> None:
    cluster = make_cluster(*[P((2, 1), 2)] * 4)
    cluster.observe_shutting_down(1)
    part = decided(cluster, partial(controlled_shutdown, broker=1), [1, 3])
    assert [move.entity for move in part.replica_moves] == [1, 3]
    assert sorted(writes_of(part)) == [1, 3]


def test_a_draft_of_some_rows_takes_no_drawing_of_another() -> None:
    """Neither by a machine nor by a decision that draws directly."""
    draft = Draft(make_cluster(*[P((1, 2), 1, epoch=3, version=4)] * 6), only=[1, 2, 3])
    for i in (0, 1):
        draft.lead(i, 2, (2,), "a test")
        draft.move_replica(ReplicaMove(i, 1, ReplicaState.OFFLINE, "a test"))
    for i in (2, 4):
        draft.change_isr(i, (1,), False, "a test")
    for i in (3, 5):
        draft.move(i, OFFLINE, "a test")
        draft.assign(i, Assignment((1, 3)), "a test")
    draft.send_metadata([2, 3, 4])
    PartitionStateMachine(draft).create([3, 5], "a test")
    decision = draft.finish()
    assert writes_of(decision) == {1: (2, (2,), 4, 5), 2: (1, (1,), 3, 5)}
    assert [(move.entity, move.after.assignment.replicas) for move in decision.moves] == [(3, (1, 3))]
    assert [move.entity for move in decision.replica_moves] == [1]
    assert decision.metadata == [], "rows that are written or moved are sent anyway"
    assert decision.refusals == [Refusal(3, "NEW", "illegal partition transition OFFLINE -> NEW")]


def test_metadata_is_sent_of_rows_that_are_not_drawn() -> None:
    draft = Draft(make_cluster(*[P((1, 2), 1)] * 3), only=[0, 1])
    draft.send_metadata([0, 1, 2])
    draft.lead(0, 2, (2,), "a test")
    assert draft.finish().metadata == [1]


def test_an_assignment_alone_is_a_move_with_its_reason() -> None:
    draft = Draft(make_cluster(P((1, 2), 1), P((1, 2), 1)))
    draft.assign(0, Assignment((1, 3)), "a test")
    draft.assign(1, Assignment((1, 2)), "the present one")
    decision = draft.finish()
    assert decision.writes == []
    assert [(m.entity, m.after.assignment, m.why) for m in decision.moves] == [(0, Assignment((1, 3)), "a test")]


def test_the_reason_of_a_write_outlives_a_later_mark() -> None:
    draft = Draft(make_cluster(P((1, 2), 1)))
    draft.lead(0, 2, (2,), "elected")
    draft.move(0, OFFLINE, "marked")
    [change] = draft.finish().writes
    assert (change.why, change.after.leader, change.after.state) == ("elected", 2, OFFLINE)


def test_a_decision_of_nothing_is_empty_beside_its_refusals() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), NO_LEADER, (9,)), P((9,)))
    cluster.observe_brokers(registered((1, 2, 3)))

    def retry(draft: Draft) -> None:
        PartitionStateMachine(draft).elect_leaderless(sorted(cluster.leaderless))
        PartitionStateMachine(draft).take_offline([1], "it is offline already")

    decision = decided(cluster, retry)
    assert decision.empty
    assert decision.refusals == [
        Refusal(2, "ONLINE", selectors.NO_LIVE_REPLICA),
        Refusal(1, "ONLINE", selectors.NO_LIVE_ISR),
    ]


def test_an_epoch_alone_is_not_written() -> None:
    """A leaderless partition costs no write at each failover."""
    cluster = make_cluster(P((9, 8), NO_LEADER, (9,), epoch=4, version=4))
    decision = decided(cluster, failover)
    assert (decision.writes, decision.metadata) == ([], [0])


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
def test_a_change_writes_where_the_version_differs_and_creates_the_first(
    before: P, after: P, creates: bool, writes: bool
) -> None:
    change = Change(0, make_cluster(before).rows[0], make_cluster(after).rows[0], "a test")
    assert (change.creates, change.writes) == (creates, writes)
    assert (change.is_late, Change(0, change.before, change.after, "a test", is_new=True).is_late) == (creates, False)


def test_a_write_has_the_states_and_the_reason_of_each_leader_epoch_that_it_merges() -> None:
    """A judge that sees the write alone needs them."""
    cluster = make_cluster(P((1, 2, 3), 1), P((1,), 1), P((2, 1), 2, isr=(2, 1)))
    die(cluster, 1)
    changes = decided(cluster, partial(broker_death, dead=[1])).writes
    assert {change.entity: (change.steps, change.states) for change in changes} == {
        0: ((selectors.OFFLINE_IN_ISR,), (OFFLINE, ONLINE)),
        1: ((REPLICA_DIED,), (OFFLINE,)),
        2: ((REPLICA_DIED,), ()),
    }
    assert [change.after.leader_epoch - change.before.leader_epoch for change in changes] == [1, 1, 1]


@pytest.mark.parametrize("flag", ["stop", "delete", "order", "is_new"])
def test_a_later_move_of_a_replica_keeps_the_requests_and_states_of_the_earlier(flag: str) -> None:
    draft = Draft(make_cluster(P((1, 2), 1)))
    draft.move_replica(replace(ReplicaMove(0, 2, ReplicaState.OFFLINE, "a"), **{flag: True}))
    draft.move_replica(ReplicaMove(0, 2, ReplicaState.DELETION_STARTED, "b"))
    draft.move_replica(ReplicaMove(0, 2, ReplicaState.DELETION_SUCCESSFUL, "c"))
    assert draft.replica(0, 2) is ReplicaState.DELETION_SUCCESSFUL
    passed = (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
    expected = ReplicaMove(0, 2, ReplicaState.DELETION_SUCCESSFUL, "c", passed=passed)
    assert draft.finish().replica_moves == [replace(expected, **{flag: True})]


IDS = (1, 2, 3, 4, 5)


class Reference(Struct):
    """One partition as Kafka's controller treats it: each step is a write of its own."""

    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    epoch: int
    written: bool = False

    def write(self, leader: int, isr: tuple[int, ...]) -> None:
        self.leader, self.isr, self.epoch, self.written = leader, isr, self.epoch + 1, True

    def elect(self, live: set[int], unclean: bool) -> None:
        """Elects by the offline rule."""
        in_sync = [r for r in self.replicas if r in live and r in self.isr]
        if in_sync:
            self.write(in_sync[0], tuple(r for r in self.isr if r in live))
        elif unclean and any(r in live for r in self.replicas):
            first = next(r for r in self.replicas if r in live)
            self.write(first, (first,))

    def remove(self, broker: int) -> None:
        """Takes a replica offline; a first write that would move nothing but the epoch is saved."""
        if broker not in self.isr:
            return
        leader = NO_LEADER if broker == self.leader else self.leader
        isr = self.isr if len(self.isr) == 1 else tuple(r for r in self.isr if r != broker)
        if self.written or (leader, isr) != (self.leader, self.isr):
            self.write(leader, isr)


@st.composite
def partitions(draw: st.DrawFn, live: tuple[int, ...] = IDS) -> P:
    """Draws a partition whose leader is live; with ``live`` empty, any leader or none."""
    replicas = tuple(draw(st.permutations(IDS))[: draw(st.integers(1, 4))])
    isr = tuple(draw(st.permutations(replicas))[: draw(st.integers(1, len(replicas)))])
    leader = draw(st.sampled_from(isr if live else (NO_LEADER, *isr)))
    return P(replicas, leader, isr, epoch=draw(st.integers(0, 3)), version=draw(st.integers(0, 3)))


many = st.lists(partitions(), min_size=1, max_size=12)
anyhow = st.lists(partitions(live=()), min_size=1, max_size=12)
some = st.sets(st.sampled_from(IDS), min_size=1)


def references(made: list[P]) -> list[Reference]:
    return [Reference(p.replicas, p.leader if p.leader is not None else NO_LEADER, p.isr, p.epoch) for p in made]


def expected(made: list[P], after: list[Reference]) -> dict[int, tuple[int, tuple[int, ...], int, int]]:
    """Returns one write for each partition that was written, one partition epoch above the former."""
    return {i: (r.leader, r.isr, r.epoch, made[i].version + 1) for i, r in enumerate(after) if r.written}


@given(made=many, dead=some, unclean=st.booleans())
def test_a_death_decides_as_the_reference_does(made: list[P], dead: set[int], unclean: bool) -> None:
    after = references(made)
    live = set(IDS) - dead
    for reference in after:
        if reference.leader in dead:
            reference.elect(live, unclean)
        for broker in sorted(dead & set(reference.replicas)):
            reference.remove(broker)
    cluster = make_cluster(*made, brokers=IDS)
    die(cluster, *dead)
    decision = decided(cluster, partial(broker_death, dead=dead, unclean=lambda _: unclean))
    assert {change.entity: shown(change) for change in decision.writes} == expected(made, after)


@given(made=anyhow, dead=st.sets(st.sampled_from(IDS)), unclean=st.booleans())
def test_a_failover_decides_as_the_reference_does(made: list[P], dead: set[int], unclean: bool) -> None:
    after = references(made)
    live = set(IDS) - dead
    for reference in after:
        leaderless = reference.leader not in live
        for broker in sorted(dead & set(reference.replicas)):
            reference.remove(broker)
        if leaderless:
            reference.elect(live, unclean)
    cluster = make_cluster(*made, brokers=live)
    decision = decided(cluster, partial(failover, unclean=lambda _: unclean))
    assert {change.entity: shown(change) for change in decision.writes} == expected(made, after)


@given(made=many, leaving=st.permutations(IDS), earlier=st.integers(0, 3))
def test_a_controlled_shutdown_decides_as_the_reference_does(made: list[P], leaving: list[int], earlier: int) -> None:
    broker, away = leaving[0], set(leaving[: earlier + 1])
    after = references(made)
    for reference in after:
        if len(reference.replicas) == 1 or broker not in reference.replicas:
            continue
        if reference.leader == broker:
            remaining = tuple(r for r in reference.isr if r not in away)
            able = [r for r in reference.replicas if r in remaining]
            if able:
                reference.write(able[0], remaining)
        else:
            reference.remove(broker)
    cluster = make_cluster(*made, brokers=IDS)
    for leaver in away:
        cluster.observe_shutting_down(leaver)
    decision = decided(cluster, partial(controlled_shutdown, broker=broker))
    assert {change.entity: shown(change) for change in decision.writes} == expected(made, after)
    assert all(move.broker == broker and move.stop and not move.delete for move in decision.replica_moves)
