"""Declares the messages of Kafka 3.9 that clients send and receive, and their codecs for every version."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import Struct

from brokers.wire import kio_messages
from brokers.wire.message_codec import Codec, codec
from brokers.wire.messages import cluster, nodes, partitions, security, topics
from brokers.wire.primitives import ITEMS_MAX, Reader
from brokers.wire.versions import Api


class Message(NamedTuple):
    """An API: its versions in Kafka 3.9, the struct of a request (None: it is forwarded unread) and of a response."""

    first: int
    last: int
    request: type[Struct] | None
    response: type[Struct]


MESSAGES: Final[dict[Api, Message]] = {
    Api.PRODUCE: Message(0, 11, nodes.ProduceRequest, nodes.ProduceResponse),
    Api.FETCH: Message(0, 17, nodes.FetchRequest, nodes.FetchResponse),
    Api.METADATA: Message(0, 12, None, cluster.MetadataHead),
    Api.API_VERSIONS: Message(0, 4, None, cluster.ApiVersionsResponse),
    Api.CREATE_TOPICS: Message(0, 7, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    Api.DELETE_TOPICS: Message(0, 6, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    Api.CREATE_PARTITIONS: Message(0, 3, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
    Api.ELECT_LEADERS: Message(0, 2, partitions.ElectLeadersRequest, partitions.ElectLeadersResponse),
    Api.ALTER_PARTITION_REASSIGNMENTS: Message(
        0, 0, partitions.AlterPartitionReassignmentsRequest, partitions.AlterPartitionReassignmentsResponse
    ),
    Api.LIST_PARTITION_REASSIGNMENTS: Message(
        0, 0, partitions.ListPartitionReassignmentsRequest, partitions.ListPartitionReassignmentsResponse
    ),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Message(
        0, 0, security.AlterUserScramCredentialsRequest, security.AlterUserScramCredentialsResponse
    ),
    Api.UPDATE_FEATURES: Message(0, 1, security.UpdateFeaturesRequest, security.UpdateFeaturesResponse),
    Api.LIST_GROUPS: Message(0, 5, nodes.ListGroupsRequest, nodes.ListGroupsResponse),
    Api.DESCRIBE_CONFIGS: Message(0, 4, nodes.DescribeConfigsRequest, nodes.DescribeConfigsResponse),
    Api.ALTER_CONFIGS: Message(0, 2, nodes.AlterConfigsRequest, nodes.AlterConfigsResponse),
    Api.ALTER_REPLICA_LOG_DIRS: Message(0, 2, nodes.AlterReplicaLogDirsRequest, nodes.AlterReplicaLogDirsResponse),
    Api.DESCRIBE_LOG_DIRS: Message(0, 4, nodes.DescribeLogDirsRequest, nodes.DescribeLogDirsResponse),
    Api.INCREMENTAL_ALTER_CONFIGS: Message(0, 1, nodes.AlterConfigsRequest, nodes.AlterConfigsResponse),
    Api.LIST_TRANSACTIONS: Message(0, 1, nodes.ListTransactionsRequest, nodes.ListTransactionsResponse),
    Api.SASL_HANDSHAKE: Message(
        1, 1, security.SaslHandshakeRequest, security.SaslHandshakeResponse
    ),  # v0: see messages.sasl
    Api.SASL_AUTHENTICATE: Message(0, 2, security.SaslAuthenticateRequest, security.SaslAuthenticateResponse),
    Api.DESCRIBE_CLUSTER: Message(0, 1, None, cluster.DescribeClusterResponse),
}

CARRIED: Final = frozenset(
    {
        Api.CREATE_TOPICS,
        Api.DELETE_TOPICS,
        Api.CREATE_PARTITIONS,
        Api.ELECT_LEADERS,
        Api.ALTER_PARTITION_REASSIGNMENTS,
        Api.LIST_PARTITION_REASSIGNMENTS,
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        Api.UPDATE_FEATURES,
    }
)
"""APIs that only the controller serves: the admin endpoint carries their requests to it."""


@cache
def request_codec(api: Api, version: int) -> Codec[Any]:
    """Returns the codec of a request body."""
    target = MESSAGES[api].request
    assert target is not None, f"requests of {api.name} are forwarded unread"
    return codec(kio_messages.layout(api, version, response=False), target)


@cache
def response_codec(api: Api, version: int) -> Codec[Any]:
    """Returns the codec of a response body; for Metadata only of the part before the topics (``MetadataHead``)."""
    layout = kio_messages.layout(api, version, response=True)
    return codec(layout.head("topics") if api is Api.METADATA else layout, MESSAGES[api].response)


class Request(NamedTuple):
    """A decoded request; ``items`` counts array items, nested ones included, as a measure of its memory."""

    client_id: str | None
    body: Any
    items: int


def read_request(frame: bytes, items_max: int = ITEMS_MAX) -> Request:
    """Reads a client's request, header included, of an API and version that :data:`MESSAGES` has; raises BadMessage.

    Clients may send bytes behind a request within its frame; this reader ignores them, as brokers do.
    """
    reader = Reader(frame, items_max)
    api, version = Api(reader.i16()), reader.i16()
    reader.i32()
    found = request_codec(api, version)
    client_id = reader.legacy_nullable_string()
    if found.flexible:
        reader.skip_tags()
    body = found.read(reader)
    return Request(client_id, body, reader.items_read)


def prepare(apis: Iterable[Api] = MESSAGES) -> None:
    """Builds every codec of ``apis``: it takes up to half a second, too long for an event loop."""
    for api in apis:
        message = MESSAGES[api]
        for version in range(message.first, message.last + 1):
            if message.request is not None:
                request_codec(api, version)
            response_codec(api, version)
