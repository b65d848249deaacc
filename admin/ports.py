"""What the endpoint needs of the rest: live brokers, and whoever holds the controller role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from brokers.wire.versions import Api


class Address(NamedTuple):
    """Where a broker's client listener is."""

    host: str
    port: int


class Node(NamedTuple):
    """The controller as clients are to see it: the daemon's id at the endpoint's address."""

    id: int
    host: str
    port: int


class Holder(NamedTuple):
    """The daemon that holds the role: id, nonce of its process, where its controller listener is, and its cluster."""

    id: int
    nonce: str
    host: str
    port: int
    cluster_id: str


class Call(Struct, frozen=True):
    """A request that only the controller can answer.

    ``body`` is a struct of :mod:`brokers.wire.messages`. ``principal`` is who asks, as a broker has found, or
    ``User:ANONYMOUS`` on a listener without authentication; what it may do is the controller's to say. ``frame`` is
    the whole request as it came, without its length.
    """

    api: Api
    version: int
    body: Struct
    principal: str
    client_id: str | None
    client_host: str
    frame: bytes


class NotController(Exception):
    """Nobody that can be reached holds the role, or the role was lost while the call waited."""


class Directory(Protocol):
    """Knows the live brokers."""

    def brokers(self) -> Sequence[Address]:
        """Client listeners of the live brokers, in any order."""

    def secured(self) -> bool:
        """Whether clients must authenticate (SASL)."""

    def authenticating(self) -> bool:
        """Whether every broker makes its clients authenticate by SASL."""

    async def known(self) -> None:
        """Waits until the others were read for the first time."""


class ControllerPort(Protocol):
    """The daemon that holds the role, from here."""

    def node(self) -> Node | None:
        """How clients are to see it; None while no daemon holds the role: brokers' answers stay as they are."""

    async def carry(self, call: Call) -> Struct:
        """The answer to ``call``, of the response type of its API; raises :class:`NotController`.

        May be cancelled at any await: the client hung up, the change goes on or does not.
        """

    async def relay(self, frame: bytes, principal: str, client_host: str) -> bytes:
        """The framed answer to a call that brokers make; raises :class:`NotController`. It is tried once."""
