"""The partition machine over the full product of its states, elections (S4-1..S4-26), and the documented diagrams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from scripts.pages import mermaid, state_machines
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Refusal
from state_machines.model.types import NO_LEADER, PartitionRow, PartitionState
from tests.kit.kafka.model import EPOCH, P, decided, enter, make_cluster, writes_of

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


def cluster_of(*states: PartitionState) -> Cluster:
    """Makes partitions 0, 1, ... with replicas 1, 2, 3 as they look in the given states."""
    cluster = make_cluster(*[P((1, 2, 3))] * len(states))
    for i, state in enumerate(states):
        row = PartitionRow(0, i, cluster.rows[i].assignment, state)
        if state in {ONLINE, OFFLINE}:
            leader = 1 if state is ONLINE else NO_LEADER
            row = PartitionRow(0, i, row.assignment, state, leader, 4, (1, 2), EPOCH - 1, 9)
        cluster.rows[i] = row
        (cluster.leaderless.add if state in {NEW, OFFLINE} else cluster.leaderless.discard)(i)
    return cluster


def to(target: PartitionState, rows: Iterable[int], live: Iterable[int] = (1, 2, 3)) -> Callable[[Draft], None]:
    """Draws the transition of ``rows`` to ``target``; to Online by the rule for the state that a row comes from."""

    def decide(draft: Draft) -> None:
        machine = PartitionStateMachine(draft)
        if target is ONLINE:
            for i in rows:
                rule = selectors.initial if draft.row(i).state is NEW else selectors.offline
                machine.elect([i], partial(rule, live=frozenset(live)))
        else:
            {NEW: machine.create, OFFLINE: machine.take_offline, NON_EXISTENT: machine.remove}[target](rows, "a test")

    return decide


@pytest.mark.kafka(
    "PartitionStateMachineTest.testInvalidNonexistentPartitionTo*",
    "PartitionStateMachineTest.testInvalidNewPartitionToNonexistentPartitionTransition",
    "PartitionStateMachineTest.testInvalidOnlinePartitionTo*",
    "PartitionStateMachineTest.testInvalidOfflinePartitionToNewPartitionTransition",
)
@pytest.mark.seed("S4-1", "S4-2", "S4-3", "S4-4", "S4-26")
@pytest.mark.parametrize(("state", "target"), PRODUCT, ids=lambda s: s.name)
def test_a_legal_transition_is_made_and_an_illegal_one_refused_alone(
    state: PartitionState, target: PartitionState
) -> None:
    willing = next(s for s, t in sorted(LEGAL) if t is target)
    cluster = cluster_of(willing, state, willing)
    before = cluster.rows[1]
    decision = enter(cluster, decided(cluster, to(target, [0, 1, 2])))
    assert cluster.rows[0].state is cluster.rows[2].state is target
    legal = (state, target) in LEGAL
    assert PartitionStateMachine.allows(state, target) == legal
    if legal:
        assert cluster.rows[1].state is target
        assert decision.refusals == []
    else:
        why = f"illegal partition transition {state.name} -> {target.name}"
        assert decision.refusals == [Refusal(1, target.name, why)]
        assert cluster.rows[1] is before
        assert 1 not in writes_of(decision)


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
def test_a_marked_state_is_neither_written_nor_sent_and_keeps_the_rest_of_the_row(
    state: PartitionState, target: PartitionState
) -> None:
    cluster = cluster_of(state)
    before = cluster.rows[0]
    decision = decided(cluster, to(target, [0]))
    assert (decision.writes, decision.metadata, decision.replica_moves) == ([], [], [])
    [move] = decision.moves
    assert move.after == replace(before, state=target)
    assert not move.writes


@pytest.mark.seed("S4-9")
@pytest.mark.parametrize("state", [ONLINE, OFFLINE], ids=lambda s: s.name)
def test_an_election_without_a_candidate_leaves_the_partition_as_it_is(state: PartitionState) -> None:
    draft = Draft(cluster_of(state))
    failed = PartitionStateMachine(draft).elect([0], partial(selectors.offline, live=frozenset({3})))
    decision = draft.finish()
    assert (failed, decision.empty, decision.doubted) == ([0], True, frozenset({0})), "3 could lead if in sync"
    assert decision.refusals == [Refusal(0, "ONLINE", selectors.NO_LIVE_ISR)]
    draft.cluster.observe_failed_dirs(3, [0])
    again = decided(draft.cluster, to(ONLINE, [0], live=[3]))
    assert again.refusals == decision.refusals
    assert again.doubted == set(), "3 could lead with no ISR"


@pytest.mark.kafka("PartitionStateMachineTest.testOfflinePartitionToUncleanOnlinePartitionTransition*")
@pytest.mark.seed("S4-11", "S4-82", "S4-85")
@pytest.mark.parametrize("known", [True, False], ids=["IBP 3.2", "below"])
def test_an_unclean_election_marks_the_leader_as_recovering_where_brokers_know_that(known: bool) -> None:
    """KIP-704. A clean election leaves the mark as it is."""
    cluster = make_cluster(P((1, 2, 3), NO_LEADER, (1,), 3, 5), recovery_state=known, brokers=(2, 3))
    enter(cluster, decided(cluster, elect_unclean(allowed=True)))
    row = cluster.rows[0]
    assert (row.leader, row.isr, row.leader_epoch, row.recovering) == (2, (2,), 4, known)
    enter(cluster, decided(cluster, to(ONLINE, [0], live=(2, 3))))
    assert cluster.rows[0].recovering is known


def test_an_unclean_election_that_the_topic_does_not_allow_is_refused() -> None:
    cluster = make_cluster(P((1, 2, 3), NO_LEADER, (1,), 3, 5), brokers=(2, 3))
    decision = decided(cluster, elect_unclean(allowed=False))
    assert decision.empty
    assert [refusal.why for refusal in decision.refusals] == [selectors.NO_LIVE_ISR]


def test_a_topic_is_not_looked_up_where_an_election_is_clean_or_no_replica_is_live() -> None:
    def unclean(topic: int) -> bool:
        raise AssertionError(f"topic {topic} is looked up")

    cluster = make_cluster(P((1, 2), NO_LEADER, (2,)), P((8, 9), NO_LEADER, (8,)))
    draft = Draft(cluster)
    assert PartitionStateMachine(draft).elect_leaderless([0, 1], unclean) == [1]
    assert writes_of(draft.finish()) == {0: (2, (2,), 1, 1)}


def elect_unclean(*, allowed: bool) -> Callable[[Draft], None]:
    """Elects row 0 where topic 0 allows unclean elections or not; fails where another topic counts."""

    def unclean(topic: int) -> bool:
        assert topic == 0
        return allowed

    def decide(draft: Draft) -> None:
        PartitionStateMachine(draft).elect_leaderless([0], unclean)

    return decide


def test_partitions_that_are_online_are_passed_over_when_leaders_are_missing() -> None:
    draft = Draft(cluster_of(ONLINE, OFFLINE, NEW))
    assert PartitionStateMachine(draft).elect_leaderless([0, 1, 2]) == []
    decision = draft.finish()
    assert sorted(writes_of(decision)) == [1, 2]
    assert decision.refusals == []


def test_a_selector_is_called_once_for_equal_replicas_and_isr() -> None:
    """A failover of many partitions is cheap, and its leaders are the same as one by one."""
    cluster = make_cluster(*[P((1, 2), 1)] * 50, *[P((2, 1), 1)] * 50, *[P((1, 2), 1, (1,))] * 50)
    calls: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def selector(
        replicas: tuple[int, ...], isr: tuple[int, ...], _down: object
    ) -> selectors.Election | selectors.NoLeader:
        calls.append((replicas, isr))
        return selectors.offline(replicas, isr, live=frozenset({1, 2}))

    draft = Draft(cluster)
    assert PartitionStateMachine(draft).elect(range(150), selector) == []
    assert calls == [((1, 2), (1, 2)), ((2, 1), (2, 1)), ((1, 2), (1,))]
    leaders = [change.after.leader for change in draft.finish().writes]
    assert leaders == [1] * 50 + [2] * 50 + [1] * 50


def test_the_trace_has_every_legal_transition_in_order() -> None:
    draft = Draft(cluster_of(NON_EXISTENT, ONLINE))
    draft.trace = []
    machine = PartitionStateMachine(draft)
    machine.create([0, 1], "a test")
    machine.elect_leaderless([0])
    machine.take_offline([1], "a test")
    assert draft.trace == [
        (0, None, "NON_EXISTENT", "NEW"),
        (0, None, "NEW", "ONLINE"),
        (1, None, "ONLINE", "OFFLINE"),
    ]


PAGE = Path(__file__).parents[4] / "docs" / "reference" / "state-machines.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == state_machines(), "run: make docs"


@pytest.mark.parametrize("machine", [PartitionStateMachine, ReplicaStateMachine])
def test_every_transition_is_drawn_once(machine: type[PartitionStateMachine] | type[ReplicaStateMachine]) -> None:
    lines = mermaid(machine).splitlines()
    arrows = [line for line in lines if "-->" in line and "[*]" not in line]
    assert len(arrows) == len(set(arrows)) == sum(len(previous) for previous in machine.VALID_PREVIOUS.values())
    assert "    [*] --> NonExistent" in lines
