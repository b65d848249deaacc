"""Opens the envelopes in which admin endpoints send their clients' calls.

Checks the seal, reads the call, seals the response.
The seal proves that an admin endpoint with our secret sent the principal and the client's bytes. The bounded codecs
read the client's bytes like any untrusted input.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from brokers.listener.inbound import InboundConnection
from brokers.rate_limited_log import RateLimitedLog
from brokers.wire.calls import RELAYED
from brokers.wire.envelope import (
    CHALLENGE_BYTES,
    Envelope,
    EnvelopeResponse,
    Seal,
    encode_envelope_response,
    envelope_key,
    read_envelope,
)
from brokers.wire.errors import Error
from brokers.wire.frames import LARGE_BYTES, run_off_loop
from brokers.wire.messages import CARRIED, MESSAGES, read_request, response_codec
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.versions import Api

log = logging.getLogger("regent.listener")

CALLS_MAX: Final = 500
"""Most clients' calls in progress. They have a limit of their own, so that brokers' calls never wait behind them."""
ITEMS_MAX: Final = 100_000
"""Most array items of a client's request: a handler of more would stall the event loop for too long."""


class NotController(Exception):
    """Raised where no term can carry out the call: the role is lost, the queue is full, or the listener stops."""


class CarriedCall(Struct, frozen=True):
    """The request of a client of an admin endpoint.

    ``body`` is a struct of :mod:`brokers.wire.messages`. ``client_id`` is empty where there is none. ``call_id``: 16
    bytes, the same in every ``attempt``; an attempt above 0 may find the outcome of an earlier one.
    """

    api: Api
    version: int
    body: Struct
    principal: str
    client_host: str
    client_id: str
    call_id: bytes
    attempt: int


Relay = Callable[[Envelope], Awaitable[bytes]]
"""Returns the framed response to a broker's call that came to an admin endpoint; raises :class:`NotController`."""
Carry = Callable[[CarriedCall], Awaitable[Struct]]
"""Returns the response struct of a call's API; raises :class:`NotController`."""


class _Challenge:
    """A connection's challenge, and the lowest number accepted in its next seal, so that none is replayed.

    ``failed``: whether the connection has sent a wrong seal, under this challenge or an earlier one.
    """

    __slots__ = ("challenge", "failed", "number")

    def __init__(self, *, failed: bool = False) -> None:
        self.challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self.number = 0
        self.failed = failed


