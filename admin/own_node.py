"""Calls to the daemon as a node: clients see it among the brokers, and some calls go to each of them.

Passed on, they would be answered, or done, by another node: groups and transactions told twice, replicas under a wrong
id, log directories of a broker that nobody named. ``kafka-reassign-partitions --verify`` clears throttles on all nodes.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.messages import nodes as n

LOG_DIR: Final = "-"
"""The log directory of a node that has none."""


def own_answer(request: Struct) -> Struct | None:
    """Returns the daemon's answer for itself; None for configurations, see :mod:`admin.own_configs`."""
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
