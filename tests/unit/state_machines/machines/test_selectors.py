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
    OFFLINE_UNCLEAN,
    ONLY_AVOIDED,
    ONLY_REPLICA,
    OUTRANKED,
    PASSED_OVER,
    PREFERRED_BEHIND,
    PREFERRED_DOWN,
    SPARED,
    UNCLEAN,
    Election,
    NoLeader,
    Selector,
    controlled_shutdown,
    drained,
    initial,
    last,
    never,
    offline,
    preferred,
    reassigned,
)

Ids = tuple[int, ...]
EVERY = (1, 2, 3)
ISRS = [isr for n in (1, 2, 3) for isr in permutations(EVERY, n)]
SUBSETS = [set(some) for n in (0, 1, 2, 3) for some in combinations(EVERY, n)]


def outcome(found: Election | NoLeader) -> tuple[int, Ids] | str:
    """Returns leader and ISR, or the reason why there is none."""
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
        pytest.param((1, 2), (2,), {1, 2}, True, (2, (2,)), id="clean while an ISR member lives"),
        pytest.param((1, 2), (2,), set(), True, NOTHING_LIVE, id="unclean, but nothing lives"),
        pytest.param((1, 2), (1, 2), set(), False, NO_LIVE_ISR, id="nothing lives"),
        pytest.param((1, 2), (), {1}, False, NO_LIVE_ISR, id="empty ISR"),
        pytest.param((1, 2), (9,), {9, 1}, False, NO_LIVE_ISR, id="an ISR member that is not assigned cannot lead"),
    ],
)
def test_the_offline_rule_elects_the_first_live_member_of_the_isr(
    replicas: Ids, isr: Ids, live: set[int], unclean: bool, expected: object
) -> None:
    found = offline(replicas, isr, live=live, unclean=unclean)
    assert outcome(found) == expected
    assert getattr(found, "unclean", False) == (found.why == OFFLINE_UNCLEAN)


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
def test_the_reassignment_rule_elects_the_first_target_that_is_live_and_in_sync(
    targets: Ids, isr: Ids, live: set[int], expected: object
) -> None:
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
        pytest.param((), (4,), {4}, PREFERRED_DOWN, id="an empty assignment"),
    ],
)
def test_the_preferred_rule_elects_the_first_replica_or_none(
    replicas: Ids, isr: Ids, live: set[int], expected: object
) -> None:
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
        pytest.param((1, 2, 3), (1, 2, 3), {1, 3}, {1}, (3, (2, 3)), id="an unregistered member stays in the ISR"),
    ],
)
def test_the_shutdown_rule_elects_another_member_and_takes_all_that_leave_out_of_the_isr(
    replicas: Ids, isr: Ids, registered: set[int], leaving: set[int], expected: object
) -> None:
    assert outcome(controlled_shutdown(replicas, isr, registered=registered, shutting_down=leaving)) == expected


@pytest.mark.seed("S4-10", "S4-11", "S4-13", "S4-14", "S4-16", "S4-17", "S4-19", "S4-20")
def test_an_elected_leader_is_live_and_in_its_isr_which_grows_only_where_no_member_is_live() -> None:
    for replicas, isr, live in product(permutations(EVERY), ISRS, SUBSETS):
        away = set(EVERY) - live
        found = [
            offline(replicas, isr, live=live),
            offline(replicas, isr, live=live, unclean=True),
            reassigned(replicas, isr, live=live),
            preferred(replicas, isr, live=live),
            controlled_shutdown(replicas, isr, registered=EVERY, shutting_down=away),
            initial(replicas, isr, live=live),
        ]
        for election in (f for f in found if isinstance(f, Election)):
            assert election.leader in live
            assert election.leader in election.isr
        assert all(set(f.isr) <= set(isr) for f in found[:5] if isinstance(f, Election) and not f.unclean)
        unclean = found[1]
        assert isinstance(unclean, Election) == bool(live)
        assert not isinstance(unclean, Election) or unclean.unclean == (not live & set(isr))
        assert isinstance(found[0], Election) == isinstance(found[4], Election) == bool(live & set(isr))


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
        pytest.param(last(NEW, {1, 2}), (1, 2), (), (1, (1, 2)), id="new: no other can lead"),
        pytest.param(last(OFFLINE, {1}), (1, 2, 3), (1, 2, 3), (2, (1, 2, 3)), id="offline"),
        pytest.param(last(OFFLINE, {1}), (1, 2, 3), (3, 1), (3, (3, 1)), id="offline: not one behind"),
        pytest.param(last(OFFLINE, {1}), (1, 2), (1,), (1, (1,)), id="offline: no other can lead"),
        pytest.param(last(DIRTY, {1}), (1, 2), (1,), (1, (1,)), id="no record is lost for it"),
        pytest.param(last(DIRTY, {1}), (1, 2, 3), (9,), (2, (2,)), id="unclean"),
        pytest.param(last(DIRTY, {1, 2}), (1, 2), (9,), (1, (1,)), id="unclean: no other can lead"),
        pytest.param(last(LEAVES, {2}), (1, 2, 3), (1, 2, 3), (3, (2, 3)), id="shutdown"),
        pytest.param(last(LEAVES, {2}), (1, 2), (1, 2), (2, (2,)), id="shutdown: no other can lead"),
        pytest.param(never(PREFER, {1}), (1, 2), (1, 2), OUTRANKED, id="preferred: no other instead"),
        pytest.param(never(PREFER, {2}), (1, 2), (1, 2), (1, (1, 2)), id="preferred: from such a broker"),
        pytest.param(never(PREFER, {1}), (1, 2), (2,), PREFERRED_BEHIND, id="preferred: behind besides"),
        pytest.param(never(last(MOVE, {1}), {1}), (1, 2), (1, 2), (2, (1, 2)), id="reassigned"),
        pytest.param(never(last(MOVE, {1}), {1}), (1, 2), (1, 3), OUTRANKED, id="reassigned: it waits"),
    ],
)
def test_an_outranked_broker_leads_last_or_never(rule: Selector, replicas: Ids, isr: Ids, expected: object) -> None:
    assert outcome(rule(replicas, isr, ())) == expected


