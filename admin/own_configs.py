"""Handles configuration requests that name the daemon as a node, alone or beside resources of brokers.

Java's client sends the resources of each node in a separate request; others (kafkajs) send them together with topics.
A broker refuses a node id that is not its own. So this module removes the daemon's resources from the request, and
adds their results to the broker's response at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeGuard, TypeVar

from msgspec import Struct, structs

from brokers.wire.messages import nodes as n

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
