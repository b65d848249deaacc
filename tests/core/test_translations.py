"""Calls of admin clients in their own words: deletions, elections and reassignments, as a controller answers them."""

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
from controller.requests.calls import Calls
from controller.requests.codec import NAME_OR_ID, TRANSLATIONS
from tests.core.controller_kafka import id_of
from tests.core.controller_world import World, world
from tests.core.virtual_time import in_virtual_time


async def asked(w: World, api: Api, body: Struct, version: int | None = None) -> Any:
    """What a client of the newest version, or of ``version``, is answered: through the codec, as on the wire."""
    spoken = MESSAGES[api].last if version is None else version
    answer = await Calls(w.term.queue).carried(
        CarriedCall(api, spoken, body, "User:ANONYMOUS", "10.0.0.7", "", b"one call of many", 0)
    )
    assert response_codec(api, spoken).write(answer)
    return answer


async def running(w: World) -> None:
    await w.topic("t", (1, 2), (2, 3), leaders=True)
    await w.begin_term()
    await w.told()


def deletion(*topics: str | bytes) -> t.DeleteTopicsRequest:
    named = [t.TopicToDelete(None, x) if isinstance(x, bytes) else t.TopicToDelete(x, ZERO_ID) for x in topics]
    return t.DeleteTopicsRequest(30_000, (), tuple(named))


@pytest.mark.kafka("TopicCommandTest.testDelete*")
@pytest.mark.seed("S4-78")
@in_virtual_time
async def test_topics_are_deleted_by_name_and_by_id() -> None:
    async with world() as w:
        await w.topic("u", (1, 2), leaders=True)
        await running(w)
        answer = await asked(w, Api.DELETE_TOPICS, deletion("t", id_of("u"), "never", b"?" * 16, ZERO_ID))
        assert [(d.name, d.topic_id, d.error_code) for d in answer.responses] == [
            ("t", id_of("t"), Error.NONE),
            ("u", id_of("u"), Error.NONE),
            ("never", ZERO_ID, Error.UNKNOWN_TOPIC_OR_PARTITION),
            (None, b"?" * 16, Error.UNKNOWN_TOPIC_ID),
            (None, ZERO_ID, Error.UNKNOWN_TOPIC_ID),
        ]
        assert not w.led()


@in_virtual_time
async def test_a_topic_with_a_name_and_an_id_is_no_request() -> None:
    async with world() as w:
        await running(w)
        both = t.DeleteTopicsRequest(1_000, (), (t.TopicToDelete("t", id_of("t")),))
        answer = await asked(w, Api.DELETE_TOPICS, both)
        assert [(d.error_code, d.error_message) for d in answer.responses] == [(Error.INVALID_REQUEST, NAME_OR_ID)]
        assert ("t", 0) in w.led()


@pytest.mark.parametrize(
    ("version", "error"), [(2, Error.INVALID_REQUEST), (3, Error.TOPIC_DELETION_DISABLED)], ids=["v2", "v3"]
)
@in_virtual_time
async def test_deletion_switched_off_is_said_in_the_words_of_the_version(version: int, error: Error) -> None:
    async with world(delete_topic_enable=False) as w:
        await running(w)
        answer = await asked(w, Api.DELETE_TOPICS, t.DeleteTopicsRequest(1_000, ("t",)), version)
        assert [(d.name, d.error_code) for d in answer.responses] == [("t", error)]


@pytest.mark.kafka(
    "LeaderElectionCommandTest.testAllTopicPartition",
    "LeaderElectionCommandTest.testPathToJsonFile",
    "LeaderElectionCommandTest.testPreferredReplicaElection",
    "LeaderElectionCommandTest.testTopicDoesNotExist",
    "LeaderElectionCommandTest.testElectionResultOutput",
)
@pytest.mark.seed("S4-71")
@in_virtual_time
async def test_elections_are_held_and_answered_by_topic() -> None:
    async with world() as w:
        await w.topic("t", (1, 2, 3), (2, 1, 3), leaders=True, led_by=3)
        await w.topic("v", (1, 3), leaders=True)
        await w.begin_term()
        await w.told()
        wanted = (p.TopicPartitions("t", (0, 7)), p.TopicPartitions("u", (0,)), p.TopicPartitions("v", (0,)))
        answer = await asked(w, Api.ELECT_LEADERS, p.ElectLeadersRequest(wanted, 30_000))
        assert answer.error_code == Error.NONE
        results = answer.replica_election_results
        assert {r.topic: [(o.partition_id, o.error_code) for o in r.partition_result] for r in results} == {
            "t": [(0, 0), (7, 3)],
            "u": [(0, 3)],
            "v": [(0, 84)],
        }
        assert w.led()["t", 0][0] == 1
        everything = await asked(w, Api.ELECT_LEADERS, p.ElectLeadersRequest(None, 30_000))
        assert everything.replica_election_results == (p.ElectedTopic("t", (p.ElectedPartition(1),)),)