def test_the_reason_of_an_election_says_where_outranked_brokers_were_passed_over() -> None:
    rule = last(OFFLINE, {1})
    assert (rule((1, 2), (1, 2), ()).why, rule((1, 2), (1,), ()).why) == (PASSED_OVER[OFFLINE_IN_ISR], OFFLINE_IN_ISR)


@pytest.mark.parametrize("rule", [NEW, OFFLINE, DIRTY, LEAVES, PREFER, MOVE])
def test_a_rule_without_outranked_brokers_is_itself(rule: Selector) -> None:
    assert last(rule, frozenset()) is rule
    assert never(rule, frozenset()) is rule


def test_outranked_brokers_change_the_leader_alone_and_only_where_another_could_lead() -> None:
    for replicas, isr in product(permutations(EVERY), ISRS):
        for live, outranked, down in product(SUBSETS, SUBSETS, ((), (1,))):
            away = set(EVERY) - live
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


SPARING = [
    pytest.param(last(OFFLINE, (), {1}), (1, 2, 3), (1, 2, 3), (2, (1, 2, 3)), id="offline"),
    pytest.param(last(OFFLINE, (), {1}), (1, 2), (1,), (1, (1,)), id="no other can lead"),
    pytest.param(last(DIRTY, (), {1}), (1, 2), (1,), (1, (1,)), id="no record is lost for it"),
    pytest.param(last(OFFLINE, {2}, {1}), (1, 2, 3), (1, 2, 3), (3, (1, 2, 3)), id="neither drained nor outranked"),
    pytest.param(last(OFFLINE, {2}, {1}), (1, 2), (1, 2), (1, (1, 2)), id="drained rather than outranked"),
    pytest.param(last(OFFLINE, {1}, {1, 2}), (1, 2), (1, 2), (2, (1, 2)), id="both: the one that obeys"),
    pytest.param(last(LEAVES, (), {2}), (1, 2, 3), (1, 2, 3), (3, (2, 3)), id="shutdown"),
]


@pytest.mark.parametrize(("rule", "replicas", "isr", "expected"), SPARING)
def test_a_drained_broker_leads_last(rule: Selector, replicas: Ids, isr: Ids, expected: object) -> None:
    assert outcome(rule(replicas, isr, ())) == expected


def test_drained_brokers_change_the_leader_alone_and_never_whether_there_is_one() -> None:
    for replicas, isr in product(permutations(EVERY), ISRS):
        for live, outranked, spared in product(SUBSETS, SUBSETS, SUBSETS):
            rules: list[tuple[Selector, Collection[int]]] = [
                (partial(initial, live=live), live),
                (partial(offline, live=live), live.intersection(isr)),
                (partial(offline, live=live, unclean=True), live.intersection(isr) or live),
                (partial(reassigned, live=live), live.intersection(isr)),
            ]
            for rule, could in rules:
                usual, found = rule(replicas, isr, ()), last(rule, outranked, spared)(replicas, isr, ())
                assert isinstance(found, Election) == isinstance(usual, Election) == bool(could)
                if isinstance(usual, NoLeader) or isinstance(found, NoLeader):
                    continue
                able = set(could) - outranked or set(could)
                best = able - spared or able
                assert found.leader in best
                assert (usual.leader not in best) or found == usual
                assert found.unclean == usual.unclean
                assert found.isr == ((found.leader,) if found.unclean else usual.isr)
                assert (found.why in UNCLEAN) == found.unclean


def test_the_drains_rule_elects_the_first_live_member_that_is_not_avoided_and_keeps_the_isr() -> None:
    for replicas, isr in product(permutations(EVERY), ISRS):
        for live, avoided, down in product(SUBSETS, SUBSETS, SUBSETS):
            able = [b for b in replicas if b in live and b in isr and b not in avoided and b not in down]
            found = drained(replicas, isr, down, live=live, avoided=avoided)
            others = len(live.intersection(isr).difference(down)) > 1
            assert outcome(found) == ((able[0], isr) if able else ONLY_AVOIDED if others else NO_OTHER_ISR)
    assert outcome(drained((1,), (1,), live={1}, avoided={1})) == ONLY_REPLICA


def test_the_reason_says_where_drained_brokers_were_passed_over() -> None:
    rule = last(OFFLINE, (), {1})
    assert (rule((1, 2), (1, 2), ()).why, rule((1, 2), (1,), ()).why) == (SPARED[OFFLINE_IN_ISR], OFFLINE_IN_ISR)
    both = last(OFFLINE, {1}, {2})((1, 2, 3), (1, 2, 3), ())
    assert both.why == SPARED[PASSED_OVER[OFFLINE_IN_ISR]]
