"""Answers that the admin endpoint changes on their way, or gives as a node of the cluster, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from brokers.wire.messages import CARRIED, MESSAGES
from brokers.wire.messages.cluster import MetadataBroker
from tests.core.admin_kit import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    METADATA,
    NODE,
    answer,
    corr,
    metadata_answer,
    place,
)
from tests.core.admin_requests import ALTER_CONFIGS, CREATE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, about
from tests.core.wire_kit import part

# -- changed


def describe_cluster(frame: bytes, error: int = 0) -> bytes:
    version = frame[3]
    node = part(
        DESCRIBE_CLUSTER, version, "DescribeClusterBroker", response=True, broker_id=1, host="b1", port=9, rack="r"
    )
    fields: dict[str, Any] = {"error_code": error, "error_message": None, "cluster_id": "the-cluster"}
    return answer(DESCRIBE_CLUSTER, version, corr(frame), controller_id=-1, brokers=(node,), endpoint_type=1, **fields)


NODES = [MetadataBroker(1, "b1", 9092, "r1"), MetadataBroker(2, "b2", 9092, None)]
OURS = (NODE.id, NODE.host, NODE.port)


def ask_for_metadata(version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"topics": None if version >= 1 else ()}
    if version >= 4:
        fields["allow_auto_topic_creation"] = False
    if version >= 8:
        fields["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = False
    return fields


def a_topic(version: int, name: str, partitions: int) -> Any:
    rows = tuple(
        part(
            METADATA,
            version,
            "MetadataResponsePartition",
            response=True,
            error_code=ErrorCode(0),
            partition_index=i,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=(1, 2),
            isr_nodes=(1,),
            offline_replicas=(2,),
        )
        for i in range(partitions)
    )
    fields: dict[str, Any] = {
        "error_code": ErrorCode(0),
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": rows,
    }
    return part(METADATA, version, "MetadataResponseTopic", response=True, topic_authorized_operations=0, **fields)


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("listed", [False, True], ids=["not listed", "listed by brokers"])
async def test_metadata_names_the_daemon_as_controller_at_the_endpoint(version: int, listed: bool) -> None:
    nodes = [*NODES, MetadataBroker(NODE.id, "elsewhere", 1, "r9")] if listed else NODES
    topic = a_topic(version, "t", 3)
    async with place() as p:
        p.broker.script = lambda frame: metadata_answer(version, corr(frame), nodes, 2, (topic,))
        client = await p.connect()
        answered = await client.ask(METADATA, version, **ask_for_metadata(version))
        assert [(n.node_id, n.host, n.port) for n in answered.brokers] == [(1, "b1", 9092), (2, "b2", 9092), OURS]
        assert answered.topics == (topic,)
        if version >= 1:
            assert answered.controller_id == NODE.id
            assert [n.rack for n in answered.brokers] == ["r1", None, "r1"]


async def test_metadata_of_a_large_cluster_is_changed_at_its_beginning_alone() -> None:
    """2 MB of topics, more than is ever held for a change."""
    topics = tuple(a_topic(12, f"topic-{i}", 20) for i in range(2_000))
    async with place() as p:
        p.broker.script = lambda frame: metadata_answer(12, corr(frame), NODES, 2, topics)
        client = await p.connect()
        answered = await client.ask(METADATA, 12, **ask_for_metadata(12))
        assert answered.controller_id == NODE.id
        assert answered.topics == topics


async def test_metadata_with_thousands_of_nodes_is_changed_too() -> None:
    """150 KB of nodes, more than is read of an answer at first."""
    nodes = [MetadataBroker(i, f"broker-{i}.some.where.example.com", 9092, None) for i in range(4_000)]
    async with place() as p:
        p.broker.script = lambda frame: metadata_answer(12, corr(frame), nodes, 2, (a_topic(12, "t", 2),))
        answered = await (await p.connect()).ask(METADATA, 12, **ask_for_metadata(12))
        assert [n.node_id for n in answered.brokers] == [*range(4_000), NODE.id]
        assert (answered.controller_id, len(answered.topics)) == (NODE.id, 1)


async def test_while_no_daemon_holds_the_role_brokers_answers_stay_as_they_are() -> None:
    async with place() as p:
        p.controller.named = None
        p.broker.script = lambda frame: metadata_answer(12, corr(frame), NODES, 2)
        client = await p.connect()
        answered = await client.ask(METADATA, 12, **ask_for_metadata(12))
        assert (answered.controller_id, [n.node_id for n in answered.brokers]) == (2, [1, 2])


@pytest.mark.parametrize("version", range(2))
async def test_describe_cluster_names_the_daemon_as_controller(version: int) -> None:
    async with place() as p:
        p.broker.script = describe_cluster
        client = await p.connect()
        fields = {"endpoint_type": 1} if version else {}
        answered = await client.ask(DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False, **fields)
        assert (answered.controller_id, answered.cluster_id) == (NODE.id, "the-cluster")
        assert [(n.broker_id, n.rack) for n in answered.brokers] == [(1, "r"), (NODE.id, "r")]


async def test_an_error_of_describe_cluster_is_passed_on() -> None:
    async with place() as p:
        p.broker.script = lambda frame: describe_cluster(frame, error=31)
        client = await p.connect()
        answered = await client.ask(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert (answered.error_code, answered.controller_id) == (31, -1)


OFFERED = {
    0: (0, 11),
    1: (0, 17),
    3: (0, 12),
    4: (0, 7),
    7: (0, 3),
    10: (0, 6),
    17: (0, 1),
    18: (0, 4),
    19: (0, 5),
    35: (5, 9),
    60: (0, 2),
}


def api_versions(frame: bytes, version: int | None = None) -> bytes:
    at = frame[3] if version is None else version
    keys = tuple(
        part(API_VERSIONS, at, "ApiVersion", response=True, api_key=key, min_version=low, max_version=high)
        for key, (low, high) in OFFERED.items()
    )
    return answer(API_VERSIONS, at, corr(frame), error_code=0 if version is None else 35, api_keys=keys)


@pytest.mark.parametrize("version", range(5))
async def test_what_the_broker_offers_is_offered_with_the_controllers_calls_and_without_what_brokers_say(
    version: int,
) -> None:
    software = {"client_software_name": "a", "client_software_version": "1"}
    async with place() as p:
        p.broker.script = api_versions
        client = await p.connect()
        answered = await client.ask(API_VERSIONS, version, **(software if version >= 3 else {}))
        offered = {key.api_key: (key.min_version, key.max_version) for key in answered.api_keys}
        own = {int(api): MESSAGES[api][:2] for api in CARRIED}
        assert offered == {0: (0, 11), 1: (0, 17), 3: (0, 12), 10: (0, 6), 17: (1, 1), 18: (0, 4), 60: (0, 1)} | own
        assert offered[CREATE_TOPICS] == (0, 7)


async def test_an_unknown_version_of_api_versions_is_answered_by_the_broker() -> None:
    async with place() as p:
        p.broker.script = lambda frame: api_versions(frame, version=0)
        client = await p.connect()
        frame = client.send(b"\0\x12\0\x09" + b"\0\0\0\1" + b"\xff\xff")
        assert await client.frame() == api_versions(frame, version=0)


@pytest.mark.parametrize("version", [0, 12])
async def test_an_answer_that_cannot_be_read_ends_the_clients_connection(version: int) -> None:
    async with place() as p:
        p.broker.script = lambda frame: frame[4:8] + b"\xff" * 40
        client = await p.connect()
        client.request(METADATA, version, **ask_for_metadata(version))
        assert await client.closed()


# -- answered as a node

LIST_GROUPS, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, LIST_TRANSACTIONS = 16, 34, 35, 66


@pytest.mark.parametrize("version", range(6))
async def test_the_daemon_as_a_node_has_no_groups(version: int) -> None:
    filters: dict[str, Any] = {"states_filter": ("Stable",)} if version >= 4 else {}
    async with place(brokers=0) as p:
        client = await p.connect()
        answered = await client.ask(LIST_GROUPS, version, **filters, **({"types_filter": ()} if version >= 5 else {}))
        assert (answered.error_code, answered.groups) == (0, ())


@pytest.mark.parametrize("version", range(5))
async def test_the_daemon_as_a_node_has_a_log_directory_without_replicas(version: int) -> None:
    async with place(brokers=0) as p:
        answered = await (await p.connect()).ask(DESCRIBE_LOG_DIRS, version, topics=None)
        assert [(r.error_code, r.log_dir, r.topics) for r in answered.results] == [(0, "-", ())]
        if version >= 4:
            assert [(r.total_bytes, r.usable_bytes) for r in answered.results] == [(0, 0)], "clients add them up"


@pytest.mark.parametrize("version", range(2))
async def test_the_daemon_as_a_node_has_no_transactions(version: int) -> None:
    longer = {"duration_filter": -1} if version else {}
    async with place(brokers=0) as p:
        client = await p.connect()
        answered = await client.ask(LIST_TRANSACTIONS, version, state_filters=(), producer_id_filters=(), **longer)
        assert (answered.error_code, answered.transaction_states) == (0, ())


@pytest.mark.parametrize("version", range(3))
async def test_the_daemon_as_a_node_has_no_replicas_to_move(version: int) -> None:
    topic = part(ALTER_REPLICA_LOG_DIRS, version, "AlterReplicaLogDirTopic", name="t", partitions=(0, 3))
    moved = part(ALTER_REPLICA_LOG_DIRS, version, "AlterReplicaLogDir", path="/data", topics=(topic,))
    async with place(brokers=0) as p:
        answered = await (await p.connect()).ask(ALTER_REPLICA_LOG_DIRS, version, dirs=(moved,))
        (result,) = answered.results
        assert result.topic_name == "t"
        assert [(at.partition_index, at.error_code) for at in result.partitions] == [(0, 9), (3, 9)]


@pytest.mark.kafka("ReassignPartitionsCommandTest.testThrottledReassignment")
@pytest.mark.parametrize(
    ("key", "version"),
    [(key, v) for key, last in ((DESCRIBE_CONFIGS, 4), (ALTER_CONFIGS, 2), (44, 1)) for v in range(last + 1)],
)
async def test_the_daemon_as_a_node_has_no_configurations(key: int, version: int) -> None:
    own = (4, str(NODE.id)), (8, str(NODE.id))
    async with place(brokers=0) as p:
        answered = await (await p.connect()).ask(key, version, **about(key, version, *own))
        found = answered.results if key == DESCRIBE_CONFIGS else answered.responses
        assert [(r.resource_type, r.resource_name, r.error_code, r.error_message) for r in found] == [
            (kind, name, 0, None) for kind, name in own
        ]


@pytest.mark.parametrize("others", [(), ((2, "t"),), ((4, "1"),), ((2, str(NODE.id)), (4, ""))])
async def test_configurations_of_others_are_passed_on(others: tuple[tuple[int, str], ...]) -> None:
    async with place() as p:
        client = await p.connect()
        client.request(INCREMENTAL_ALTER_CONFIGS, 1, **about(INCREMENTAL_ALTER_CONFIGS, 1, *others))
        assert (await client.frame())[4:] == p.broker.frames[0]


async def test_an_endpoint_that_is_no_node_passes_on_what_nodes_answer_of_themselves() -> None:
    async with place() as p:
        p.controller.named = None
        client = await p.connect()
        client.request(LIST_GROUPS, 0)
        assert (await client.frame())[4:] == p.broker.frames[0]
