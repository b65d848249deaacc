"""Requests of admin clients to a controller, through the codec: deletions, elections and reassignments."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from brokers.listener.envelopes import CarriedCall
from brokers.wire.errors import Error
from brokers.wire.messages import MESSAGES, response_codec
from brokers.wire.messages import partitions as p
from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from brokers.wire.versions import Api
from controller.kafka.requests.calls import Calls
from controller.kafka.requests.codec import NAME_OR_ID, TRANSLATIONS
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.world import KafkaWorld, in_world


async def respond(w: KafkaWorld, api: Api, body: Struct, version: int | None = None) -> Any:
    """Returns the response to a client of the newest version, or of ``version``, as the codec writes it."""
    spoken = MESSAGES[api].last if version is None else version
    response = await Calls(w.term.queue).carried(
        CarriedCall(api, spoken, body, "User:ANONYMOUS", "10.0.0.7", "", b"one call of many", 0)
    )
    assert response_codec(api, spoken).write(response)
    return response


async def running(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (2, 3), leaders=True)
    await w.serve()


def deletion(*topics: str | bytes) -> t.DeleteTopicsRequest:
    named = [t.TopicToDelete(None, x) if isinstance(x, bytes) else t.TopicToDelete(x, ZERO_ID) for x in topics]
    return t.DeleteTopicsRequest(30_000, (), tuple(named))


@pytest.mark.kafka("TopicCommandTest.testDelete*")
@pytest.mark.seed("S4-78")
@in_world()
async def test_topics_are_deleted_by_name_and_by_id(w: KafkaWorld) -> None:
    await w.topic("u", (1, 2), leaders=True)
    await running(w)
    response = await respond(w, Api.DELETE_TOPICS, deletion("t", id_of("u"), "never", b"?" * 16, ZERO_ID))
    assert [(d.name, d.topic_id, d.error_code) for d in response.responses] == [
        ("t", id_of("t"), Error.NONE),
        ("u", id_of("u"), Error.NONE),
        ("never", ZERO_ID, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (None, b"?" * 16, Error.UNKNOWN_TOPIC_ID),
        (None, ZERO_ID, Error.UNKNOWN_TOPIC_ID),
    ]
    assert not w.leaders()


@in_world(before=running)
async def test_a_deletion_by_name_and_id_is_an_invalid_request(w: KafkaWorld) -> None:
    both = t.DeleteTopicsRequest(1_000, (), (t.TopicToDelete("t", id_of("t")),))
    response = await respond(w, Api.DELETE_TOPICS, both)
    assert [(d.error_code, d.error_message) for d in response.responses] == [(Error.INVALID_REQUEST, NAME_OR_ID)]
    assert ("t", 0) in w.leaders()


@pytest.mark.parametrize(
    ("version", "error"), [(2, Error.INVALID_REQUEST), (3, Error.TOPIC_DELETION_DISABLED)], ids=["v2", "v3"]
)
@in_world(delete_topic_enable=False, before=running)
async def test_a_disabled_deletion_has_the_error_of_the_version(w: KafkaWorld, version: int, error: Error) -> None:
    response = await respond(w, Api.DELETE_TOPICS, t.DeleteTopicsRequest(1_000, ("t",)), version)
    assert [(d.name, d.error_code) for d in response.responses] == [("t", error)]


@pytest.mark.kafka(
    "LeaderElectionCommandTest.testAllTopicPartition",
    "LeaderElectionCommandTest.testPathToJsonFile",
    "LeaderElectionCommandTest.testPreferredReplicaElection",
    "LeaderElectionCommandTest.testTopicDoesNotExist",
    "LeaderElectionCommandTest.testElectionResultOutput",
)
@pytest.mark.seed("S4-71")
@in_world()
async def test_an_election_has_a_response_by_topic(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 1, 3), leaders=True, led_by=3)
    await w.topic("v", (1, 3), leaders=True)
    await w.serve()
    wanted = (p.TopicPartitions("t", (0, 7)), p.TopicPartitions("u", (0,)), p.TopicPartitions("v", (0,)))
    response = await respond(w, Api.ELECT_LEADERS, p.ElectLeadersRequest(wanted, 30_000))
    assert response.error_code == Error.NONE
    results = response.replica_election_results
    assert {r.topic: [(o.partition_id, o.error_code) for o in r.partition_result] for r in results} == {
        "t": [(0, 0), (7, 3)],
        "u": [(0, 3)],
        "v": [(0, 84)],
    }
    assert w.leaders()["t", 0][0] == 1
    everything = await respond(w, Api.ELECT_LEADERS, p.ElectLeadersRequest(None, 30_000))
    assert everything.replica_election_results == (p.ElectedTopic("t", (p.ElectedPartition(1),)),)


@in_world(before=running)
async def test_an_unknown_type_of_election_is_an_invalid_request(w: KafkaWorld) -> None:
    wanted = (p.TopicPartitions("t", (0,)),)
    response = await respond(w, Api.ELECT_LEADERS, p.ElectLeadersRequest(wanted, 30_000, 2))
    [topic] = response.replica_election_results
    assert [(o.error_code, "neither preferred" in o.error_message) for o in topic.partition_result] == [
        (Error.INVALID_REQUEST, True)
    ]


@pytest.mark.kafka(
    "ReassignPartitionsCommandTest.testCancellation", "TopicCommandTest.testIsNotUnderReplicatedWhenAdding"
)
@pytest.mark.seed("S4-84")
@in_world(before=running)
async def test_a_reassignment_is_begun_listed_and_cancelled(w: KafkaWorld) -> None:

    def alter(*partitions: tuple[int, tuple[int, ...] | None]) -> p.AlterPartitionReassignmentsRequest:
        moved = tuple(p.ReassignedPartition(*one) for one in partitions)
        return p.AlterPartitionReassignmentsRequest(30_000, (p.ReassignedTopic("t", moved),))

    begun = await respond(w, Api.ALTER_PARTITION_REASSIGNMENTS, alter((0, (3, 2)), (1, (9,)), (8, None)))
    assert (begun.error_code, [r.name for r in begun.responses]) == (Error.NONE, ["t"])
    assert [(o.partition_index, o.error_code) for o in begun.responses[0].partitions] == [(0, 0), (1, 39), (8, 85)]
    everything = await respond(w, Api.LIST_PARTITION_REASSIGNMENTS, p.ListPartitionReassignmentsRequest(1_000, None))
    assert everything.topics == (p.OngoingTopic("t", (p.OngoingReassignment(0, (3, 2, 1), (3,), (1,)),)),)
    other = p.ListPartitionReassignmentsRequest(1_000, (p.ListedTopic("t", (1, 1)), p.ListedTopic("u", (0,))))
    assert (await respond(w, Api.LIST_PARTITION_REASSIGNMENTS, other)).topics == ()
    await respond(w, Api.ALTER_PARTITION_REASSIGNMENTS, alter((0, None)))
    assert w.assignment("t").partitions[0].target == (2, 1), "its replica on 3 is named until it has stopped"
    again = await respond(w, Api.ALTER_PARTITION_REASSIGNMENTS, alter((0, None)))
    assert [(o.partition_index, o.error_code) for o in again.responses[0].partitions] == [(0, 85)]


@in_world(before=running)
async def test_a_principal_without_permission_is_refused_by_every_call(w: KafkaWorld) -> None:
    for api in TRANSLATIONS:
        body = {
            Api.DELETE_TOPICS: deletion("t"),
            Api.ELECT_LEADERS: p.ElectLeadersRequest((p.TopicPartitions("t", (0,)),), 1_000),
            Api.ALTER_PARTITION_REASSIGNMENTS: p.AlterPartitionReassignmentsRequest(1_000, ()),
            Api.LIST_PARTITION_REASSIGNMENTS: p.ListPartitionReassignmentsRequest(1_000, None),
        }[api]
        call = CarriedCall(api, MESSAGES[api].last, body, "User:eve", "10.0.0.7", "", b"one call of many", 0)
        response: Any = await Calls(w.term.queue).carried(call)
        codes = {response.error_code} if hasattr(response, "error_code") else {d.error_code for d in response.responses}
        assert codes <= {Error.TOPIC_AUTHORIZATION_FAILED, Error.CLUSTER_AUTHORIZATION_FAILED}
        assert codes
    assert ("t", 0) in w.leaders()
