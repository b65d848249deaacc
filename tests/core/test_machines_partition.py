"""The partition machine over the full product of its states, and what each legal transition does (S4-1..S4-26)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest

from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Refusal
from state_machines.model.types import NO_LEADER, PartitionRow, PartitionState
from tests.core.model import EPOCH, P, decided, enter, make_cluster, writes_of

NEW, ONLINE, OFFLINE, NON_EXISTENT = (
    PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NON_EXISTENT,
)  # fmt: skip

LEGAL = {
    (NON_EXISTENT, NEW),
    (NEW, ONLINE),
    (ONLINE, ONLINE),
    (OFFLINE, ONLINE),
    (NEW, OFFLINE),
    (ONLINE, OFFLINE),
    (OFFLINE, OFFLINE),
    (OFFLINE, NON_EXISTENT),
}
"""Stated here once more, from the protocol's description and not from the machine's table."""

PRODUCT = [(state, target) for state in PartitionState for target in PartitionState]


def row_in(state: PartitionState) -> PartitionRow:
    """A partition with replicas 1, 2, 3 as it looks in a state."""
    assignment = make_cluster(P((1, 2, 3))).rows[0].assignment
    if state in {NON_EXISTENT, NEW}:
        return PartitionRow(0, 0, assignment, state)
    leader = 1 if state is ONLINE else NO_LEADER
    return PartitionRow(0, 0, assignment, state, leader, 4, (1, 2), EPOCH - 1, 9)


def cluster_of(*states: PartitionState) -> Cluster:
    cluster = make_cluster(*[P((1, 2, 3))] * len(states))
    for i, state in enumerate(states):
        made = row_in(state)
        row = PartitionRow(
            0, i, cluster.rows[i].assignment, state, made.leader, made.leader_epoch, made.isr, EPOCH - 1, made.version
        )
        cluster.rows[i] = row
        (cluster.leaderless.add if state in {NEW, OFFLINE} else cluster.leaderless.discard)(i)
    return cluster


def to(target: PartitionState, rows: Iterable[int], live: Iterable[int] = (1, 2, 3)) -> Callable[[Draft], None]:
    """Asks the machine for ``rows`` to go to ``target``; to Online by the rule that fits where a row comes from."""

    def decide(draft: Draft) -> None:
        machine = PartitionStateMachine(draft)
        if target is ONLINE:
            for i in rows:
                rule = selectors.initial if draft.row(i).state is NEW else selectors.offline
                machine.elect([i], partial(rule, live=frozenset(live)))
        else:
            {NEW: machine.create, OFFLINE: machine.take_offline, NON_EXISTENT: machine.remove}[target](rows, "asked")

    return decide


@pytest.mark.kafka(
    "PartitionStateMachineTest.testInvalidNonexistentPartitionTo*",
    "PartitionStateMachineTest.testInvalidNewPartitionToNonexistentPartitionTransition",
    "PartitionStateMachineTest.testInvalidOnlinePartitionTo*",
    "PartitionStateMachineTest.testInvalidOfflinePartitionToNewPartitionTransition",
)
@pytest.mark.seed("S4-1", "S4-2", "S4-3", "S4-4", "S4-26")
@pytest.mark.parametrize(("state", "target"), PRODUCT, ids=lambda s: s.name)
def test_full_product(state: PartitionState, target: PartitionState) -> None:
    """Every pair: a legal one arrives, an illegal one is refused by itself and the rest of its batch goes on."""
    willing = next(s for s, t in sorted(LEGAL) if t is target)
    cluster = cluster_of(willing, state, willing)
    before = cluster.rows[1]
    decision = enter(cluster, decided(cluster, to(target, [0, 1, 2])))
    assert cluster.rows[0].state is target
    assert cluster.rows[2].state is target
    if (state, target) in LEGAL:
        assert cluster.rows[1].state is target
        assert decision.refusals == []
    else:
        why = f"illegal partition transition {state.name} -> {target.name}"
        assert decision.refusals == [Refusal(1, target.name, why)]
        assert cluster.rows[1] is before
        assert 1 not in writes_of(decision)


@pytest.mark.seed("S4-26")
def test_the_table_is_the_protocols() -> None:
    allowed = {(s, t) for s, t in PRODUCT if PartitionStateMachine.allows(s, t)}
    assert allowed == LEGAL


@pytest.mark.kafka(
    "PartitionStateMachineTest.testNonexistentPartitionToNewPartitionTransition",
    "PartitionStateMachineTest.testNewPartitionToOfflinePartitionTransition",
    "PartitionStateMachineTest.testOnlinePartitionToOfflineTransition",
    "PartitionStateMachineTest.testOfflinePartitionToNonexistentPartitionTransition",
)
@pytest.mark.seed("S4-5", "S4-24", "S4-25")
@pytest.mark.parametrize(
    ("state", "target"),
    sorted(pair for pair in LEGAL if pair[1] is not ONLINE and pair[0] is not pair[1]),
    ids=lambda s: s.name,
)
def test_marking_writes_and_tells_nothing(state: PartitionState, target: PartitionState) -> None:
    cluster = cluster_of(state)
    before = cluster.rows[0]
    decision = enter(cluster, decided(cluster, to(target, [0])))
    assert (decision.writes, decision.metadata, decision.replica_moves) == ([], [], [])
    [change] = decision.moves
    assert not change.writes
    after = cluster.rows[0]
    assert after.assignment is before.assignment, "the assigned replicas stay in the model"
    assert (after.leader, after.leader_epoch, after.isr, after.version) == (
        before.leader, before.leader_epoch, before.isr, before.version,
    )  # fmt: skip


@pytest.mark.kafka("ControllerContextTest.test*ReturnsEmpty*")
@pytest.mark.seed("S4-1", "S4-2", "S4-3", "S4-4")
def test_initial_states_and_states_after_a_deletion() -> None:
    cluster = make_cluster(P((1, 2)), P((1, 2), leader=1), P((4, 5), leader=4), P((1,), leader=NO_LEADER, isr=(1,)))
    assert [row.state for row in cluster.rows] == [NEW, ONLINE, OFFLINE, OFFLINE]
    assert cluster.leaderless == {0, 2, 3}
    assert cluster.find("t", 9) is None, "a partition that was never created is unknown"
    assert cluster.observe_topic_gone("t") == [0, 1, 2, 3]
    assert {row.state for row in cluster.rows} == {NON_EXISTENT}
    assert not any(row.has_leadership for row in cluster.rows)
    assert cluster.find("t", 1) is None
    assert cluster.leaderless == set()


@pytest.mark.kafka("PartitionStateMachineTest.testNewPartitionToOnlinePartitionTransition")
@pytest.mark.seed("S4-6")
@pytest.mark.parametrize(
    ("live", "leader", "isr"),
    [((1, 2, 3), 1, (1, 2, 3)), ((2, 3), 2, (2, 3)), ((3,), 3, (3,)), ((9, 3, 1), 1, (1, 3))],
)
def test_new_to_online_creates_the_state(live: tuple[int, ...], leader: int, isr: tuple[int, ...]) -> None:
    """First live replica in assignment order leads, all live replicas are the ISR, both epochs start at 0."""
    decision = decided(cluster_of(NEW), to(ONLINE, [0], live))
    [change] = decision.writes
    assert writes_of(decision) == {0: (leader, isr, 0, 0)}
    assert change.after.controller_epoch == EPOCH
    assert change.creates
    assert change.is_new


@pytest.mark.seed("S4-6")
def test_new_stays_new_without_a_live_replica() -> None:
    cluster = cluster_of(NEW)
    decision = enter(cluster, decided(cluster, to(ONLINE, [0], live=[9])))
    assert cluster.rows[0].state is NEW
    assert decision.empty
    assert decision.refusals == [Refusal(0, "ONLINE", selectors.NO_LIVE_REPLICA)]


@pytest.mark.kafka("PartitionStateMachineTest.testOfflinePartitionToOnlinePartitionTransition")
@pytest.mark.seed("S4-9")
@pytest.mark.parametrize("state", [ONLINE, OFFLINE], ids=lambda s: s.name)
def test_election_writes_conditionally_with_the_next_epochs(state: PartitionState) -> None:
    cluster = cluster_of(state)
    decision = decided(cluster, to(ONLINE, [0], live=(2, 3)))
    assert writes_of(decision) == {0: (2, (2,), 5, 10)}
    [change] = decision.writes
    assert change.before.version == 9, "the write expects the version that the decision saw"
    assert change.after.controller_epoch == EPOCH
    assert not change.is_new


@pytest.mark.seed("S4-9")
@pytest.mark.parametrize("state", [ONLINE, OFFLINE], ids=lambda s: s.name)
def test_failed_election_leaves_the_partition_as_it_is(state: PartitionState) -> None:
    cluster = cluster_of(state)
    before = cluster.rows[0]
    draft = Draft(cluster)
    failed = PartitionStateMachine(draft).elect([0], partial(selectors.offline, live=frozenset({3})))
    assert failed == [0]
    assert draft.finish().empty
    assert draft.finish().refusals == [Refusal(0, "ONLINE", selectors.NO_LIVE_ISR)]
    assert cluster.rows[0] is before


@pytest.mark.kafka("PartitionStateMachineTest.testOfflinePartitionToUncleanOnlinePartitionTransition*")
@pytest.mark.seed("S4-11", "S4-82", "S4-85")
@pytest.mark.parametrize(("known", "recovering"), [(True, True), (False, False)])
def test_unclean_election_marks_recovering_where_brokers_know_it(known: bool, recovering: bool) -> None:
    """KIP-704: from IBP 3.2 on the new leader is told that it recovers; a clean election leaves the mark as it is."""
    cluster = make_cluster(P((1, 2, 3), NO_LEADER, (1,), 3, 5), recovery_state=known, brokers=(2, 3))
    enter(cluster, decided(cluster, lambda d: _elect_unclean(d, allowed=True)))
    row = cluster.rows[0]
    assert (row.leader, row.isr, row.leader_epoch) == (2, (2,), 4)
    assert row.recovering is recovering
    enter(cluster, decided(cluster, to(ONLINE, [0], live=(2, 3))))
    assert cluster.rows[0].recovering is recovering


def test_unclean_is_asked_of_the_topic() -> None:
    cluster = make_cluster(P((1, 2, 3), NO_LEADER, (1,), 3, 5), brokers=(2, 3))
    decision = decided(cluster, lambda d: _elect_unclean(d, allowed=False))
    assert decision.empty
    assert [refusal.why for refusal in decision.refusals] == [selectors.NO_LIVE_ISR]


def _elect_unclean(draft: Draft, *, allowed: bool) -> None:
    asked: list[int] = []

    def unclean(topic: int) -> bool:
        asked.append(topic)
        return allowed

    PartitionStateMachine(draft).elect_leaderless([0], unclean)
    assert asked == [0], "asked by the topic's index"


def test_what_is_online_needs_no_election_when_leaders_are_sought() -> None:
    cluster = cluster_of(ONLINE, OFFLINE, NEW)
    decision = decided(cluster, lambda d: _leaderless(d, [0, 1, 2]))
    assert sorted(writes_of(decision)) == [1, 2]
    assert decision.refusals == []


def _leaderless(draft: Draft, rows: list[int]) -> None:
    assert PartitionStateMachine(draft).elect_leaderless(rows) == []


def test_the_selector_is_asked_once_per_assignment_and_isr() -> None:
    """What makes a failover of many partitions cheap; the answers are the same as one by one."""
    cluster = make_cluster(*[P((1, 2), 1)] * 50, *[P((2, 1), 1)] * 50, *[P((1, 2), 1, (1,))] * 50)
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def selector(
        replicas: tuple[int, ...], isr: tuple[int, ...], _down: object
    ) -> selectors.Election | selectors.NoLeader:
        asked.append((replicas, isr))
        return selectors.offline(replicas, isr, live=frozenset({1, 2}))

    draft = Draft(cluster)
    assert PartitionStateMachine(draft).elect(range(150), selector) == []
    decision = draft.finish()
    assert asked == [((1, 2), (1, 2)), ((2, 1), (2, 1)), ((1, 2), (1,))]
    leaders = [change.after.leader for change in decision.writes]
    assert leaders == [1] * 50 + [2] * 50 + [1] * 50


def test_the_trace_names_every_transition_in_order() -> None:
    cluster = cluster_of(NON_EXISTENT, ONLINE)
    draft = Draft(cluster)
    draft.trace = []
    machine = PartitionStateMachine(draft)
    machine.create([0, 1], "asked")
    machine.elect_leaderless([0])
    machine.take_offline([1], "asked")
    assert [(t.entity, t.broker, t.state, t.target) for t in draft.trace] == [
        (0, None, "NON_EXISTENT", "NEW"),
        (0, None, "NEW", "ONLINE"),
        (1, None, "ONLINE", "OFFLINE"),
    ]
