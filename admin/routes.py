"""Routes each API, and changes requests and responses on their way: heads, the offered versions, the controller."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct, structs

from admin.ports import Node
from brokers.wire.calls import RELAYED, SERVED
from brokers.wire.errors import Error
from brokers.wire.message_codec import Codec
from brokers.wire.messages import CARRIED, MESSAGES
from brokers.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    DescribeClusterBroker,
    DescribeClusterResponse,
    MetadataBroker,
    MetadataHead,
)
from brokers.wire.primitives import NO_TAGS, Reader, legacy_string
from brokers.wire.versions import Api

HIDDEN: Final = frozenset(
    {
        Api.LEADER_AND_ISR,
        Api.STOP_REPLICA,
        Api.UPDATE_METADATA,
        Api.CONTROLLED_SHUTDOWN,
        Api.ALTER_PARTITION,
        Api.ENVELOPE,
        Api.ALLOCATE_PRODUCER_IDS,
    }
)
"""Requests between brokers and controllers: never offered to clients, never forwarded to a broker."""

OWN: Final = frozenset(
    {
        Api.LIST_GROUPS,
        Api.DESCRIBE_CONFIGS,
        Api.ALTER_CONFIGS,
        Api.ALTER_REPLICA_LOG_DIRS,
        Api.DESCRIBE_LOG_DIRS,
        Api.INCREMENTAL_ALTER_CONFIGS,
        Api.LIST_TRANSACTIONS,
    }
)
"""Requests to which each node responds for itself, the daemon included while it is a node."""


class Route(Enum):
    """The way of a request."""

    PASS = auto()
    REWRITE = auto()
    CARRY = auto()
    RELAY = auto()
    OWN = auto()
    REFUSE = auto()
    AUTHENTICATE = auto()
    CLOSE = auto()


def route(api: int, version: int, *, shared: bool = False) -> Route:
    """Returns the way of a request; ``shared``: brokers use the endpoint as their controller's address, too.

    CLOSE is a broker's reaction to an API or a version that it does not have. ApiVersions of an unknown version goes to
    a broker, because its response lists the versions in a form that every client reads.
    """
    if api in HIDDEN:
        relayed = shared and api in RELAYED and SERVED[Api(api)][0] <= version <= SERVED[Api(api)][1]
        return Route.RELAY if relayed else Route.CLOSE
    message = MESSAGES.get(api)  # type: ignore[call-overload]  # any number may come
    if message is None:
        return Route.PASS
    if not message.first <= version <= message.last:
        return Route.PASS if api == Api.API_VERSIONS else Route.CLOSE
    if api in CARRIED:
        return Route.CARRY
    if api in (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE):
        return Route.AUTHENTICATE
    if api in OWN:
        return Route.OWN
    return Route.REFUSE if api in (Api.PRODUCE, Api.FETCH) else Route.REWRITE


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


NO_STRING: Final = b"\xff\xff"
"""A null string with a 16-bit length."""


class Header(NamedTuple):
    """The first fields of every request."""

    api: int
    version: int
    correlation: bytes


def i16(data: bytes) -> int:
    """Returns two bytes as a signed number."""
    return int.from_bytes(data, "big", signed=True)


def head(header: Header, size: int) -> bytes:
    """Returns length and correlation id of a response with ``size`` bytes behind them."""
    return (size + len(header.correlation)).to_bytes(4, "big") + header.correlation


def request_frame(header: Header, client_id: str | None, codec: Codec[Any], body: Struct) -> bytes:
    """Returns a request without its length, with another body than the one that came under ``header``."""
    name = NO_STRING if client_id is None else legacy_string(client_id)
    tags = NO_TAGS if codec.flexible else b""
    numbers = header.api.to_bytes(2, "big") + header.version.to_bytes(2, "big")
    return numbers + header.correlation + name + tags + codec.write(body)


def body_of(api: Api, codec: Codec[Struct], held: bytes) -> Reader:
    """Returns a reader at the body of a response, behind the tags of its header."""
    reader = Reader(held)
    if codec.flexible and api is not Api.API_VERSIONS:  # ApiVersions responses have header v0 in every version
        reader.skip_tags()
    return reader


def rewritten(api: Api, codec: Codec[Struct], held: bytes, node: Node | None, *, shared: bool) -> bytes:
    """Returns the replacement of ``held``: header tags, the changed beginning and the unchanged rest."""
    reader = body_of(api, codec, held)
    start = reader.position
    response = codec.read(reader)
    return held[:start] + codec.write(rewrite(response, node, shared=shared)) + held[reader.position :]
