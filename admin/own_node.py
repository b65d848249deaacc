"""Calls to the daemon as a node: clients see it among the brokers, and some calls go to each of them.

Passed on, they would be answered, or done, by another node: groups and transactions told twice, replicas under a wrong
id, log directories of a broker that nobody named. ``kafka-reassign-partitions --verify`` clears throttles on all nodes.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.messages import nodes as n

BROKER: Final = 4
BROKER_LOGGER: Final = 8
LOG_DIR: Final = "-"
"""The log directory of a node that has none."""


def own_answer(request: Struct, node_id: int) -> Struct | None:
    """The answer of node ``node_id`` for itself; None where the request is about something else.

    Clients send what concerns a node apart from everything else, so a request that mixes both is a broker's to refuse.
    """
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
        case n.DescribeConfigsRequest(resources=resources) if _own(resources, node_id):
            return n.DescribeConfigsResponse(
                tuple(n.DescribedConfigs(about.resource_type, about.resource_name) for about in resources)
            )
        case n.AlterConfigsRequest(resources=resources) if _own(resources, node_id):
            return n.AlterConfigsResponse(
                tuple(n.AlteredConfigs(about.resource_type, about.resource_name) for about in resources)
            )
        case _:
            return None


def _not_moved(topic: n.MovedTopic) -> n.NotMovedTopic:
    error = Error.REPLICA_NOT_AVAILABLE
    return n.NotMovedTopic(topic.name, tuple(n.NotMovedPartition(at, error) for at in topic.partitions))


def _own(resources: tuple[n.ConfigResource, ...], node_id: int) -> bool:
    name = str(node_id)
    kinds = (BROKER, BROKER_LOGGER)
    return bool(resources) and all(r.resource_type in kinds and r.resource_name == name for r in resources)
