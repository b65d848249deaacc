"""Brokers' answers that are changed on their way: what is offered, and who the controller is."""

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


def rewrite(answer: Struct, node: Node | None, *, shared: bool = False) -> Struct:
    """The answer as clients get it; ``node`` is the controller, None to leave what the broker says about it.

    ``shared``: brokers find their controller here, too.
    """
    match answer:
        case ApiVersionsResponse(error_code=Error.NONE):
            return offer(answer, shared=shared)
        case MetadataHead() if node is not None:
            entry = MetadataBroker(node.id, node.host, node.port, _rack(answer.brokers))
            others = tuple(broker for broker in answer.brokers if broker.node_id != node.id)
            return structs.replace(answer, brokers=(*others, entry), controller_id=node.id)
        case DescribeClusterResponse(error_code=Error.NONE) if node is not None:
            member = DescribeClusterBroker(node.id, node.host, node.port, _rack(answer.brokers))
            rest = tuple(broker for broker in answer.brokers if broker.broker_id != node.id)
            return structs.replace(answer, brokers=(*rest, member), controller_id=node.id)
        case _:
            return answer


def _rack(brokers: tuple[B, ...]) -> str | None:
    """A rack for the daemon's entry as soon as a broker has one: some placements refuse a mix."""
    return next((broker.rack for broker in brokers if broker.rack is not None), None)


def offer(answer: ApiVersionsResponse, *, shared: bool = False) -> ApiVersionsResponse:
    """What the endpoint offers, given what the broker behind it does.

    Calls to the controller in the versions known here; what is read or changed here in versions that both know; the
    rest as the broker has it, without what is between brokers and controllers, unless brokers call here.
    """
    found = {key.api_key: key for key in answer.api_keys if key.api_key not in HIDDEN}
    for api, message in MESSAGES.items():
        if api in CARRIED:
            found[api] = ApiVersion(api, message.first, message.last)
        elif (theirs := found.pop(api, None)) is not None:
            first, last = max(message.first, theirs.min_version), min(message.last, theirs.max_version)
            if first <= last:
                found[api] = ApiVersion(api, first, last)
    found |= {api: ApiVersion(api, *SERVED[api]) for api in RELAYED} if shared else {}
    return structs.replace(answer, api_keys=tuple(found[key] for key in sorted(found)))
