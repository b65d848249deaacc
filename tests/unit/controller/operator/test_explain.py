"""Explanations: each announced election is the one that a decision makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from controller.kafka.path.remembered import RecentChanges
from controller.operator.counts import Deletions, counted, imbalance
from controller.operator.reasons import explain
from state_machines.decisions.broker_change import broker_death, controlled_shutdown
from state_machines.decisions.reassignment import reassign
from state_machines.machines.selectors import OFFLINE_IN_ISR
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change
from state_machines.model.types import NO_LEADER, Assignment, Leadership, TopicAssignment
from tests.kit.kafka.model import P, carried_out, come_back, decided, die, make_cluster, topic_gone


def sentences(cluster: Cluster, *, unclean: bool = False, last: str | None = None) -> str:
    """Explains the first partition; returns all sentences."""
    found = explain(cluster, 0, unclean=unclean, last=last)
    return "\n".join([found.state, found.leader, found.isr, *found.would_change])


def test_dead_brokers_have_the_time_of_their_death_wherever_they_are_named() -> None:
    since = {1: " since 12:50", 3: " since before 12:48"}
    offline = changed(make_cluster(P((1, 3), leader=1, isr=(1,)), brokers=(2,)), lambda c: die(c, 1))
    offline.observe_undecided([0])
    found = explain(offline, 0, unclean=False, since=since)
    assert found.leader.startswith("no leader since broker 1 is gone (dead since 12:50): ")
    assert "3 is not: its broker is dead since before 12:48" in found.isr


def test_a_healthy_partition_is_explained_in_full() -> None:
    cluster = make_cluster(P((1, 2, 3), leader=1, epoch=4))
    found = explain(cluster, 0, unclean=False, last="new partition: first live replica leads")
    assert found.state == "ONLINE: its leader is registered"
    assert found.leader == (
        "broker 1 leads at leader epoch 4; it is the preferred replica, the first of the assignment; decided at "
        "controller epoch 6; last change: new partition: first live replica leads"
    )
    assert found.isr == "in sync are 1, 2, 3, all replicas"
    dies, shuts_down = found.would_change
    assert (
        dies == "if broker 1 dies, broker 2 leads with the ISR 2, 3 (leader lost: first live replica of the ISR leads)"
    )
    assert shuts_down.startswith("if broker 1 shuts down, broker 2 leads with the ISR 2, 3 (controlled shutdown: ")


@pytest.mark.parametrize("isr", [(1, 2, 3), (3, 1), (1,)])
@pytest.mark.parametrize("cause", ["dies", "shuts down"])
def test_the_announced_successor_is_the_one_that_is_elected(isr: tuple[int, ...], cause: str) -> None:
    cluster = make_cluster(P((1, 2, 3), leader=1, isr=isr))
    text = sentences(cluster)
    if cause == "dies":
        die(cluster, 1)
        writes = decided(cluster, partial(broker_death, dead=[1])).writes
        without = "no ISR member is live"
    else:
        cluster.observe_shutting_down(1)
        writes = decided(cluster, partial(controlled_shutdown, broker=1)).writes
        without = "no other ISR member can lead"
    after = writes[0].after if writes else None
    if after is not None and after.leader != NO_LEADER:
        members = ", ".join(map(str, after.isr))
        assert f"if broker 1 {cause}, broker {after.leader} leads with the ISR {members} (" in text
    else:
        assert isr == (1,)
        assert f"if broker 1 {cause}, no other broker leads: {without}" in text


def test_an_election_that_leaves_too_few_in_sync_names_the_waiting_producers() -> None:
    cluster = make_cluster(P((1, 2, 3), leader=1, isr=(1, 2)))
    waits = ", and acks=all producers wait: 1 of 2 required replicas in sync"
    dies, shuts_down = explain(cluster, 0, unclean=False, min_isr=2).would_change
    assert dies.startswith("if broker 1 dies, broker 2 leads")
    assert dies.endswith(waits)
    assert shuts_down.startswith("if broker 1 shuts down, broker 2 leads")
    assert shuts_down.endswith(waits)
    for least in (1, None):
        assert not [text for text in explain(cluster, 0, unclean=False, min_isr=least).would_change if "acks" in text]
    offline = make_cluster(P((1, 2), leader=1, isr=(1,)), brokers=(2,))
    returns = explain(offline, 0, unclean=False, min_isr=2).would_change[0]
    assert returns.endswith(waits)


def test_an_offline_partition_names_the_brokers_that_must_return() -> None:
    cluster = make_cluster(P((1, 2, 3), leader=1, isr=(1, 3), epoch=9), brokers=(2,))
    text = sentences(cluster)
    assert "OFFLINE: it was led, and its leader is gone" in text
    assert "no leader since broker 1 is gone: no ISR member is live" in text
    assert "if broker 1 returns, broker 1 leads with the ISR 1" in text
    assert "if broker 3 returns, broker 3 leads with the ISR 3" in text
    assert "if an unclean election is allowed, broker 2 leads with the ISR 2" in text
    assert "records that only 1, 3 hold are lost" in text
    assert "only a leader can add it" in text


def changed(cluster: Cluster, change: Callable[[Cluster], None]) -> Cluster:
    change(cluster)
    return cluster


SENTENCES: list[tuple[Cluster, list[str]]] = [
    (make_cluster(P((1, 2, 3), leader=2)), ["broker 1 would be preferred and could lead"]),
    (
        make_cluster(P((1, 2, 3), leader=2, isr=(2, 3))),
        [
            "broker 1 would be preferred, but the preferred replica is not in the ISR",
            "a preferred election would be refused: the preferred replica is not in the ISR",
        ],
    ),
    (
        make_cluster(P((1, 2, 3), leader=2), brokers=(2, 3)),
        ["but the preferred replica is not live: start its broker"],
    ),
    (changed(make_cluster(P((1, 2), leader=1)), lambda c: die(c, 1)), ["ONLINE: its leader has just gone"]),
    (
        changed(
            make_cluster(P((1, 2, 3, 4), leader=1, isr=(1,)), brokers=(1, 2, 4)), lambda c: c.observe_shutting_down(2)
        ),
        ["in sync are 1; 2 is not: its broker shuts down; 3 is not: its broker is not registered; 4 is not: it has"],
    ),
    (make_cluster(P((1, 2), leader=1, isr=(1, 9))), ["9 in it is not assigned"]),
    (make_cluster(P((1, 2), leader=2, isr=(2,), recovering=True)), ["elected uncleanly and is still recovering"]),
    (
        make_cluster(P((1, 2)), brokers=(3,)),
        [
            "NEW: assigned, and never led yet",
            "no leader yet: no replica is live",
            "if broker 2 returns, broker 2 leads with the ISR 2 (new partition",
        ],
    ),
    (make_cluster(P((1, 2), leader=NO_LEADER, isr=(1,)), brokers=(2,)), ["no leader: no ISR member is live"]),
    (make_cluster(P((1,), leader=1)), ["the partition goes offline with it: it has no other replica"]),
]


@pytest.mark.parametrize(("cluster", "expected"), SENTENCES, ids=[expected[-1][:40] for _, expected in SENTENCES])
def test_a_state_is_explained_in_sentences(cluster: Cluster, expected: list[str]) -> None:
    text = sentences(cluster)
    assert [sentence for sentence in expected if sentence not in text] == []
    assert not text.startswith("NEW") or "unclean" not in text


def test_an_allowed_unclean_election_is_announced() -> None:
    cluster = make_cluster(P((1, 2), leader=1, isr=(1,)), brokers=(2,))
    assert "broker 2 is about to be elected (unclean election" in sentences(cluster, unclean=True)


def test_a_partition_whose_znode_cannot_be_used() -> None:
    cluster = make_cluster(P((1, 2), leader=1))
    topic_gone(cluster, "t")
    text = sentences(cluster)
    assert "NON_EXISTENT" in text
    assert "repairing or deleting its state znode" in text


def test_the_last_change_is_remembered_for_a_while() -> None:
    cluster = make_cluster(*[P((1, 2, 3), leader=1)] * 4)
    die(cluster, 1)
    changes = carried_out(cluster, partial(broker_death, dead=[1])).writes
    recent = RecentChanges(changes_max=4)
    assert recent.why(0) is None
    recent.add(changes)
    assert recent.why(0) == f"{OFFLINE_IN_ISR}; 1 left the ISR"
    again = changes[0]
    recent.add([Change(again.entity, again.before, again.after, "later")])
    assert (recent.why(0), recent.why(1)) == ("later; 1 left the ISR", None), "the batch before it went as a whole"
    recent.add(changes * 3)
    assert recent.why(3) == f"{OFFLINE_IN_ISR}; 1 left the ISR"
    assert "decided in this term; last change: leader lost" in sentences(cluster, last=recent.why(0))


def test_a_followers_death_is_not_said_of_the_leaders_broker() -> None:
    cluster = make_cluster(P((2, 1, 3), leader=2))
    die(cluster, 3)
    recent = RecentChanges()
    recent.add(carried_out(cluster, partial(broker_death, dead=[3])).writes)
    found = explain(cluster, 0, unclean=False, last=recent.why(0)).leader
    assert found.endswith("; last change: a replica's broker died; 3 left the ISR")


@pytest.mark.parametrize("size", [1, 2, 5])
def test_recent_changes_are_bounded(size: int) -> None:
    recent = RecentChanges(changes_max=3)
    cluster = make_cluster(*[P((1, 2), leader=1)] * 8)
    for start in range(0, 8, size):
        rows = range(start, min(8, start + size))
        recent.add([Change(i, cluster.rows[i], cluster.rows[i], f"{i}") for i in rows])
        assert sum(recent.why(i) is not None for i in range(8)) <= 3
    assert recent.why(7) == "7"


def test_a_reassignment_names_the_broker_that_it_waits_for() -> None:
    cluster = make_cluster(P((1, 2), leader=1), brokers=(1, 2, 3))
    moved = cluster.rows[0].assignment.reassigned_to((2, 3))
    cluster.observe_assignments("t", 1, {0: moved})
    carried_out(cluster, partial(reassign, rows=[0]))
    assert "it is being reassigned to 2, 3, which ends once 3 is in sync" in sentences(cluster)
    die(cluster, 3)
    assert "it is being reassigned to 2, 3, which waits for broker 3: start it, or cancel" in sentences(cluster)
    found = explain(cluster, 0, unclean=False, since={3: " since 12:50"})
    assert "which waits for broker 3 (dead since 12:50): start it, or cancel" in found.would_change[-1]
    come_back(cluster, 3)
    row = cluster.rows[0]
    cluster.observe_leadership(0, Leadership(1, row.leader_epoch, (1, 2, 3), 7, row.version + 1))
    die(cluster, 2, 3)
    assert "which waits for" not in sentences(cluster)
    assert "which ends once one of them that is in sync can lead" in sentences(cluster)
    come_back(cluster, 2, 3)
    carried_out(cluster, partial(reassign, rows=[0]))
    assert "all but done: the removed replicas stop, then its topic znode is written" in sentences(cluster)
    cluster.observe_assignments("t", 2, {0: Assignment((2, 3))})
    assert "reassigned" not in sentences(cluster)


@pytest.mark.seed("S4-81")
def test_a_failed_log_directory_is_named_with_its_remedy() -> None:
    cluster = make_cluster(P((1, 2), leader=2, isr=(2,)))
    cluster.observe_failed_dirs(1, [0])
    text = sentences(cluster)
    assert "1 is not: its log directory failed; it is offline until its broker is restarted" in text
    assert "a preferred election would be refused: the preferred replica is not live" in text
    alone = make_cluster(P((1,), leader=NO_LEADER))
    alone.observe_failed_dirs(1, [0])
    assert "if broker 1 is restarted with a sound log directory, broker 1 leads with the ISR 1" in sentences(alone)


def test_an_imbalance_counts_as_in_kafka() -> None:
    """Queued topics do not count, nor partitions whose first replica is still being added."""
    cluster = make_cluster(P((1, 2), 2), P((2, 1), 2), P((1, 2)))
    rows = cluster.observe_topic(
        TopicAssignment("moving", None, {0: Assignment((3, 1), adding=(3,), removing=())}, 0, 60)
    )
    cluster.load_leadership(rows, [P((3, 1), 1, (1,)).leadership()])
    assert imbalance(counted(cluster.rows), Deletions.of(cluster)) == 1
    cluster.observe_deletions(["t"])
    assert imbalance(counted(cluster.rows), Deletions.of(cluster)) == 0


def test_brokers_with_a_higher_epoch_are_no_candidates() -> None:
    cluster = make_cluster(P((1, 2, 3), leader=3))
    for broker in (1, 2):
        cluster.observe_outranked(broker, cluster.brokers[broker].epoch)
    assert "a preferred election would be refused: only brokers that obey a higher" in sentences(cluster)
    cluster = make_cluster(P((1, 2, 3), leader=1))
    cluster.observe_outranked(2, cluster.brokers[2].epoch)
    text = sentences(cluster)
    assert "if broker 1 dies, broker 3 leads with the ISR 2, 3" in text
    assert "if broker 1 shuts down, broker 3 leads with the ISR 2, 3" in text