class Envelopes:
    """Opens the envelopes of one listener. ``relay`` handles brokers' calls."""

    def __init__(
        self, secret: bytes, limited_log: RateLimitedLog, calls_max: int = CALLS_MAX, *, relay: Relay | None = None
    ) -> None:
        self._secret = secret
        self._key: bytes | None = None
        self._relay = relay
        self._limited_log = limited_log
        self._calls_max = calls_max
        self._under_way: set[asyncio.Future[Struct]] = set()
        self._challenges: WeakKeyDictionary[InboundConnection, _Challenge] = WeakKeyDictionary()

    def take_secret(self, secret: bytes) -> None:
        """Replaces the secret. Refuses envelopes until :meth:`identify`."""
        self._secret, self._key = secret, None

    def identify(self, cluster_id: str, daemon: int) -> None:
        """Sets the cluster and the daemon for which valid envelopes are sealed. Before, all are refused."""
        self._key = envelope_key(self._secret, cluster_id, daemon)

    async def respond(
        self, correlation: int, reader: Reader, connection: InboundConnection, carry: Carry | None
    ) -> bytes:
        """Returns the framed response to an envelope; raises :class:`BadMessage`.

        ``carry`` is None while the daemon is not active.
        """
        key, sent = self._key, self._challenges.get(connection)
        if sent is not None and sent.failed and len(reader.data) > LARGE_BYTES:
            raise BadMessage(f"an envelope of {len(reader.data)} bytes after a wrong seal")
        envelope, genuine = await run_off_loop(partial(_read_and_check, reader, key, sent), len(reader.data))
        if not envelope.request:
            sent = self._challenges[connection] = _Challenge(failed=sent is not None and sent.failed)
            return encode_envelope_response(correlation, EnvelopeResponse(Error.NONE, sent.challenge))
        if key is None:
            return encode_envelope_response(correlation, EnvelopeResponse(Error.NOT_CONTROLLER, None))
        if sent is None or envelope.seal is None or not genuine:
            if sent is not None:
                sent.failed = True
            self._limited_log.warn(
                connection.peer,
                "seal",
                f"an admin call from {connection.peer} is refused: its seal is not made with this daemon's secret, "
                "or for another daemon or cluster; admin.secret_file must hold the same on both sides",
            )
            return encode_envelope_response(correlation, EnvelopeResponse(Error.CLUSTER_AUTHORIZATION_FAILED, None))
        sent.number = envelope.seal.number + 1
        connection.slot.prove()
        response = await self._carry_out(envelope, carry)
        encode = partial(_encode, correlation, response, key, sent.challenge, envelope.seal)
        return await run_off_loop(encode, len(response.data or b""))

    def may_send_large(self, connection: InboundConnection) -> bool:
        """Returns whether the connection may send a large envelope: it has a challenge and never sent a wrong seal."""
        sent = self._challenges.get(connection)
        return sent is not None and not sent.failed

    async def _carry_out(self, envelope: Envelope, carry: Carry | None) -> EnvelopeResponse:
        relay = self._relay if _api_key(envelope) in RELAYED else None
        if carry is None and relay is None:
            return EnvelopeResponse(Error.NOT_CONTROLLER, None)
        if len(self._under_way) >= self._calls_max:
            self._limited_log.warn("", "carried calls", f"an admin call is refused: {self._calls_max} are in progress")
            return EnvelopeResponse(Error.REQUEST_TIMED_OUT, None)
        try:
            if relay is not None:
                return EnvelopeResponse(Error.NONE, await relay(envelope))
            assert carry is not None
            size = len(envelope.request)
            call = await run_off_loop(partial(read_admin_call, envelope), size)
            outcome = await self._await(carry(call))
            write = partial(response_codec(call.api, call.version).write, outcome)
            return EnvelopeResponse(Error.NONE, await run_off_loop(write, size))
        except BadMessage as error:
            self._limited_log.warn(envelope.client_host, "carried call", f"an admin call cannot be read: {error}")
            return EnvelopeResponse(Error.INVALID_REQUEST, None)
        except NotController:
            return EnvelopeResponse(Error.STALE_CONTROLLER_EPOCH, None)  # the daemon may have carried it out in part
        except Exception as error:
            sentence = f"an admin call of {envelope.client_host} failed"
            self._limited_log.error(log, "admin call", sentence, error)
            return EnvelopeResponse(Error.UNKNOWN_SERVER_ERROR, None)

    async def _await(self, response: Awaitable[Struct]) -> Struct:
        """Returns the response; raises :class:`NotController` where the listener stops first."""
        task = asyncio.ensure_future(response)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.add_done_callback(self._abandoned)
            raise
        if task.cancelled():
            raise NotController
        return task.result()

    def _abandoned(self, task: asyncio.Future[Struct]) -> None:
        """Logs the fault of a call whose connection is gone."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, NotController):
            self._limited_log.error(log, "admin call", "an admin call failed whose connection is gone", error)

    async def stop(self) -> None:
        """Abandons the calls in progress."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)


def _read_and_check(reader: Reader, key: bytes | None, sent: _Challenge | None) -> tuple[Envelope, bool]:
    """Reads an envelope; returns it, and whether its seal is genuine and no replay.

    Runs beside the loop, because a large envelope takes tens of milliseconds.
    """
    envelope = read_envelope(reader)
    if key is None or sent is None or envelope.seal is None or envelope.seal.number < sent.number:
        return envelope, False
    return envelope, envelope.genuine(key, sent.challenge)


def _encode(correlation: int, response: EnvelopeResponse, key: bytes, challenge: bytes, requested: Seal) -> bytes:
    return encode_envelope_response(correlation, response.sealed(key, challenge, requested))


def _api_key(envelope: Envelope) -> int:
    return int.from_bytes(envelope.request[:2], "big", signed=True)


def read_admin_call(envelope: Envelope) -> CarriedCall:
    """Reads the call in a sealed envelope; raises :class:`BadMessage`."""
    assert envelope.seal is not None
    head = Reader(envelope.request)
    key, version = head.i16(), head.i16()
    message = MESSAGES.get(key)  # type: ignore[call-overload]  # any number may come
    if key not in CARRIED or message is None or not message.first <= version <= message.last:
        raise BadMessage(f"API key {key} v{version} is not carried")
    request = read_request(envelope.request, ITEMS_MAX)
    seal = envelope.seal
    return CarriedCall(
        Api(key),
        version,
        request.body,
        envelope.principal,
        envelope.client_host,
        request.client_id or "",
        seal.call_id,
        seal.attempt,
    )
