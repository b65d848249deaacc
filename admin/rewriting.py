"""Changes brokers' responses on their way to clients: the offered API versions, and the controller."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct, structs

from admin.ports import Node
from admin.routes import HIDDEN
from brokers.wire.calls import RELAYED, SERVED
from brokers.wire.errors import Error
from brokers.wire.messages import CARRIED, MESSAGES
from brokers.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    DescribeClusterBroker,
    DescribeClusterResponse,
    MetadataBroker,
    MetadataHead,
)

B = TypeVar("B", MetadataBroker, DescribeClusterBroker)


def rewrite(response: Struct, node: Node | None, *, shared: bool = False) -> Struct:
    """Returns the response for clients; ``node`` is the controller, None to leave the broker's controller.

    ``shared``: brokers use this endpoint as their controller's address, too.
    """
    match response:
        case ApiVersionsResponse(error_code=Error.NONE):
            return offer(response, shared=shared)
        case MetadataHead() if node is not None:
            entry = MetadataBroker(node.id, node.host, node.port, _rack(response.brokers))
            others = tuple(broker for broker in response.brokers if broker.node_id != node.id)
            return structs.replace(response, brokers=(*others, entry), controller_id=node.id)
        case DescribeClusterResponse(error_code=Error.NONE) if node is not None:
            member = DescribeClusterBroker(node.id, node.host, node.port, _rack(response.brokers))
            rest = tuple(broker for broker in response.brokers if broker.broker_id != node.id)
            return structs.replace(response, brokers=(*rest, member), controller_id=node.id)
        case _:
            return response


def _rack(brokers: tuple[B, ...]) -> str | None:
    """Returns a rack for the daemon's entry as soon as a broker has one: some placements refuse a mix."""
    return next((broker.rack for broker in brokers if broker.rack is not None), None)


def offer(response: ApiVersionsResponse, *, shared: bool = False) -> ApiVersionsResponse:
    """Returns the versions that the endpoint offers, given those of the broker behind it.

    Controller requests have the endpoint's own versions; APIs that it reads or changes have the versions that both
    know. All others are the broker's, without those between brokers and controllers unless the endpoint is ``shared``.
    """
    found = {key.api_key: key for key in response.api_keys if key.api_key not in HIDDEN}
    for api, message in MESSAGES.items():
        if api in CARRIED:
            found[api] = ApiVersion(api, message.first, message.last)
        elif (theirs := found.pop(api, None)) is not None:
            first, last = max(message.first, theirs.min_version), min(message.last, theirs.max_version)
            if first <= last:
                found[api] = ApiVersion(api, first, last)
    found |= {api: ApiVersion(api, *SERVED[api]) for api in RELAYED} if shared else {}
    return structs.replace(response, api_keys=tuple(found[key] for key in sorted(found)))