@in_virtual_time
async def test_a_kind_of_election_that_there_is_not_is_no_request() -> None:
    async with world() as w:
        await running(w)
        wanted = (p.TopicPartitions("t", (0,)),)
        answer = await asked(w, Api.ELECT_LEADERS, p.ElectLeadersRequest(wanted, 30_000, 2))
        [topic] = answer.replica_election_results
        assert [(o.error_code, "neither preferred" in o.error_message) for o in topic.partition_result] == [
            (Error.INVALID_REQUEST, True)
        ]


@pytest.mark.kafka(
    "ReassignPartitionsCommandTest.testCancellation", "TopicCommandTest.testIsNotUnderReplicatedWhenAdding"
)
@pytest.mark.seed("S4-84")
@in_virtual_time
async def test_reassignments_are_begun_listed_and_cancelled() -> None:
    async with world() as w:
        await running(w)

        def alter(*partitions: tuple[int, tuple[int, ...] | None]) -> p.AlterPartitionReassignmentsRequest:
            moved = tuple(p.ReassignedPartition(*one) for one in partitions)
            return p.AlterPartitionReassignmentsRequest(30_000, (p.ReassignedTopic("t", moved),))

        begun = await asked(w, Api.ALTER_PARTITION_REASSIGNMENTS, alter((0, (3, 2)), (1, (9,)), (8, None)))
        assert (begun.error_code, [r.name for r in begun.responses]) == (Error.NONE, ["t"])
        assert [(o.partition_index, o.error_code) for o in begun.responses[0].partitions] == [(0, 0), (1, 39), (8, 85)]
        everything = await asked(w, Api.LIST_PARTITION_REASSIGNMENTS, p.ListPartitionReassignmentsRequest(1_000, None))
        assert everything.topics == (p.OngoingTopic("t", (p.OngoingReassignment(0, (3, 2, 1), (3,), (1,)),)),)
        other = p.ListPartitionReassignmentsRequest(1_000, (p.ListedTopic("t", (1, 1)), p.ListedTopic("u", (0,))))
        assert (await asked(w, Api.LIST_PARTITION_REASSIGNMENTS, other)).topics == ()
        await asked(w, Api.ALTER_PARTITION_REASSIGNMENTS, alter((0, None)))
        assert w.assignment("t").partitions[0].target == (2, 1), "its replica on 3 is named until it has stopped"
        again = await asked(w, Api.ALTER_PARTITION_REASSIGNMENTS, alter((0, None)))
        assert [(o.partition_index, o.error_code) for o in again.responses[0].partitions] == [(0, 85)]


@in_virtual_time
async def test_who_is_not_named_may_not_ask() -> None:
    async with world() as w:
        await running(w)
        for api in TRANSLATIONS:
            body = {
                Api.DELETE_TOPICS: deletion("t"),
                Api.ELECT_LEADERS: p.ElectLeadersRequest((p.TopicPartitions("t", (0,)),), 1_000),
                Api.ALTER_PARTITION_REASSIGNMENTS: p.AlterPartitionReassignmentsRequest(1_000, ()),
                Api.LIST_PARTITION_REASSIGNMENTS: p.ListPartitionReassignmentsRequest(1_000, None),
            }[api]
            call = CarriedCall(api, MESSAGES[api].last, body, "User:eve", "10.0.0.7", "", b"one call of many", 0)
            answer: Any = await Calls(w.term.queue).carried(call)
            codes = {answer.error_code} if hasattr(answer, "error_code") else {d.error_code for d in answer.responses}
            assert codes <= {Error.TOPIC_AUTHORIZATION_FAILED, Error.CLUSTER_AUTHORIZATION_FAILED}
            assert codes
        assert ("t", 0) in w.led()
