"""Routes each API: to a broker, to a broker with a changed response, to the controller, to a refusal, or nowhere."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from brokers.wire.calls import RELAYED, SERVED
from brokers.wire.messages import CARRIED, MESSAGES
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
