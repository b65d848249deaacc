"""Responds to requests for the daemon as a node: those for every node, for its configuration, and mistaken ones.

A broker would respond for itself instead: clients would see its groups and transactions twice, and its replicas and log
directories under the daemon's id. ``kafka-reassign-partitions --verify`` clears throttles on all nodes.

Java's client sends the resources of each node in a separate request; others (kafkajs) send them together with topics.
A broker refuses a node id that is not its own. So this module removes the daemon's resources from the request, and
adds their results to the broker's response at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeGuard, TypeVar

from msgspec import Struct, structs

from brokers.wire.errors import Error
from brokers.wire.messages import nodes as n
from brokers.wire.messages import nodes as x

LOG_DIR: Final = "-"
"""The log directory of a node that has none."""


def own_response(request: Struct) -> Struct | None:
    """Returns the daemon's response for itself; None for configurations, see :mod:`admin.own_node`."""
    match request:
        case n.ListGroupsRequest():
            return n.ListGroupsResponse()
        case n.ListTransactionsRequest():
            return n.ListTransactionsResponse()
        case n.DescribeLogDirsRequest():
            return n.DescribeLogDirsResponse((n.LogDir(LOG_DIR),))
        case n.AlterReplicaLogDirsRequest():
            topics = (topic for moved in request.dirs for topic in moved.topics)
            return n.AlterReplicaLogDirsResponse(tuple(_not_moved(topic) for topic in topics))
        case _:
            return None


def _not_moved(topic: n.MovedTopic) -> n.NotMovedTopic:
    error = Error.REPLICA_NOT_AVAILABLE
    return n.NotMovedTopic(topic.name, tuple(n.NotMovedPartition(at, error) for at in topic.partitions))


def wrong_node(request: Struct) -> Struct | None:
    """Returns the response to Produce and Fetch, which makes the client refresh its metadata. None: hang up instead.

    A producer with acks=0 reads no response; brokers hang up to make it refresh its metadata (``KafkaApis``).
    """
    error = Error.NOT_LEADER_OR_FOLLOWER
    match request:
        case x.ProduceRequest(acks=0):
            return None
        case x.ProduceRequest():
            return x.ProduceResponse(
                tuple(
                    x.TopicProduceResponse(
                        topic.name, tuple(x.PartitionProduceResponse(at.index, error) for at in topic.partition_data)
                    )
                    for topic in request.topic_data
                )
            )
        case x.FetchRequest(session_id=0):
            return x.FetchResponse(tuple(_not_fetched(topic, error) for topic in request.topics))
        case x.FetchRequest():
            return x.FetchResponse((), Error.FETCH_SESSION_ID_NOT_FOUND)
        case _:
            raise TypeError(f"{type(request).__name__} is not refused")


def _not_fetched(topic: x.FetchedTopic, error: int) -> x.TopicFetchResponse:
    found = tuple(x.PartitionFetchResponse(at.partition, error) for at in topic.partitions)
    return x.TopicFetchResponse(found, topic.topic, topic.topic_id)


BROKER: Final = 4
BROKER_LOGGER: Final = 8

Request = n.DescribeConfigsRequest | n.AlterConfigsRequest
Response = n.DescribeConfigsResponse | n.AlterConfigsResponse
T = TypeVar("T", n.DescribedConfigs, n.AlteredConfigs)
_Resource = n.DescribedResource | n.AlteredResource


def about_configs(request: Struct) -> TypeGuard[Request]:
    """Returns whether this is DescribeConfigs, AlterConfigs or IncrementalAlterConfigs."""
    return isinstance(request, n.DescribeConfigsRequest | n.AlterConfigsRequest)


def names_own(request: Request, node_id: int) -> bool:
    """Returns whether node ``node_id`` is among the resources."""
    return any(_own(about, node_id) for about in request.resources)


def without_own(request: Request, node_id: int) -> Request:
    """Returns the request without the resources of node ``node_id``."""
    return structs.replace(request, resources=tuple(r for r in request.resources if not _own(r, node_id)))


def with_own(request: Request, response: Response | None, node_id: int) -> Response:
    """Returns the broker's ``response`` (None: no broker has one) with the results of node ``node_id``, in order.

    The node has no configurations, and a change of them succeeds: ``kafka-reassign-partitions --verify`` clears
    throttles on all nodes.
    """
    if isinstance(request, n.DescribeConfigsRequest):
        described = response if isinstance(response, n.DescribeConfigsResponse) else n.DescribeConfigsResponse(())
        return structs.replace(described, results=_in_order(request, described.results, n.DescribedConfigs, node_id))
    altered = response if isinstance(response, n.AlterConfigsResponse) else n.AlterConfigsResponse(())
    return structs.replace(altered, responses=_in_order(request, altered.responses, n.AlteredConfigs, node_id))


def _in_order(request: Request, theirs: tuple[T, ...], own: Callable[[int, str], T], node_id: int) -> tuple[T, ...]:
    """Returns ``theirs`` with an ``own`` result at each position where the request names the node."""
    rest: Iterator[T] = iter(theirs)
    found: list[T | None] = [
        own(about.resource_type, about.resource_name) if _own(about, node_id) else next(rest, None)
        for about in request.resources
    ]
    return tuple([one for one in found if one is not None] + list(rest))


def _own(resource: _Resource, node_id: int) -> bool:
    return resource.resource_type in (BROKER, BROKER_LOGGER) and resource.resource_name == str(node_id)
