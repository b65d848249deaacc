"""Responds to requests that clients send to every node, because they see the daemon as one.

A broker would respond for itself instead: clients would see its groups and transactions twice, and its replicas and log
directories under the daemon's id. ``kafka-reassign-partitions --verify`` clears throttles on all nodes.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.messages import nodes as n

LOG_DIR: Final = "-"
"""The log directory of a node that has none."""


def own_response(request: Struct) -> Struct | None:
    """Returns the daemon's response for itself; None for configurations, see :mod:`admin.own_configs`."""
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
