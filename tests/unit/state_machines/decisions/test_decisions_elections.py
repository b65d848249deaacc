"""Elections by request, by znode, by a setting and by the automatic balance (S4-70, S4-71, S4-82, S4-83)."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.leader_election import (
    FAILED,
    GIVEN_UP,
    LEADER_LIVES,
    LEADS_ALREADY,
    TO_BE_DELETED,
    UNKNOWN,
    ElectionError,
    ElectionType,
    NotElected,
    allow_unclean,
    elect,
    imbalance,
    judge,
    outcome,
    to_balance,
)
from state_machines.machines import selectors
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Refusal
from state_machines.model.types import NO_LEADER, Assignment
from tests.kit.kafka.model import P, carried_out, come_back, decided, die, make_cluster, topic, topic_gone, writes_of

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


@pytest.mark.seed("S4-71", "S4-82")
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("kind", ElectionType)
@pytest.mark.parametrize(
    ("row", "preferred", "unclean"),
    [
        pytest.param(None, UNKNOWN, UNKNOWN, id="unknown"),
        pytest.param(0, LEADS_ALREADY, LEADER_LIVES, id="the preferred one leads"),
        pytest.param(1, None, LEADER_LIVES, id="another leads"),
        pytest.param(2, LEADS_ALREADY, None, id="the preferred one led, and died"),
        pytest.param(3, None, None, id="without a leader"),
        pytest.param(4, None, None, id="it never started"),
        pytest.param(5, UNKNOWN, UNKNOWN, id="it is gone"),
    ],
)
def test_an_election_is_refused_where_it_is_not_needed_or_not_possible(
    kind: ElectionType, row: int | None, preferred: str | None, unclean: str | None, queued: bool
) -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 2), P((8, 2), 8), P((1, 2), NO_LEADER), P((8, 9)))
    cluster.observe_topic(topic("gone", [(1, 2)], czxid=60))
    topic_gone(cluster, "gone")
    if queued:
        cluster.observe_deletions(["t"])
    why = preferred if kind is PREFERRED else unclean
    found = judge(cluster, row, kind)
    if row in (None, 5):
        assert found == NotElected(ElectionError.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
    elif queued:
        assert found == NotElected(ElectionError.INVALID_TOPIC_EXCEPTION, TO_BE_DELETED)
    else:
        assert found == (None if why is None else NotElected(ElectionError.ELECTION_NOT_NEEDED, why))


@pytest.mark.seed("S4-71")
def test_a_repeated_election_passes_over_partitions_that_need_none_by_then() -> None:
    cluster = make_cluster(P((1, 2), 2), P((1, 2), 2))
    carried_out(cluster, partial(elect, rows=[0], kind=PREFERRED))
    decision = decided(cluster, partial(elect, rows=[0, 1], kind=PREFERRED), only=[0, 1])
    assert list(writes_of(decision)) == [1]
    assert decision.refusals == []


@pytest.mark.seed("S4-82")
def test_an_unclean_election_is_clean_where_a_member_of_the_isr_is_live() -> None:
    cluster = make_cluster(P((1, 2), 1, (1,)), P((2, 1, 3), 1), P((1, 9), 1, (1,)), P((2, 3), 2), P((8, 3)))
    die(cluster, 1)
    come_back(cluster, 8)
    decision = decided(cluster, partial(elect, rows=range(5), kind=UNCLEAN))
    assert writes_of(decision) == {0: (2, (2,), 1, 1), 1: (2, (2, 3), 1, 1), 4: (8, (8, 3), 0, 0)}
    assert {c.entity: c.after.recovering for c in decision.writes} == {0: True, 1: False, 4: False}
    assert decision.refusals == [Refusal(2, "ONLINE", selectors.NOTHING_LIVE)]


@pytest.mark.seed("S4-82")
@pytest.mark.parametrize(("topics", "elected"), [(None, {0, 1}), ({0}, {0}), ({1}, {1}), (set(), set())])
def test_topics_that_now_allow_unclean_elections_get_leaders(topics: set[int] | None, elected: set[int]) -> None:
    cluster = make_cluster(P((8, 2), NO_LEADER, (8,)))
    rows = cluster.observe_topic(topic("uu", [(8, 3)], czxid=60))
    cluster.load_leadership(rows, [P((8, 3), NO_LEADER, (8,)).leadership()])
    decision = decided(cluster, partial(allow_unclean, unclean=lambda _: True, topics=topics))
    assert set(writes_of(decision)) == elected


# -- the automatic balance


def unbalanced() -> Cluster:
    """Makes a model: broker 1 leads 8 of 10 that prefer it, broker 2 1 of 4, broker 3 all; 9 is gone."""
    return make_cluster(
        *[P((1, 2), 1)] * 8,
        *[P((1, 2), 2)] * 2,
        P((2, 3), 2),
        *[P((2, 3), 3)] * 3,
        *[P((3, 1), 3)] * 5,
        *[P((9, 1), 1)] * 3,
    )


@pytest.mark.seed("S4-83")
@pytest.mark.parametrize(
    ("percentage", "budget", "moved"),
    [
        (10, 100, [11, 12, 13, 8, 9]),
        (20, 100, [11, 12, 13]),
        (74, 100, [11, 12, 13]),
        (75, 100, []),
        (0, 100, [11, 12, 13, 8, 9]),
        (10, 4, [11, 12, 13, 8]),
        (10, 0, []),
    ],
)
def test_a_balance_moves_within_its_budget_what_brokers_above_the_percentage_do_not_lead(
    percentage: int, budget: int, moved: list[int]
) -> None:
    """The worst broker comes first; one that is at the percentage does not count."""
    cluster = unbalanced()
    assert to_balance(cluster, percentage, budget) == moved
    assert sorted(writes_of(carried_out(cluster, partial(elect, rows=moved, kind=PREFERRED)))) == sorted(moved)


@pytest.mark.seed("S4-83")
def test_balances_move_the_rest_and_then_nothing_more() -> None:
    cluster = unbalanced()
    for expected in (2, 2, 0):
        moved = to_balance(cluster, 10, 2)
        assert len(moved) == expected
        carried_out(cluster, partial(elect, rows=moved, kind=PREFERRED))
    assert {b: len(share.not_led) for b, share in imbalance(cluster).items()} == {1: 1, 2: 0, 3: 0, 9: 3}


@pytest.mark.seed("S4-83")
def test_a_balance_counts_partitions_that_only_their_isr_keeps_from_moving_but_moves_others() -> None:
    """KAFKA-9866: an election that fails each time would only fill the log."""
    cluster = make_cluster(P((1, 2), 2, (2,)), P((1, 2), 2))
    assert imbalance(cluster)[1].ratio == 1
    assert to_balance(cluster, 10, 100) == [1]
    assert to_balance(cluster, 10, 100, behind=True) == [0]


@pytest.mark.seed("S4-83")
def test_partitions_that_are_deleted_or_never_started_are_no_imbalance() -> None:
    cluster = make_cluster(P((1, 2)), brokers=(3,))
    assert (imbalance(cluster)[1].preferred, imbalance(cluster)[1].not_led) == (1, [])
    cluster = make_cluster(P((1, 2), 2))
    cluster.observe_deletions(["t"])
    [row] = cluster.observe_topic(topic("u", [(1, 3)], czxid=60))
    cluster.load_leadership([row], [P((1, 3), 3).leadership()])
    assert {b: (share.preferred, share.not_led) for b, share in imbalance(cluster).items()} == {1: (1, [row])}


@pytest.mark.seed("S4-83")
def test_of_brokers_with_the_same_share_the_lower_id_comes_first() -> None:
    cluster = make_cluster(P((3, 1), 1), P((2, 1), 1), P((1, 2), 1))
    assert to_balance(cluster, 10, 100) == [1, 0]
    cluster = make_cluster(P((2, 1), 1), P((3, 1), 1), P((2, 1), 2))
    assert to_balance(cluster, 10, 100) == [1, 0], "the worse one comes before a lower id"


@pytest.mark.seed("S4-83")
def test_a_balance_moves_partitions_under_reassignment() -> None:
    """Neither another one (KAFKA-10149) nor its own: the first replica leads as soon as it is in sync."""
    cluster = make_cluster(P((1, 2), 2), P((1, 2), 2))
    cluster.reassigning[0] = cluster.reassigning[1] = Assignment((1, 3, 2), (3,), (2,))
    assert to_balance(cluster, 10, 100) == [0, 1]


def test_a_balance_gives_nothing_to_an_outranked_broker() -> None:
    cluster = unbalanced()
    assert cluster.observe_outranked(2, cluster.brokers[2].epoch)
    assert to_balance(cluster, 10, 100) == [8, 9]
    assert to_balance(cluster, 10, 100, behind=True) == []


@pytest.mark.seed("S4-71", "S4-82")
@pytest.mark.parametrize(
    ("partition", "kind", "why"),
    [
        pytest.param(P((1, 2), 1), PREFERRED, None, id="the preferred replica leads"),
        pytest.param(P((1, 2), 2), PREFERRED, selectors.OUTRANKED, id="the preferred replica is outranked"),
        pytest.param(P((3, 2), 2, (2,)), PREFERRED, selectors.PREFERRED_BEHIND, id="the preferred replica is behind"),
        pytest.param(P((8, 2), 2), PREFERRED, selectors.PREFERRED_DOWN, id="the preferred replica is down"),
        pytest.param(P((3, 2), 2), PREFERRED, GIVEN_UP, id="it could lead"),
        pytest.param(P((2, 3), 2), UNCLEAN, None, id="a live replica leads"),
        pytest.param(P((8, 9), 8), UNCLEAN, selectors.NOTHING_LIVE, id="no replica is live"),
        pytest.param(P((8, 2), NO_LEADER, (8,)), UNCLEAN, GIVEN_UP, id="a live replica could lead"),
        pytest.param(P((8, 9)), UNCLEAN, selectors.NO_LIVE_REPLICA, id="it cannot be started"),
        pytest.param(P((8, 2)), PREFERRED, GIVEN_UP, id="it could be started"),
    ],
)
def test_the_outcome_of_an_election_has_the_present_reason(partition: P, kind: ElectionType, why: str | None) -> None:
    cluster = make_cluster(partition)
    cluster.observe_outranked(1, cluster.brokers[1].epoch)
    assert outcome(cluster, 0, kind) == (None if why is None else NotElected(FAILED[kind], why))
    cluster.observe_deletions(["t"])
    assert outcome(cluster, 0, kind) == NotElected(ElectionError.INVALID_TOPIC_EXCEPTION, TO_BE_DELETED)
