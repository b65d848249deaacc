"""Comparisons of a topic in ZooKeeper, in the daemon's model and in a broker's metadata: each field, both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from brokers.client import PartitionMetadata, TopicMetadata
from controller.operator.comparison import CopyDifference, Liveness, unsettled, with_memory, with_metadata
from metadata_store.codecs.base import MalformedNode
from state_machines.model.cluster import Cluster
from state_machines.model.types import NO_LEADER, Assignment, Leadership, TopicAssignment
from tests.kit.kafka.model import P, make_cluster

ID = bytes(15) + b"\6"
TOPIC = TopicAssignment("orders", ID, {0: Assignment((1, 2, 3)), 1: Assignment((2, 3, 1))}, 0, 50)
STATES = {0: Leadership(1, 3, (1, 2, 3), 1, 0), 1: Leadership(2, 3, (2, 3, 1), 1, 0)}
ALL = Liveness(frozenset({1, 2, 3}), frozenset({1, 2, 3}))
BROKER = 2


def lines(found: list[CopyDifference]) -> list[str]:
    return [f"{d.partition} {d.field} | {d.expected} | {d.found}" for d in found]


def metadata(**changes: Any) -> TopicMetadata:
    """Returns the metadata of a broker that knows everything, with changes of partition 0."""
    partitions = {p: PartitionMetadata(p, s.leader, s.leader_epoch, s.isr, s.isr, ()) for p, s in STATES.items()}
    partitions[0] = structs.replace(partitions[0], **changes)
    return TopicMetadata(0, ID, partitions)


# -- a broker's metadata


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"isr": (3, 1, 2)}, []),
        ({"leader": 2}, ["0 leader | 1 | 2"]),
        ({"leader_epoch": 9}, ["0 leader epoch | 3 | 9"]),
        ({"isr": (1, 2)}, ["0 isr | [1, 2, 3] | [1, 2]"]),
        ({"replicas": (1, 3, 2)}, ["0 replicas | [1, 2, 3] | [1, 3, 2]"]),
        ({"offline": (3,)}, ["0 offline replicas | [] | [3]"]),
    ],
)
@pytest.mark.parametrize("ids_sent", [True, False])
def test_each_field_of_a_brokers_partition_is_compared(
    changes: dict[str, Any], expected: list[str], ids_sent: bool
) -> None:
    found = [*with_metadata(BROKER, "orders", TOPIC, STATES, metadata(**changes), ALL, ids_sent=ids_sent)]
    assert lines(found) == expected
    assert {(d.topic, d.broker) for d in found} <= {("orders", BROKER)}


def test_a_partition_that_a_broker_shows_and_zookeeper_lacks_is_found() -> None:
    known = metadata()
    more = structs.replace(known, partitions={**known.partitions, 7: known.partitions[0]})
    found = [*with_metadata(BROKER, "orders", TOPIC, STATES, more, ALL, ids_sent=True)]
    assert lines(found) == ["7 partition | unknown | known"]


def test_an_unregistered_leader_is_no_leader_and_replicas_that_shut_down_are_offline() -> None:
    gone = Liveness(frozenset({2, 3}), frozenset({2}))
    shown = metadata(leader=NO_LEADER, offline=(3, 1))
    other = structs.replace(shown.partitions[1], offline=(1, 3))
    whole = TopicMetadata(0, ID, {0: shown.partitions[0], 1: other})
    assert lines([*with_metadata(BROKER, "orders", TOPIC, STATES, whole, gone, ids_sent=True)]) == []
    found = [*with_metadata(BROKER, "orders", TOPIC, STATES, metadata(), gone, ids_sent=True)]
    assert lines(found) == [
        "0 leader | -1 | 1",
        "0 offline replicas | [1, 3] | []",
        "1 offline replicas | [3, 1] | []",
    ]


def test_topics_and_partitions_that_one_side_lacks_are_found() -> None:
    def found(topic: TopicAssignment | None, states: Mapping[int, Any], shown: TopicMetadata | None) -> list[str]:
        return lines([*with_metadata(BROKER, "orders", topic, states, shown, ALL, ids_sent=True)])

    one = TopicMetadata(0, ID, {0: metadata().partitions[0]})
    empty = TopicMetadata(0, ID, {})
    assert found(TOPIC, STATES, one) == ["1 partition | known | unknown"]
    for lacking in (None, empty):
        assert found(TOPIC, STATES, lacking) == ["-1 topic | known | unknown"]
        assert found(None, {}, lacking) == []
        assert found(TOPIC, {0: None, 1: MalformedNode("/a", "x")}, lacking) == [], "no leader was ever elected"
    assert found(None, STATES, metadata()) == ["-1 topic | unknown | known"]
    assert found(TOPIC, {0: None, 1: None}, metadata()) == ["-1 topic | unknown | known"]


@pytest.mark.parametrize(("ids_sent", "differs"), [(True, True), (False, False)])
def test_a_topic_id_is_compared_where_brokers_know_it(ids_sent: bool, differs: bool) -> None:
    shown = structs.replace(metadata(), topic_id=bytes(16))
    found = lines([*with_metadata(BROKER, "orders", TOPIC, STATES, shown, ALL, ids_sent=ids_sent)])
    assert found == [f"-1 topic id | {ID.hex()} | {'00' * 16}"] * differs


# -- the daemon's model


def model() -> Cluster:
    cluster = make_cluster()
    rows = cluster.observe_topic(TOPIC)
    cluster.load_leadership(rows, list(STATES.values()))
    return cluster


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"leader": 2}, ["0 leader | 1 | 2"]),
        ({"leader_epoch": 4}, ["0 leader epoch | 3 | 4"]),
        ({"isr": (1, 2)}, ["0 isr | (1, 2, 3) | (1, 2)"]),
        ({"controller_epoch": 7}, ["0 controller epoch | 1 | 7"]),
        ({"version": 1}, ["0 version | 0 | 1"]),
    ],
)
def test_each_field_of_a_state_znode_is_compared_with_the_model(changes: dict[str, Any], expected: list[str]) -> None:
    states = STATES | {0: structs.replace(STATES[0], **changes)}
    assert lines([*with_memory("orders", TOPIC, states, model())]) == expected


def test_znodes_that_the_model_or_zookeeper_lacks_are_found() -> None:
    def found(topic: TopicAssignment | None, states: Mapping[int, Any], memory: Cluster) -> list[str]:
        return lines([*with_memory("orders", topic, states, memory)])

    unled = make_cluster()
    unled.load_leadership(unled.observe_topic(TOPIC), [None, None])
    smaller = structs.replace(TOPIC, partitions={0: TOPIC.partitions[0]})
    larger = structs.replace(TOPIC, partitions=TOPIC.partitions | {2: Assignment((3,))})
    assert found(None, {}, make_cluster()) == []
    assert found(TOPIC, STATES, make_cluster()) == ["-1 topic | unknown | in ZooKeeper"]
    assert found(None, {}, model()) == ["-1 topic | known | not in ZooKeeper"]
    assert found(smaller, STATES, model()) == ["1 partition | known | not in ZooKeeper"]
    assert found(larger, STATES, model()) == ["2 partition | unknown | in ZooKeeper"]
    assert found(TOPIC, {0: STATES[0], 1: None}, model()) == ["1 state znode | there | none"]
    assert found(TOPIC, {0: STATES[0], 1: None}, unled) == ["0 state znode | none | there"]
    assert found(TOPIC, STATES | {1: MalformedNode("/a", "x")}, model()) == [], "that is reported once, as unreadable"


def test_assignments_and_ids_are_compared_with_the_model() -> None:
    moved = structs.replace(TOPIC, topic_id=None, partitions=TOPIC.partitions | {0: Assignment((1, 2))})
    assert lines([*with_memory("orders", moved, STATES, model())]) == [
        f"-1 topic id | {ID.hex()} | none",
        "0 replicas | [1, 2, 3] | [1, 2]",
    ]


# -- ZooKeeper alone

DUE = "0 leader | one of [{}], which are live and in sync | {}"


@pytest.mark.parametrize(
    ("state", "live", "expected"),
    [
        (P((1, 2, 3), leader=1), (1, 2, 3), []),
        (P((1, 2, 3), leader=1, isr=(3, 1)), (1, 2, 3), []),
        (
            P((1, 2, 3), leader=1, isr=(1, 2)),
            (2, 3),
            ["0 leader | one of [2], which are live and in sync | 1, which is gone"],
        ),
        (
            P((1, 2, 3), leader=NO_LEADER, isr=(3,)),
            (2, 3),
            ["0 leader | one of [3], which are live and in sync | none"],
        ),
        (P((1, 2, 3), leader=1, isr=(1, 9)), (2, 3), []),
        (P((1, 2, 3)), (3, 2), ["0 leader | one of [2, 3], which are live | never elected"]),
        (P((1, 2, 3)), (4,), []),
        (P((1, 2, 3), leader=1, isr=(2, 3)), (1, 2, 3), ["0 isr | some of [1, 2, 3], with leader 1 | [2, 3]"]),
        (P((1, 2, 3), leader=1, isr=(1, 9)), (1, 2, 3), ["0 isr | some of [1, 2, 3], with leader 1 | [1, 9]"]),
    ],
)
def test_a_due_election_or_an_impossible_state_is_found(state: P, live: tuple[int, ...], expected: list[str]) -> None:
    topic = structs.replace(TOPIC, partitions={0: Assignment(state.replicas)})
    liveness = Liveness(frozenset(live), frozenset(live))
    assert lines([*unsettled(topic, {0: state.leadership()}, liveness)]) == expected


def test_a_broker_that_shuts_down_may_lead_but_is_no_candidate() -> None:
    leaving = Liveness(frozenset({1, 2}), frozenset({2}))
    topic = structs.replace(TOPIC, partitions={0: Assignment((1, 2))})
    assert lines([*unsettled(topic, {0: P((1, 2), leader=1).leadership()}, leaving)]) == []
    assert lines([*unsettled(topic, {0: None}, leaving)]) == ["0 leader | one of [2], which are live | never elected"]


def test_an_unreadable_state_znode_is_found() -> None:
    found = lines([*unsettled(TOPIC, STATES | {1: MalformedNode("/a", "it is no JSON")}, ALL)])
    assert found == ["1 state znode | readable | it is no JSON"]
