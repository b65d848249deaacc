"""The leader selectors: every case of Kafka's own tests of its election algorithms, and the rows S4-10..S4-21."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import combinations, permutations, product

import pytest

from state_machines.machines.selectors import (
    NO_LIVE_ISR,
    NO_OTHER_ISR,
    NO_TARGET,
    NOTHING_LIVE,
    OFFLINE_IN_ISR,
    OUTRANKED,
    PASSED_OVER,
    PREFERRED_BEHIND,
    PREFERRED_DOWN,
    Election,
    NoLeader,
    Selector,
    controlled_shutdown,
    initial,
    last,
    never,
    offline,
    preferred,
    reassigned,
)

Ids = tuple[int, ...]


def outcome(found: Election | NoLeader) -> tuple[int, Ids] | str:
    """Leader and ISR, or why there is none."""
    return (found.leader, found.isr) if isinstance(found, Election) else found.why


@pytest.mark.kafka(
    "PartitionLeaderElectionAlgorithmsTest.testOfflinePartitionLeaderElection",
    "PartitionLeaderElectionAlgorithmsTest.testOfflinePartitionLeaderElectionLastIsrOfflineUncleanLeaderElectionDisabled",
    "PartitionLeaderElectionAlgorithmsTest.testOfflinePartitionLeaderElectionLastIsrOfflineUncleanLeaderElectionEnabled",
)
@pytest.mark.seed("S4-10", "S4-11", "S4-82")
@pytest.mark.parametrize(
    ("replicas", "isr", "live", "unclean", "expected"),
    [
        pytest.param((2, 4), (2, 4), {4}, False, (4, (4,)), id="the leader died, the other ISR member leads"),
        pytest.param((3, 1, 2), (1, 2, 3), {1, 2}, False, (1, (1, 2)), id="assignment order, not ISR order"),
        pytest.param((1, 2, 3), (3, 2), {1, 2, 3}, False, (2, (3, 2)), id="a live replica behind is passed over"),
        pytest.param((2, 4), (2,), {4}, False, NO_LIVE_ISR, id="last ISR member died, unclean is off"),
        pytest.param((2, 4), (2,), {4}, True, (4, (4,)), id="last ISR member died, unclean is on"),
        pytest.param((1, 2, 3), (3,), {1, 2}, True, (1, (1,)), id="unclean: first live replica alone"),
        pytest.param((1, 2), (2,), {1, 2}, True, (2, (2,)), id="unclean is not asked while an ISR member lives"),
        pytest.param((1, 2), (2,), set(), True, NOTHING_LIVE, id="unclean, but nothing lives"),
        pytest.param((1, 2), (1, 2), set(), False, NO_LIVE_ISR, id="nothing lives"),
        pytest.param((1, 2), (), {1}, False, NO_LIVE_ISR, id="empty ISR"),
        pytest.param((1, 2), (9,), {9, 1}, False, NO_LIVE_ISR, id="an ISR member that is not assigned cannot lead"),
    ],
)
def test_offline(replicas: Ids, isr: Ids, live: set[int], unclean: bool, expected: object) -> None:
    assert outcome(offline(replicas, isr, live=live, unclean=unclean)) == expected


@pytest.mark.seed("S4-11", "S4-82")
def test_only_an_election_outside_of_the_isr_is_unclean() -> None:
    clean = offline((1, 2), (2,), live={2}, unclean=True)
    dirty = offline((1, 2), (2,), live={1}, unclean=True)
    assert isinstance(clean, Election)
    assert isinstance(dirty, Election)
    assert (clean.unclean, dirty.unclean) == (False, True)


@pytest.mark.kafka(
    "PartitionLeaderElectionAlgorithmsTest.testReassignPartitionLeaderElection",
    "PartitionLeaderElectionAlgorithmsTest.testReassignPartitionLeaderElectionWithNoLiveIsr",
    "PartitionLeaderElectionAlgorithmsTest.testReassignPartitionLeaderElectionWithEmptyIsr",
)
@pytest.mark.seed("S4-13", "S4-14")
@pytest.mark.parametrize(
    ("targets", "isr", "live", "expected"),
    [
        pytest.param((2, 4), (2, 4), {4}, (4, (2, 4)), id="first live target of the ISR; the ISR is unchanged"),
        pytest.param((4, 2), (1, 2, 4), {1, 2, 4}, (4, (1, 2, 4)), id="target order"),
        pytest.param((2, 4), (2,), {4}, NO_TARGET, id="no live target in the ISR"),
        pytest.param((2, 4), (), {2, 4}, NO_TARGET, id="empty ISR"),
        pytest.param((4,), (1, 2), {1, 2, 4}, NO_TARGET, id="the target has not caught up"),
    ],
)
def test_reassigned(targets: Ids, isr: Ids, live: set[int], expected: object) -> None:
    assert outcome(reassigned(targets, isr, live=live)) == expected


@pytest.mark.kafka(
    "PartitionLeaderElectionAlgorithmsTest.testPreferredReplicaPartitionLeaderElection",
    "PartitionLeaderElectionAlgorithmsTest.testPreferredReplicaPartitionLeaderElectionPreferredReplicaInIsrNotLive",
    "PartitionLeaderElectionAlgorithmsTest.testPreferredReplicaPartitionLeaderElectionPreferredReplicaNotInIsrLive",
    "PartitionLeaderElectionAlgorithmsTest.testPreferredReplicaPartitionLeaderElectionPreferredReplicaNotInIsrNotLive",
)
@pytest.mark.seed("S4-16", "S4-17")
@pytest.mark.parametrize(
    ("replicas", "isr", "live", "expected"),
    [
        pytest.param((2, 4), (4, 2), {2, 4}, (2, (4, 2)), id="preferred is live and in the ISR, which is unchanged"),
        pytest.param((2, 4), (4,), {2, 4}, PREFERRED_BEHIND, id="preferred is behind"),
        pytest.param((2, 4), (2, 4), {4}, PREFERRED_DOWN, id="preferred is down"),
        pytest.param((2, 4), (4,), {4}, PREFERRED_DOWN, id="preferred is down and behind"),
        pytest.param((), (4,), {4}, PREFERRED_DOWN, id="an assignment that somebody emptied"),
    ],
)
def test_preferred(replicas: Ids, isr: Ids, live: set[int], expected: object) -> None:
    assert outcome(preferred(replicas, isr, live=live)) == expected


@pytest.mark.kafka(
    "PartitionLeaderElectionAlgorithmsTest.testControlledShutdownPartitionLeaderElection",
    "PartitionLeaderElectionAlgorithmsTest.testControlledShutdownPartitionLeaderElectionLastIsrShuttingDown",
    "PartitionLeaderElectionAlgorithmsTest.testControlledShutdownPartitionLeaderElectionAllIsrSimultaneouslyShutdown",
)
@pytest.mark.seed("S4-19", "S4-20")
@pytest.mark.parametrize(
    ("replicas", "isr", "registered", "leaving", "expected"),
    [
        pytest.param((2, 4), (2, 4), {2, 4}, {2}, (4, (4,)), id="the other member leads"),
        pytest.param((3, 2, 1), (1, 2, 3), {1, 2, 3}, {3}, (2, (1, 2)), id="assignment order, ISR order kept"),
        pytest.param((1, 2, 3), (1, 2, 3), {1, 2, 3}, {1, 2}, (3, (3,)), id="all that leave go out of the ISR"),
        pytest.param((2, 4), (2,), {2, 4}, {2}, NO_OTHER_ISR, id="the last ISR member leaves"),
        pytest.param((2, 4), (2, 4), {2, 4}, {2, 4}, NO_OTHER_ISR, id="every ISR member leaves"),
        pytest.param((1, 2), (1, 2), {1}, {1}, NO_OTHER_ISR, id="the other member is not registered"),
        pytest.param((1, 2, 3), (1, 2, 3), {1, 3}, {1}, (3, (2, 3)), id="only who leaves is taken out of the ISR"),
    ],
)
def test_controlled_shutdown(
    replicas: Ids, isr: Ids, registered: set[int], leaving: set[int], expected: object
) -> None:
    assert outcome(controlled_shutdown(replicas, isr, registered=registered, shutting_down=leaving)) == expected


@pytest.mark.seed("S4-10", "S4-11", "S4-13", "S4-14", "S4-16", "S4-17", "S4-19", "S4-20")
def test_what_every_election_keeps() -> None:
    """All small cases: the leader is live, assigned and in the ISR it starts with; an ISR is never emptied, and grows
    only by an unclean election, which happens only where no ISR member lives."""
    everybody = (1, 2, 3)
    for replicas in permutations(everybody):
        for isr in (s for n in (1, 2, 3) for s in permutations(everybody, n)):
            for live in (set(s) for n in (0, 1, 2, 3) for s in combinations(everybody, n)):
                away = set(everybody) - live
                found = [
                    offline(replicas, isr, live=live),
                    offline(replicas, isr, live=live, unclean=True),
                    reassigned(replicas, isr, live=live),
                    preferred(replicas, isr, live=live),
                    controlled_shutdown(replicas, isr, registered=everybody, shutting_down=away),
                    initial(replicas, isr, live=live),
                ]
                for election in (f for f in found if isinstance(f, Election)):
                    assert election.leader in live
                    assert election.leader in election.isr
                assert all(set(f.isr) <= set(isr) for f in found[:5] if isinstance(f, Election) and not f.unclean)
                unclean = found[1]
                assert isinstance(unclean, Election) == bool(live)
                assert not isinstance(unclean, Election) or unclean.unclean == (not live & set(isr))
                assert isinstance(found[0], Election) == bool(live & set(isr))
                assert isinstance(found[4], Election) == bool(live & set(isr))


LIVE = {1, 2, 3}
NEW, OFFLINE, DIRTY = (
    partial(initial, live=LIVE),
    partial(offline, live=LIVE),
    partial(offline, live=LIVE, unclean=True),
)
LEAVES = partial(controlled_shutdown, registered=LIVE, shutting_down={1})
PREFER, MOVE = partial(preferred, live=LIVE), partial(reassigned, live=LIVE)


@pytest.mark.parametrize(
    ("rule", "replicas", "isr", "expected"),
    [
        pytest.param(last(NEW, {1}), (1, 2), (), (2, (1, 2)), id="new: the second leads, the ISR is in order"),
        pytest.param(last(NEW, {1, 2}), (1, 2), (), (1, (1, 2)), id="new: there is nobody else"),
        pytest.param(last(OFFLINE, {1}), (1, 2, 3), (1, 2, 3), (2, (1, 2, 3)), id="offline"),
        pytest.param(last(OFFLINE, {1}), (1, 2, 3), (3, 1), (3, (3, 1)), id="offline: not one behind"),
        pytest.param(last(OFFLINE, {1}), (1, 2), (1,), (1, (1,)), id="offline: there is nobody else"),
        pytest.param(last(DIRTY, {1}), (1, 2), (1,), (1, (1,)), id="no record is lost for it"),
        pytest.param(last(DIRTY, {1}), (1, 2, 3), (9,), (2, (2,)), id="unclean"),
        pytest.param(last(DIRTY, {1, 2}), (1, 2), (9,), (1, (1,)), id="unclean: there is nobody else"),
        pytest.param(last(LEAVES, {2}), (1, 2, 3), (1, 2, 3), (3, (2, 3)), id="shutdown"),
        pytest.param(last(LEAVES, {2}), (1, 2), (1, 2), (2, (2,)), id="shutdown: there is nobody else"),
        pytest.param(never(PREFER, {1}), (1, 2), (1, 2), OUTRANKED, id="preferred: nobody instead"),
        pytest.param(never(PREFER, {2}), (1, 2), (1, 2), (1, (1, 2)), id="preferred: from such a broker"),
        pytest.param(never(PREFER, {1}), (1, 2), (2,), PREFERRED_BEHIND, id="preferred: behind besides"),
        pytest.param(never(last(MOVE, {1}), {1}), (1, 2), (1, 2), (2, (1, 2)), id="reassigned"),
        pytest.param(never(last(MOVE, {1}), {1}), (1, 2), (1, 3), OUTRANKED, id="reassigned: it waits"),
    ],
)
def test_a_broker_that_obeys_a_higher_epoch_leads_last(
    rule: Selector, replicas: Ids, isr: Ids, expected: object
) -> None:
    assert outcome(rule(replicas, isr, ())) == expected


def test_the_reason_says_that_brokers_were_passed_over() -> None:
    rule = last(OFFLINE, {1})
    assert (rule((1, 2), (1, 2), ()).why, rule((1, 2), (1,), ()).why) == (PASSED_OVER[OFFLINE_IN_ISR], OFFLINE_IN_ISR)


@pytest.mark.parametrize("rule", [NEW, OFFLINE, DIRTY, LEAVES, PREFER, MOVE])
def test_without_such_a_broker_a_rule_is_itself_and_costs_nothing_more(rule: Selector) -> None:
    assert last(rule, frozenset()) is rule
    assert never(rule, frozenset()) is rule


def test_outranked_brokers_change_who_leads_and_nothing_else() -> None:
    """All small cases. Where nobody that would lead is outranked the outcome is the same to the letter."""
    everybody = (1, 2, 3)
    subsets = [set(s) for n in (0, 1, 2, 3) for s in combinations(everybody, n)]
    for replicas, isr in product(permutations(everybody), (s for n in (1, 2, 3) for s in permutations(everybody, n))):
        for live, outranked, down in product(subsets, subsets, ((), (1,))):
            away = set(everybody) - live
            able = live.difference(down)
            rules: list[tuple[Selector, Collection[int]]] = [
                (partial(initial, live=live), able),
                (partial(offline, live=live), able.intersection(isr)),
                (partial(offline, live=live, unclean=True), able.intersection(isr) or able),
                (partial(controlled_shutdown, registered=live, shutting_down=away), able.intersection(isr)),
                (partial(reassigned, live=live), able.intersection(isr)),
            ]
            for rule, could in rules:
                usual, found = rule(replicas, isr, down), last(rule, outranked)(replicas, isr, down)
                if isinstance(usual, NoLeader) or usual.leader not in outranked:
                    assert found == usual
                else:
                    assert isinstance(found, Election)
                    assert found.leader in could
                    assert (found.leader in outranked) == (outranked.issuperset(could))
                    assert found.unclean == usual.unclean
                    assert found.isr == ((found.leader,) if found.unclean else usual.isr)
