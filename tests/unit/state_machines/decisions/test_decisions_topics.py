"""New topics and partitions, assignments that are repaired before they start, and lost ids (S4-79, S4-88)."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.topic_change import (
    Evidence,
    TopicIds,
    any_has_id,
    id_changes,
    names_any,
    new_partitions,
    repaired,
    taken_out,
)
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, Leadership, ReplicaState, TopicAssignment, TopicPartition
from tests.kit.kafka.model import EPOCH, P, broker, carried_out, decided, make_cluster, topic, topic_gone, writes_of

DAEMON = 1000001


def with_topic(*replicas: tuple[int, ...], brokers: tuple[int, ...] = (1, 2, 3)) -> tuple[Cluster, list[int]]:
    """Makes a model in which topic ``new`` was just found; returns its rows, too."""
    cluster = make_cluster(P((1, 2), 1), brokers=brokers)
    return cluster, cluster.observe_topic(topic("new", replicas))


@pytest.mark.kafka("ControllerIntegrationTest.testTopicCreationWithOfflineReplica")
@pytest.mark.seed("S4-6", "S4-32")
@pytest.mark.parametrize(
    ("replicas", "leader", "isr"),
    [((4, 2, 1), 2, (2, 1)), ((2, 4), 2, (2,)), ((4, 5, 3), 3, (3,))],
)
def test_absent_replicas_of_a_new_partition_neither_lead_nor_are_in_sync(
    replicas: tuple[int, ...], leader: int, isr: tuple[int, ...]
) -> None:
    cluster, rows = with_topic(replicas)
    assert writes_of(carried_out(cluster, partial(new_partitions, rows=rows))) == {1: (leader, isr, 0, 0)}
    assert cluster.replica_state(1, 4) in {ReplicaState.OFFLINE, ReplicaState.NON_EXISTENT}
    assert cluster.replica_states == {}, "nothing is kept of replicas that are as their brokers"


@pytest.mark.seed("S4-6", "S4-19")
def test_a_broker_that_shuts_down_leads_no_new_partition() -> None:
    cluster, rows = with_topic((1, 2))
    cluster.observe_shutting_down(1)
    assert writes_of(carried_out(cluster, partial(new_partitions, rows=rows))) == {1: (2, (2,), 0, 0)}


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicPartitionExpansion",
    "ControllerIntegrationTest.testTopicPartitionExpansionWithOfflineReplica",
)
@pytest.mark.seed("S4-79")
def test_an_expansion_leaves_the_present_partitions_as_they_are() -> None:
    cluster = make_cluster(P((1, 2), 1, epoch=3), P((2, 3), 2, epoch=3))
    before = list(cluster.rows)
    added = cluster.observe_topic(topic("t", [(3, 1), (3, 1), (2, 3), (4, 3)], version=1))
    assert added == [2, 3]
    assert cluster.rows[:2] == before, "present assignments change by reassignment alone"
    known = cluster.topic("t")
    assert known is not None
    assert (list(known.rows), known.version) == ([0, 1, 2, 3], 1)
    assert [cluster.find("t", p) for p in range(5)] == [0, 1, 2, 3, None]


@pytest.mark.kafka("ControllerContextTest.testPartitionReplicaAssignmentForTopicReturnsExpectedReplicaAssignments")
@pytest.mark.seed("S4-79")
def test_partitions_are_found_between_holes_and_other_topics() -> None:
    cluster = make_cluster(P((1,), 1))
    cluster.observe_topic(topic("u", [(1,)]))
    holes = TopicAssignment("t", None, {0: Assignment((1,)), 7: Assignment((2,)), 3: Assignment((3,))}, 1, 50)
    assert cluster.observe_topic(holes) == [2, 3]
    found = [(cluster.rows[i].partition, i) for i in cluster.topics[0].rows]
    assert found == [(0, 0), (3, 2), (7, 3)]
    assert [cluster.find("t", p) for p in (0, 1, 3, 7)] == [0, None, 2, 3]
    assert cluster.name(3) == TopicPartition("t", 7)
    assert str(cluster.name(3)) == "t-7"


def test_a_partition_whose_create_was_applied_without_a_reply_is_not_created_again() -> None:
    cluster, rows = with_topic((1, 2), (2, 3))
    decision = decided(cluster, partial(new_partitions, rows=rows))
    cluster.apply([change for change in decision.writes if change.entity == 2])
    change = cluster.observe_leadership(1, Leadership(1, 0, (1, 2), EPOCH, 0))
    assert change is not None
    assert change.is_new
    again = decided(cluster, partial(new_partitions, rows=rows), only=[1])
    assert (again.empty, again.refusals) == (True, [])


def test_a_partition_that_another_controller_created_under_a_dead_leader_gets_another() -> None:
    cluster, rows = with_topic((4, 2))
    cluster.observe_leadership(1, Leadership(4, 3, (4, 2), EPOCH - 1, 5))
    assert writes_of(decided(cluster, partial(new_partitions, rows=rows), only=[1])) == {1: (2, (2,), 4, 6)}


@pytest.mark.seed("S4-88")
def test_a_daemons_id_is_replaced_by_the_least_loaded_broker() -> None:
    found = topic("t", [(DAEMON, 1), (2, DAEMON), (1, 2)])
    assert names_any(found, frozenset({DAEMON}))
    fixed = repaired(found, {DAEMON}, live=[1, 2, 3], load={1: 9, 2: 5, 3: 0})
    assert fixed == {0: Assignment((3, 1)), 1: Assignment((2, 3)), 2: Assignment((1, 2))}
    assert not names_any(TopicAssignment("t", None, fixed, 0, 0), frozenset({DAEMON}))


@pytest.mark.seed("S4-88")
def test_replacements_are_spread_by_the_replicas_that_brokers_have() -> None:
    fixed = repaired(topic("t", [(DAEMON,)] * 9), {DAEMON}, live=[1, 2, 3], load={1: 3})
    assert fixed is not None
    leaders = [assignment.replicas[0] for assignment in fixed.values()]
    assert [leaders.count(b) for b in (1, 2, 3)] == [1, 4, 4]


@pytest.mark.seed("S4-88")
@pytest.mark.parametrize(
    ("replicas", "live", "fixed"),
    [
        ((DAEMON, 1, 2), [1, 2], None),
        ((DAEMON, 2, DAEMON + 1), [1, 2, 3], (1, 2, 3)),
        ((DAEMON, 2, DAEMON + 1), [1, 2], None),
    ],
)
def test_a_topic_has_no_repair_where_brokers_are_too_few(
    replicas: tuple[int, ...], live: list[int], fixed: tuple[int, ...] | None
) -> None:
    found = repaired(topic("t", [(1, 2), replicas]), {DAEMON, DAEMON + 1}, live=live, load={})
    assert found == (None if fixed is None else {0: Assignment((1, 2)), 1: Assignment(fixed)})


def test_a_repair_keeps_what_a_reassignment_adds_and_removes() -> None:
    found = TopicAssignment("t", None, {0: Assignment((DAEMON, 1, 2), (2,), (1,))}, 0, 0)
    assert repaired(found, {DAEMON}, live=[1, 2, 3], load={}) == {0: Assignment((3, 1, 2), (2,), (1,))}


@pytest.mark.parametrize(
    ("written", "found", "lost"),
    [
        pytest.param(Assignment((1, 2)), Assignment((2, 1)), False, id="another order"),
        pytest.param(Assignment((1, 2)), None, True, id="the partition"),
        pytest.param(Assignment((1, 2, 3), (3,), (1,)), None, True, id="the partition, under reassignment"),
        pytest.param(Assignment((1, 2, 3), (3,), (1,)), Assignment((3, 2, 1)), True, id="what is added and removed"),
        pytest.param(Assignment((1, 2, 3), (3,), (1,)), Assignment((1, 2)), False, id="another set of replicas"),
        pytest.param(Assignment((1, 2, 3), (3,), (1,)), Assignment((1, 2, 3), (3,)), False, id="it moves still"),
    ],
)
def test_a_foreign_rewrite_that_loses_a_partition_or_its_reassignment_is_found(
    written: Assignment, found: Assignment | None, lost: bool
) -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1))
    cluster.observe_assignments("t", 1, {1: written})
    partitions = {0: Assignment((1, 2))} if found is None else {0: Assignment((1, 2)), 1: found}
    assert taken_out(cluster, TopicAssignment("t", None, partitions, 2, 50)) == ({1: written} if lost else {})
    assert taken_out(cluster, TopicAssignment("t", None, partitions, 2, 51)) == {}, "another incarnation"
    assert taken_out(cluster, TopicAssignment("u", None, partitions, 2, 50)) == {}, "a topic that is not known"


ID, OTHER = b"a" * 16, b"b" * 16


@pytest.mark.parametrize(
    ("known", "flags", "ids", "sent_none", "responded"),
    [
        pytest.param({"t": ID, "u": OTHER}, {}, {"t": {ID}}, False, True, id="an id"),
        pytest.param({"t": None}, {}, {}, True, True, id="none"),
        pytest.param({}, {}, {}, False, True, id="no such topic"),
        pytest.param({"u": None}, {}, {}, False, True, id="none of another topic"),
        pytest.param({"t": None}, {"sent": True}, {}, False, True, id="none, as a daemon sent it"),
        pytest.param({"t": None}, {"late": True}, {}, True, False, id="none, sent before the response"),
        pytest.param({"t": ID}, {"late": True}, {"t": {ID}}, False, True, id="an id, although others were sent late"),
    ],
)
def test_a_response_is_evidence_of_an_id_of_none_or_is_still_missing(
    known: TopicIds, flags: dict[str, bool], ids: dict[str, set[bytes]], sent_none: bool, responded: bool
) -> None:
    evidence, one = Evidence(), broker(1)
    evidence.add(one, known, ["t"], **flags)
    assert (evidence.ids, evidence.sent_none, evidence.lacks(one)) == (ids, sent_none, not responded)
    assert evidence.lacks(broker(1, epoch=101)), "its next incarnation has not responded"
    assert [evidence.complete(live) for live in ({1: one}, {1: one, 2: broker(2)}, {})] == [responded, False, False]
    later = Evidence(evidence)
    assert (later.ids, later.sent_none, later.lacks(one)) == (ids, sent_none, True)


def test_ids_are_written_to_topics_that_exist_and_have_none() -> None:
    cluster = make_cluster()
    for name, topic_id in (("has", OTHER), ("lacks", None), ("gone", None)):
        cluster.observe_topic(TopicAssignment(name, topic_id, {0: Assignment((1,))}, 3, 60))
    topic_gone(cluster, "gone")
    [change] = id_changes(cluster, dict.fromkeys(("has", "lacks", "gone", "never"), ID))
    assert (change.topic, change.version, change.partitions, change.topic_id, change.czxid) == ("lacks", 3, {}, ID, 60)


def test_a_topic_with_an_id_counts_once_it_runs_and_while_it_exists() -> None:
    cluster = make_cluster()
    [row] = cluster.observe_topic(topic("t", [(1, 2)]))
    assert not any_has_id(cluster), "a new one has its id from this term"
    cluster.load_leadership([row], [P((1, 2), 1).leadership()])
    assert any_has_id(cluster)
    cluster.observe_deletions(["t"])
    topic_gone(cluster, "t")
    assert not any_has_id(cluster)
