"""Where each API goes: on to a broker, on and its answer changed, to the controller, refused, or nowhere."""

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
"""What brokers and controllers say to each other: never offered to clients, never passed on to a broker."""

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
"""What each node answers of itself, so the daemon too, if it is a node."""


class Route(Enum):
    """What happens to a request."""

    PASS = auto()
    REWRITE = auto()
    CARRY = auto()
    RELAY = auto()
    OWN = auto()
    REFUSE = auto()
    AUTHENTICATE = auto()
    CLOSE = auto()


def route(api: int, version: int, *, shared: bool = False) -> Route:
    """The way of a request; ``shared``: brokers find their controller here, too.

    CLOSE is what a broker does with an API or a version that it does not have. ApiVersions of an unknown version is
    passed on, because its answer says which versions there are, in a form that every client reads.
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
