"""Responses that the admin endpoint changes on their way, or gives as a node of the cluster, in every version."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from admin.own_node import about_configs
from brokers.wire.messages import CARRIED, MESSAGES
from brokers.wire.messages.cluster import MetadataBroker
from brokers.wire.messages.nodes import AlterConfigsRequest, AlteredConfig
from tests.kit.admin import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    NODE,
    about,
    bare,
    corr,
    endpoint_world,
    metadata_response,
    response_frame,
)
from tests.kit.wire import part, read_request

LIST_GROUPS, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, LIST_TRANSACTIONS = 16, 34, 35, 66
NODES = [MetadataBroker(1, "b1", 9092, "r1"), MetadataBroker(2, "b2", 9092, None)]
OURS = (NODE.id, NODE.host, NODE.port)
OFFERED = {
    0: (0, 11), 1: (0, 17), 3: (0, 12), 4: (0, 7), 7: (0, 3), 10: (0, 6), 17: (0, 1), 18: (0, 4), 19: (0, 5),
    35: (5, 9), 60: (0, 2),
}  # fmt: skip

# -- changed


def describe_cluster(frame: bytes, error: int = 0) -> bytes:
    version = frame[3]
    node = part(
        DESCRIBE_CLUSTER, version, "DescribeClusterBroker", response=True, broker_id=1, host="b1", port=9, rack="r"
    )
    fields: dict[str, Any] = {"error_message": None, "cluster_id": "the-cluster", "controller_id": -1}
    fields |= {"error_code": error, "brokers": (node,), "endpoint_type": 1}
    return response_frame(DESCRIBE_CLUSTER, version, corr(frame), **fields)


def metadata_request(version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"topics": None if version >= 1 else ()}
    if version >= 4:
        fields["allow_auto_topic_creation"] = False
    if version >= 8:
        fields["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = False
    return fields


def a_topic(version: int, name: str, partitions: int) -> Any:
    state: dict[str, Any] = {"leader_id": 1, "leader_epoch": 3, "replica_nodes": (1, 2), "isr_nodes": (1,)}
    state |= {"error_code": ErrorCode(0), "offline_replicas": (2,)}
    rows = tuple(
        part(METADATA, version, "MetadataResponsePartition", response=True, partition_index=i, **state)
        for i in range(partitions)
    )
    fields: dict[str, Any] = {"error_code": ErrorCode(0), "topic_id": None, "is_internal": False, "partitions": rows}
    fields |= {"name": name, "topic_authorized_operations": 0}
    return part(METADATA, version, "MetadataResponseTopic", response=True, **fields)


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("listed", [False, True], ids=["not listed", "listed by brokers"])
async def test_metadata_names_the_daemon_as_controller_at_the_endpoint(version: int, listed: bool) -> None:
    nodes = [*NODES, MetadataBroker(NODE.id, "elsewhere", 1, "r9")] if listed else NODES
    topic = a_topic(version, "t", 3)
    async with endpoint_world() as w:
        w.broker.script = lambda frame: metadata_response(version, corr(frame), nodes, 2, (topic,))
        response = await (await w.connect()).call(METADATA, version, **metadata_request(version))
        assert [(n.node_id, n.host, n.port) for n in response.brokers] == [(1, "b1", 9092), (2, "b2", 9092), OURS]
        assert response.topics == (topic,)
        if version >= 1:
            assert response.controller_id == NODE.id
            assert [n.rack for n in response.brokers] == ["r1", None, "r1"]


@pytest.mark.parametrize(("nodes", "topics"), [(2, 2_000), (4_000, 1)], ids=["2 MB of topics", "150 KB of nodes"])
async def test_metadata_larger_than_one_piece_is_changed_in_its_head_alone(nodes: int, topics: int) -> None:
    brokers = [MetadataBroker(i, f"broker-{i}.some.where.example.com", 9092, None) for i in range(nodes)]
    rows = tuple(a_topic(12, f"topic-{i}", 20) for i in range(topics))
    async with endpoint_world() as w:
        w.broker.script = lambda frame: metadata_response(12, corr(frame), brokers, 2, rows)
        response = await (await w.connect()).call(METADATA, 12, **metadata_request(12))
        assert response.controller_id == NODE.id
        assert [n.node_id for n in response.brokers] == [*range(nodes), NODE.id]
        assert response.topics == rows


async def test_while_no_daemon_holds_the_role_brokers_responses_stay_unchanged() -> None:
    async with endpoint_world() as w:
        w.controller.named = None
        w.broker.script = lambda frame: metadata_response(12, corr(frame), NODES, 2)
        client = await w.connect()
        response = await client.call(METADATA, 12, **metadata_request(12))
        assert (response.controller_id, [n.node_id for n in response.brokers]) == (2, [1, 2])
        w.broker.script = describe_cluster
        response = await client.call(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert (response.controller_id, [n.broker_id for n in response.brokers]) == (-1, [1])


@pytest.mark.parametrize("version", range(2))
async def test_describe_cluster_names_the_daemon_as_controller(version: int) -> None:
    async with endpoint_world() as w:
        w.broker.script = describe_cluster
        fields = {"endpoint_type": 1} if version else {}
        client = await w.connect()
        response = await client.call(DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False, **fields)
        assert (response.controller_id, response.cluster_id) == (NODE.id, "the-cluster")
        assert [(n.broker_id, n.rack) for n in response.brokers] == [(1, "r"), (NODE.id, "r")]


async def test_an_error_of_describe_cluster_is_passed_on() -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: describe_cluster(frame, error=31)
        response = await (await w.connect()).call(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert (response.error_code, response.controller_id) == (31, -1)


def api_versions(frame: bytes, version: int | None = None) -> bytes:
    at = frame[3] if version is None else version
    keys = tuple(
        part(API_VERSIONS, at, "ApiVersion", response=True, api_key=key, min_version=low, max_version=high)
        for key, (low, high) in OFFERED.items()
    )
    return response_frame(API_VERSIONS, at, corr(frame), error_code=0 if version is None else 35, api_keys=keys)


@pytest.mark.parametrize("version", range(5))
async def test_offered_versions_are_the_brokers_with_the_controllers_calls_and_without_calls_between_brokers(
    version: int,
) -> None:
    software = {"client_software_name": "a", "client_software_version": "1"}
    async with endpoint_world() as w:
        w.broker.script = api_versions
        response = await (await w.connect()).call(API_VERSIONS, version, **(software if version >= 3 else {}))
        offered = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        own = {int(api): MESSAGES[api][:2] for api in CARRIED}
        assert offered == {0: (0, 11), 1: (0, 17), 3: (0, 12), 10: (0, 6), 17: (1, 1), 18: (0, 4), 60: (0, 1)} | own
        assert offered[CREATE_TOPICS] == (0, 7)


async def test_an_unknown_version_of_api_versions_is_passed_to_the_broker() -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: api_versions(frame, version=0)
        request = bare(API_VERSIONS, 9)
        assert await (await w.connect()).exchange(request) == api_versions(request, version=0)


@pytest.mark.parametrize("version", [0, 12])
async def test_a_response_that_cannot_be_read_ends_the_clients_connection(version: int) -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: frame[4:8] + b"\xff" * 40
        client = await w.connect()
        client.request(METADATA, version, **metadata_request(version))
        assert await client.closed()


# -- given as a node


@pytest.mark.parametrize("version", range(6))
async def test_the_daemon_as_a_node_has_no_groups(version: int) -> None:
    filters: dict[str, Any] = {"states_filter": ("Stable",)} if version >= 4 else {}
    filters |= {"types_filter": ()} if version >= 5 else {}
    async with endpoint_world(brokers=0) as w:
        response = await (await w.connect()).call(LIST_GROUPS, version, **filters)
        assert (response.error_code, response.groups) == (0, ())


@pytest.mark.parametrize("version", range(5))
async def test_the_daemon_as_a_node_has_a_log_directory_without_replicas(version: int) -> None:
    async with endpoint_world(brokers=0) as w:
        response = await (await w.connect()).call(DESCRIBE_LOG_DIRS, version, topics=None)
        assert [(r.error_code, r.log_dir, r.topics) for r in response.results] == [(0, "-", ())]
        if version >= 4:
            assert [(r.total_bytes, r.usable_bytes) for r in response.results] == [(0, 0)], "clients add them up"


@pytest.mark.parametrize("version", range(2))
async def test_the_daemon_as_a_node_has_no_transactions(version: int) -> None:
    filters: dict[str, Any] = {"state_filters": (), "producer_id_filters": ()}
    filters |= {"duration_filter": -1} if version else {}
    async with endpoint_world(brokers=0) as w:
        response = await (await w.connect()).call(LIST_TRANSACTIONS, version, **filters)
        assert (response.error_code, response.transaction_states) == (0, ())


@pytest.mark.parametrize("version", range(3))
async def test_the_daemon_as_a_node_has_no_replicas_to_move(version: int) -> None:
    topic = part(ALTER_REPLICA_LOG_DIRS, version, "AlterReplicaLogDirTopic", name="t", partitions=(0, 3))
    moved = part(ALTER_REPLICA_LOG_DIRS, version, "AlterReplicaLogDir", path="/data", topics=(topic,))
    async with endpoint_world(brokers=0) as w:
        (result,) = (await (await w.connect()).call(ALTER_REPLICA_LOG_DIRS, version, dirs=(moved,))).results
        assert result.topic_name == "t"
        assert [(at.partition_index, at.error_code) for at in result.partitions] == [(0, 9), (3, 9)]


@pytest.mark.kafka("ReassignPartitionsCommandTest.testThrottledReassignment")
@pytest.mark.parametrize(
    ("key", "version"),
    [(key, v) for key, last in ((DESCRIBE_CONFIGS, 4), (ALTER_CONFIGS, 2), (44, 1)) for v in range(last + 1)],
)
async def test_the_daemon_as_a_node_has_no_configurations(key: int, version: int) -> None:
    own = (4, str(NODE.id)), (8, str(NODE.id))
    async with endpoint_world(brokers=0) as w:
        response = await (await w.connect()).call(key, version, **about(key, version, *own))
        found = response.results if key == DESCRIBE_CONFIGS else response.responses
        assert [(r.resource_type, r.resource_name, r.error_code, r.error_message) for r in found] == [
            (kind, name, 0, None) for kind, name in own
        ]


@pytest.mark.parametrize("others", [(), ((2, "t"),), ((4, "1"),), ((2, str(NODE.id)), (4, ""))])
async def test_configurations_of_others_are_passed_on(others: tuple[tuple[int, str], ...]) -> None:
    async with endpoint_world() as w:
        client = await w.connect()
        client.request(INCREMENTAL_ALTER_CONFIGS, 1, **about(INCREMENTAL_ALTER_CONFIGS, 1, *others))
        assert (await client.frame())[4:] == w.broker.frames[0]


async def test_an_endpoint_without_a_daemon_passes_on_requests_to_each_node() -> None:
    async with endpoint_world() as w:
        w.controller.named = None
        client = await w.connect()
        client.request(LIST_GROUPS, 0)
        assert (await client.frame())[4:] == w.broker.frames[0]


TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
OWN, OWN_LOGGERS = (BROKER, str(NODE.id)), (BROKER_LOGGER, str(NODE.id))
MIXED = (OWN, (TOPIC, "t"), (BROKER, ""), OWN_LOGGERS, (TOPIC, "missing"))
VERSIONS = [(key, v) for key, last in ((DESCRIBE_CONFIGS, 4), (ALTER_CONFIGS, 2), (44, 1)) for v in range(last + 1)]
KINDS = {DESCRIBE_CONFIGS: "DescribeConfigsResource", ALTER_CONFIGS: "AlterConfigsResource", 44: "AlterConfigsResource"}


def broker_response(key: int, version: int, frame: bytes) -> bytes:
    """Writes outcomes in the order of the request, with an error for the missing topic."""
    outcomes = tuple(outcome(key, version, r.resource_type, r.resource_name) for r in read_request(frame)[1].resources)
    named: dict[str, Any] = {"results" if key == DESCRIBE_CONFIGS else "responses": outcomes}
    return response_frame(key, version, corr(frame), **named)


def outcome(key: int, version: int, kind: int, name: str) -> Any:
    described = key == DESCRIBE_CONFIGS
    error, why = (ErrorCode(3), "there is none") if name == "missing" else (ErrorCode(0), None)
    fields: dict[str, Any] = {"error_code": error, "error_message": why, "resource_type": kind, "resource_name": name}
    if not described:
        return part(key, version, "AlterConfigsResourceResponse", response=True, **fields)
    synonym = (
        part(key, version, "DescribeConfigsSynonym", response=True, name="x", value="y", source=5) if version else 0
    )
    entry: dict[str, Any] = {"name": "retention.ms", "value": "1", "read_only": True, "is_sensitive": False}
    entry |= {"is_default": True, "config_source": 5, "synonyms": (synonym,), "config_type": 5, "documentation": "why"}
    configs = (part(key, version, "DescribeConfigsResourceResult", response=True, **entry),)
    return part(key, version, "DescribeConfigsResult", response=True, configs=configs, **fields)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_results_of_a_broker_and_of_the_daemon_come_in_the_order_of_the_request(key: int, version: int) -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: broker_response(key, version, frame)
        response = await (await w.connect()).call(key, version, **about(key, version, *MIXED))
        found = response.results if key == DESCRIBE_CONFIGS else response.responses
        own = [r for r in found if (r.resource_type, r.resource_name) in (OWN, OWN_LOGGERS)]
        assert [(r.resource_type, r.resource_name) for r in found] == list(MIXED)
        assert [(r.error_code, r.error_message) for r in own] == [(0, None)] * 2
        theirs = [outcome(key, version, *named) for named in MIXED if named not in (OWN, OWN_LOGGERS)]
        assert [r for r in found if r not in own] == theirs, "every field of the broker's results is passed on"


@pytest.mark.parametrize("version", range(2))
async def test_the_broker_receives_the_clients_changes_of_the_others(version: int) -> None:
    key = INCREMENTAL_ALTER_CONFIGS
    change: dict[str, Any] = {"name": "retention.ms", "value": "7", "config_operation": 2}
    configs = (
        part(key, version, "AlterableConfig", **change),
        part(key, version, "AlterableConfig", **change | {"value": None}),
    )
    named = [part(key, version, KINDS[key], resource_type=a, resource_name=b, configs=configs) for a, b in MIXED]
    async with endpoint_world() as w:
        w.broker.script = lambda frame: broker_response(key, version, frame)
        client = await w.connect()
        await client.call(key, version, validate_only=True, resources=tuple(named))
        header, body = read_request(w.broker.frames[0])
        assert (header.client_id, body.validate_only) == ("me", True)
        assert body.resources == tuple(r for r, at in zip(named, MIXED, strict=True) if at not in (OWN, OWN_LOGGERS))


async def test_a_client_may_send_more_calls_after_one_that_was_split() -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: broker_response(DESCRIBE_CONFIGS, 4, frame)
        client = await w.connect()
        for _ in range(3):
            response = await client.call(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, *MIXED))
            assert len(response.results) == len(MIXED)
        assert w.broker.opened == 1


@pytest.mark.parametrize(
    ("limits", "body", "why"),
    [({}, b"\xff" * 60, "cannot be read"), ({"frame_bytes_max": 2_000}, bytes(3_000), "too many to be merged")],
    ids=["not a response", "too large"],
)
async def test_a_response_that_cannot_be_merged_ends_the_clients_connection(
    limits: dict[str, Any], body: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with endpoint_world(**limits) as w:
        w.broker.script = lambda frame: frame[4:8] + body
        client = await w.connect()
        client.request(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, *MIXED))
        assert await client.closed()
    assert why in caplog.text


@pytest.mark.parametrize(("size", "merged"), [(70_000, True), (150_000, False)])
async def test_a_merged_response_counts_by_its_bytes_against_the_bound_of_all_clients(size: int, merged: bool) -> None:
    """The response comes in pieces of at most 64 KiB."""
    outcomes = tuple(outcome(DESCRIBE_CONFIGS, 4, TOPIC, f"topic-{i}") for i in range(size // 46))
    async with endpoint_world(buffered_bytes_max=110_000) as w:
        w.broker.script = lambda frame: response_frame(DESCRIBE_CONFIGS, 4, corr(frame), results=outcomes)
        client = await w.connect()
        client.request(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, OWN, (TOPIC, "t")))
        if merged:
            assert len(await client.frame()) > 66_000
        else:
            assert await client.closed()


def test_values_are_left_out_of_the_representation() -> None:
    assert "hidden" not in repr(AlteredConfig("ssl.keystore.password", "hidden"))
    assert about_configs(AlterConfigsRequest(()))
