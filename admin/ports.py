"""Declares the ports and the bounds of the endpoint: the live brokers, and the holder of the controller role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from brokers.wire.versions import Api


class Address(NamedTuple):
    """The address of a broker's client listener."""

    host: str
    port: int


class Node(NamedTuple):
    """The controller as clients see it: the daemon's id at the endpoint's address."""

    id: int
    host: str
    port: int


class Holder(NamedTuple):
    """The daemon that holds the role: id, nonce of its process, address of its controller listener, cluster id."""

    id: int
    nonce: str
    host: str
    port: int
    cluster_id: str


class Call(Struct, frozen=True):
    """A request that only the controller can serve.

    ``body`` is a struct of :mod:`brokers.wire.messages`. ``principal`` is the one that a broker authenticated, or
    ``User:ANONYMOUS`` on a listener without authentication; the controller authorizes it. ``frame`` is the whole
    received request, without its length.
    """

    api: Api
    version: int
    body: Struct
    principal: str
    client_id: str | None
    client_host: str
    frame: bytes


class NotController(Exception):
    """Raised where no reachable daemon holds the role, or the daemon lost the role during the call."""


class Directory(Protocol):
    """Knows the live brokers."""

    def brokers(self) -> Sequence[Address]:
        """Returns the client listeners of the live brokers, in any order."""

    def secured(self) -> bool:
        """Returns whether clients must authenticate (SASL)."""

    def authenticating(self) -> bool:
        """Returns whether every broker requires SASL of its clients."""

    async def known(self) -> None:
        """Waits until the brokers were read for the first time."""


class ControllerPort(Protocol):
    """The daemon that holds the role, as the endpoint uses it."""

    def node(self) -> Node | None:
        """Returns the node that clients see; None while no daemon is active, so brokers' responses stay unchanged."""

    async def carry(self, call: Call) -> Struct:
        """Returns the response to ``call``, of the response type of its API; raises :class:`NotController`.

        A client that hangs up cancels it at any await; the change may still be carried out.
        """

    async def relay(self, frame: bytes, principal: str, client_host: str) -> bytes:
        """Returns the framed response to a broker's call, without retries; raises :class:`NotController`."""


CHUNK_BYTES: Final = 65_536
"""Largest piece of a forwarded response."""
REWRITTEN_BYTES_MAX: Final = 1_048_576
"""Most bytes of a response that are held to be changed: the head of Metadata, ApiVersions, DescribeCluster."""
UNKNOWN_FRAME_BYTES_MAX: Final = 65_536
"""Largest request of a client that has still to authenticate, and of the APIs that need no authentication."""
ITEM_BYTES: Final = 200
"""Approximate memory of a decoded array item, up to twenty times its size on the wire."""


class EndpointLimits(Struct, frozen=True):
    """The resources that clients and brokers may use.

    ``buffered_bytes_max`` bounds the requests of all clients that are being received or carried out, with their bytes
    and their items (:data:`ITEM_BYTES`). Of a response, a connection holds a few :data:`CHUNK_BYTES`, of whatever size.
    ``frame_timeout_ms`` bounds the rest of a partly received request, and the sending of a piece of a response. It also
    bounds the time until a client authenticates or sends its first real request. The wait for a broker's response has
    no bound but the client, which hangs up: members of a group may wait for minutes.
    """

    frame_bytes_max: int = 16_777_216
    connections_max: int = 1_000
    connections_per_address_max: int = 500
    buffered_bytes_max: int = 134_217_728
    frame_timeout_ms: int = 10_000
    idle_timeout_ms: int = 600_000
    connect_timeout_ms: int = 5_000
    response_bytes_max: int = 1_073_741_824
