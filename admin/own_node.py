"""Calls to the daemon as a node: clients see it among the brokers, and some calls go to each of them.

Passed on, they would be answered by another node a second time: groups and transactions twice, replicas under a wrong
id. ``kafka-reassign-partitions --verify`` clears throttles on every node.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

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


def _own(resources: tuple[n.ConfigResource, ...], node_id: int) -> bool:
    name = str(node_id)
    kinds = (BROKER, BROKER_LOGGER)
    return bool(resources) and all(r.resource_type in kinds and r.resource_name == name for r in resources)
