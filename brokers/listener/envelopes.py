"""The daemon's side of envelopes: challenge, seal, and the call inside of them.

What the seal proves is that an admin endpoint of ours says so: the principal, and that the client's bytes are what they
are. Everything inside is read by the bounded codecs like any stranger's bytes.
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
from brokers.wire.beside import LARGE_BYTES, beside
from brokers.wire.calls import RELAYED
from brokers.wire.envelope import (
    CHALLENGE_BYTES,
    Answer,
    Envelope,
    Seal,
    encode_envelope_response,
    envelope_key,
    read_envelope,
)
from brokers.wire.errors import Error
from brokers.wire.messages import CARRIED, MESSAGES, read_request, response_codec
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.versions import Api

log = logging.getLogger("regent.listener")

CALLS_MAX: Final = 500
"""Carried calls under way at once; they may wait for minutes, brokers' calls must not have to wait for them."""
ITEMS_MAX: Final = 100_000
"""Array items of a carried request: what a handler does with more would keep the loop from turning for too long."""


class NotController(Exception):
    """Raised by a handler when the role was lost while the call waited."""


class CarriedCall(Struct, frozen=True):
    """What a client of an admin endpoint asked for.

    ``body`` is a struct of :mod:`brokers.wire.messages`. ``client_id`` is empty where there is none. ``call_id``: 16
    bytes, the same in every ``attempt``; an attempt above 0 may find what an earlier one did.
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
"""Answers a broker's call that came to an admin endpoint, as a framed response; raises :class:`NotController`."""
Carry = Callable[[CarriedCall], Awaitable[Struct]]
"""Answers a call with the response struct of its API; raises :class:`NotController`."""


class _Told:
    """What a connection was told: its challenge, and the number that its next seal must have at least.

    ``failed``: whether it has shown a wrong seal, under this challenge or an earlier one.
    """

    __slots__ = ("challenge", "failed", "number")

    def __init__(self, *, failed: bool = False) -> None:
        self.challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self.number = 0
        self.failed = failed


class Envelopes:
    """All envelopes of one listener."""

    def __init__(
        self, secret: bytes, quiet: RateLimitedLog, calls_max: int = CALLS_MAX, *, relay: Relay | None = None
    ) -> None:
        self._secret = secret
        self._key: bytes | None = None
        self._relay = relay
        self._quiet = quiet
        self._calls_max = calls_max
        self._under_way: set[asyncio.Future[Struct]] = set()
        self._told: WeakKeyDictionary[InboundConnection, _Told] = WeakKeyDictionary()

    def take_secret(self, secret: bytes) -> None:
        """Another secret: no envelope is opened before the daemon is identified again."""
        self._secret, self._key = secret, None

    def identify(self, cluster_id: str, daemon: int) -> None:
        """Which daemon of which cluster envelopes must be for; before, none is opened."""
        self._key = envelope_key(self._secret, cluster_id, daemon)

    async def answer(
        self, correlation: int, reader: Reader, connection: InboundConnection, carry: Carry | None
    ) -> bytes:
        """The framed response; raises :class:`Malformed`. ``carry`` is None while the daemon is not in office."""
        key, told = self._key, self._told.get(connection)
        if told is not None and told.failed and len(reader.data) > LARGE_BYTES:
            raise Malformed(f"an envelope of {len(reader.data)} bytes after a wrong seal")
        envelope, genuine = await beside(partial(_judged, reader, key, told), len(reader.data))
        if not envelope.request:
            told = self._told[connection] = _Told(failed=told is not None and told.failed)
            return encode_envelope_response(correlation, Answer(Error.NONE, told.challenge))
        if key is None:
            return encode_envelope_response(correlation, Answer(Error.NOT_CONTROLLER, None))
        if told is None or envelope.seal is None or not genuine:
            if told is not None:
                told.failed = True
            self._quiet.warn(
                connection.peer,
                "seal",
                f"an admin call from {connection.peer} is refused: its seal is not made with this daemon's secret, "
                "or for another daemon or cluster; admin.secret_file must hold the same on both sides",
            )
            return encode_envelope_response(correlation, Answer(Error.CLUSTER_AUTHORIZATION_FAILED, None))
        told.number = envelope.seal.number + 1
        connection.slot.prove()
        answer = await self._carried(envelope, carry)
        written = partial(_written, correlation, answer, key, told.challenge, envelope.seal)
        return await beside(written, len(answer.data or b""))

    def challenged(self, connection: InboundConnection) -> bool:
        """Whether a large envelope may come: the connection has a challenge, and has never shown a wrong seal."""
        told = self._told.get(connection)
        return told is not None and not told.failed

    async def _carried(self, envelope: Envelope, carry: Carry | None) -> Answer:
        relay = self._relay if _api_key(envelope) in RELAYED else None
        if carry is None and relay is None:
            return Answer(Error.NOT_CONTROLLER, None)
        if len(self._under_way) >= self._calls_max:
            self._quiet.warn("", "carried calls", f"an admin call is refused: {self._calls_max} are under way")
            return Answer(Error.REQUEST_TIMED_OUT, None)
        try:
            if relay is not None:
                return Answer(Error.NONE, await relay(envelope))
            assert carry is not None
            size = len(envelope.request)
            call = await beside(partial(opened, envelope), size)
            answer = await self._done(carry(call))
            write = partial(response_codec(call.api, call.version).write, answer)
            return Answer(Error.NONE, await beside(write, size))
        except Malformed as error:
            self._quiet.warn(envelope.client_host, "carried call", f"an admin call cannot be read: {error}")
            return Answer(Error.INVALID_REQUEST, None)
        except NotController:
            return Answer(Error.STALE_CONTROLLER_EPOCH, None)  # it may have been carried out in part
        except Exception:
            log.exception("an admin call of %s failed", envelope.client_host)
            return Answer(Error.UNKNOWN_SERVER_ERROR, None)

    async def _done(self, carried: Awaitable[Struct]) -> Struct:
        """The answer; raises NotController where the listener is stopped first."""
        task = asyncio.ensure_future(carried)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait({task})
        if task.cancelled():
            raise NotController
        return task.result()

    async def stop(self) -> None:
        """Calls under way are abandoned."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)


def _judged(reader: Reader, key: bytes | None, told: _Told | None) -> tuple[Envelope, bool]:
    """An envelope, and whether its seal is the next one of a connection; takes tens of milliseconds for a large one."""
    envelope = read_envelope(reader)
    if key is None or told is None or envelope.seal is None or envelope.seal.number < told.number:
        return envelope, False
    return envelope, envelope.genuine(key, told.challenge)


def _written(correlation: int, answer: Answer, key: bytes, challenge: bytes, asked: Seal) -> bytes:
    return encode_envelope_response(correlation, answer.sealed(key, challenge, asked))


def _api_key(envelope: Envelope) -> int:
    return int.from_bytes(envelope.request[:2], "big", signed=True)


def opened(envelope: Envelope) -> CarriedCall:
    """The call in a sealed envelope; raises :class:`Malformed`."""
    assert envelope.seal is not None
    head = Reader(envelope.request)
    key, version = head.i16(), head.i16()
    message = MESSAGES.get(key)  # type: ignore[call-overload]  # any number may come
    if key not in CARRIED or message is None or not message.first <= version <= message.last:
        raise Malformed(f"API key {key} v{version} is not carried")
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
