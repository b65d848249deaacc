"""Carries clients' calls to the active daemon, over its controller listener and under the shared secret.

Each call has its own connection while it is in progress; later calls reuse the connection. Where the daemon turns out
not to be active, or the connection is lost, the carrier retries the call with the same id. It does so as soon as
another daemon is known to be active, or after a pause, until the call's time is over.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from admin.ports import Call, Holder, Node, NotController
from brokers.rate_limited_log import RateLimitedLog
from brokers.transport import Connection, TcpTransport, Transport
from brokers.wire.envelope import (
    CALL_ID_BYTES,
    Envelope,
    EnvelopeResponse,
    Seal,
    encode_envelope,
    envelope_key,
    read_envelope_response,
)
from brokers.wire.errors import Error, error_name
from brokers.wire.frames import reason, run_off_loop
from brokers.wire.messages import response_codec
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.refusals import refusal

CALLS_MAX: Final = 200
"""Most calls in progress at once; further ones wait for their turn."""
RELAYS_MAX: Final = 100
"""Most calls of brokers in progress at once; further ones wait for their turn."""
IDLE_MAX: Final = 8
"""Idle connections that are kept for later calls."""
RETRY_S_MAX: Final = 30.0
"""Longest time for retries of a call: clients abandon a request after about as long."""
WAIT_S_MAX: Final = 300.0
"""Longest wait for a response, as in the daemon."""
GRACE_S: Final = 5.0
"""Wait for a response beyond the call's time-out."""
RELAY_S_MAX: Final = 40.0
"""Longest wait for the response to a broker's call: longer than a broker waits (30 s)."""
CONNECT_S_MAX: Final = 5.0
PAUSE_S: Final = 0.1
"""Pause between the first two attempts at the same daemon; each further pause is twice as long."""
PAUSE_S_MAX: Final = 2.0
VANISHED_MAX: Final = 2
"""Consecutive daemons that may vanish during the same call, before the call counts as a possible cause."""
REPEATED_BYTES_MAX: Final = 1_048_576
"""A larger call is not sent again once a daemon has vanished during it."""
VANISHED: Final = (
    "the active daemon vanished during this call, so the call is not sent to the next one; its outcome is unknown: see "
    "the daemon's log"
)
NOT_BEGUN: Final = Error.NOT_CONTROLLER
"""The error of a daemon that is not active: the call did not begin."""
LOST: Final = Error.STALE_CONTROLLER_EPOCH
"""The error of a daemon that lost the role, or its connection, during the call: the outcome is unknown."""
UNSEALED: Final = (Error.NOT_CONTROLLER, Error.CLUSTER_AUTHORIZATION_FAILED)
"""Errors of responses without a seal: of a daemon without the role, or with another secret."""
NO_TIMEOUT_MS: Final = 30_000
"""The time-out for APIs whose requests have none."""


class View(Protocol):
    """Knows the holder of the role."""

    def node(self) -> Node | None:
        """See :class:`admin.ports.ControllerPort`."""

    def holder(self) -> Holder | None:
        """Returns the active daemon with its controller listener; None while no daemon holds the role."""

    def vacant(self) -> bool:
        """Returns whether the role is vacant: then a daemon or a broker soon claims it."""

    async def changed(self) -> None:
        """Waits until the role was read again."""


class _Line:
    """A connection to a daemon, with the challenge that the daemon sent for it."""

    def __init__(self, connection: Connection, holder: Holder, challenge: bytes) -> None:
        self.connection = connection
        self.holder = holder
        self._challenge = challenge
        self._number = 0

    @classmethod
    async def open(cls, transport: Transport, holder: Holder) -> _Line:
        """Connects and fetches a challenge; raises OSError and BadMessage."""
        async with asyncio.timeout(CONNECT_S_MAX):
            connection = await transport.connect(holder.host, holder.port, lambda: None)
            try:
                response = read_envelope_response(await connection.exchange([encode_envelope(0, Envelope(b""))]), 0)
            except BaseException:
                connection.close()
                raise
        return cls(connection, holder, response.data or b"")

    async def exchange(self, envelope: Envelope, secret: bytes, call_id: bytes, attempt: int) -> EnvelopeResponse:
        """Sends one sealed envelope and returns its response; raises OSError and BadMessage."""
        self._number += 1
        key = envelope_key(secret, self.holder.cluster_id, self.holder.id)
        write = partial(_sealed, envelope, key, self._challenge, call_id, attempt, self._number)
        seal, request = await run_off_loop(write, len(envelope.request))
        frame = await self.connection.exchange([request])
        return await run_off_loop(partial(_opened, frame, self._number, key, self._challenge, seal), len(frame))


def _sealed(
    envelope: Envelope, key: bytes, challenge: bytes, call_id: bytes, attempt: int, number: int
) -> tuple[Seal, bytes]:
    """Returns a seal and the framed request with it."""
    sealed = envelope.sealed(key, challenge, call_id, attempt, number)
    assert sealed.seal is not None
    return sealed.seal, encode_envelope(number, sealed)


def _opened(frame: bytes, number: int, key: bytes, challenge: bytes, requested: Seal) -> EnvelopeResponse:
    """Reads the daemon's response and checks its seal; raises :class:`BadMessage`."""
    response = read_envelope_response(frame, number)
    if response.error not in UNSEALED and not response.genuine(key, challenge, requested):
        raise BadMessage("its response is not sealed with this endpoint's secret: another process may have sent it")
    return response


class Carrier:
    """Implements :class:`admin.ports.ControllerPort`. Without a ``secret`` it carries no calls."""

    def __init__(self, view: View, secret: bytes | None, transport: Transport | None = None) -> None:
        self._view = view
        self._secret = secret
        self._transport = transport or TcpTransport()
        self._idle: deque[_Line] = deque()
        self._turns = asyncio.Semaphore(CALLS_MAX)
        self._relays = asyncio.Semaphore(RELAYS_MAX)
        self._quiet = RateLimitedLog()

    def node(self) -> Node | None:
        """See :class:`admin.ports.ControllerPort`."""
        return self._view.node()

    def close(self) -> None:
        """Ends the idle connections."""
        while self._idle:
            self._idle.pop().connection.close()

    async def carry(self, call: Call) -> Struct:
        """See :class:`admin.ports.ControllerPort`."""
        timeout_s = max(getattr(call.body, "timeout_ms", NO_TIMEOUT_MS), 0) / 1000
        envelope = Envelope(call.frame, call.principal, call.client_host)
        until_s = _now_s() + min(timeout_s, RETRY_S_MAX)
        pending = _PendingCall(envelope, until_s, _now_s() + min(timeout_s, WAIT_S_MAX) + GRACE_S)
        async with self._turns:
            while True:
                holder = self._view.holder()
                if self._secret is None or (holder is None and not self._view.vacant()):
                    raise NotController
                if holder is not None:
                    response = await self._try(holder, pending, self._secret)
                    if response.error not in (NOT_BEGUN, LOST):
                        return await _response_to(call, response)
                    if pending.is_dangerous:
                        return refusal(call.body, Error.UNKNOWN_SERVER_ERROR, VANISHED)
                    pending.attempt += response.error == LOST
                await self._until_retry(holder, pending)

    async def relay(self, frame: bytes, principal: str, client_host: str) -> bytes:
        """See :class:`admin.ports.ControllerPort`. Brokers retry by themselves, and look for the controller first."""
        holder, now_s = self._view.holder(), _now_s()
        if holder is None or self._secret is None:
            raise NotController
        pending = _PendingCall(Envelope(frame, principal, client_host), now_s, now_s + RELAY_S_MAX)
        async with self._relays:
            response = await self._try(holder, pending, self._secret)
        if response.error != Error.NONE or response.data is None:
            raise NotController
        return response.data

    async def _until_retry(self, holder: Holder | None, pending: _PendingCall) -> None:
        """Waits until the role was read again, or for a pause if there is a holder; NotController at the deadline."""
        if (left_s := pending.retry_until_s - _now_s()) <= 0:
            raise NotController
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s if holder is None else min(left_s, pending.pause_s(holder))):
                await self._view.changed()

    async def _try(self, holder: Holder, pending: _PendingCall, secret: bytes) -> EnvelopeResponse:
        """Returns the daemon's response: NOT_BEGUN without an active daemon there, LOST if the call may have begun."""
        try:
            line = self._kept(holder) or await _Line.open(self._transport, holder)
        except (OSError, BadMessage) as error:
            self._warn(holder, error)
            return EnvelopeResponse(NOT_BEGUN, None)
        try:
            response = await self._exchange(line, pending, secret)
        except (OSError, BadMessage) as error:
            line.connection.close()
            self._warn(holder, error)
            pending.vanished += 1
            return EnvelopeResponse(LOST, None)
        except BaseException:
            line.connection.close()
            raise
        pending.vanished = 0
        if response.error == Error.CLUSTER_AUTHORIZATION_FAILED:
            line.connection.close()  # the daemon accepts nothing large on it any more
        else:
            self._keep(line)
        return response

    async def _exchange(self, line: _Line, pending: _PendingCall, secret: bytes) -> EnvelopeResponse:
        """Gives up when another daemon becomes the holder: a frozen one would never respond."""
        exchange = asyncio.ensure_future(line.exchange(pending.envelope, secret, pending.call_id, pending.attempt))
        try:
            while not exchange.done():
                if self._view.holder() != line.holder:
                    raise ConnectionAbortedError("it is not active any more")
                if (left_s := pending.wait_until_s - _now_s()) <= 0:
                    raise TimeoutError
                changed = asyncio.ensure_future(self._view.changed())
                try:
                    await asyncio.wait({exchange, changed}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
            return exchange.result()
        finally:
            exchange.cancel()

    def _warn(self, holder: Holder, error: Exception) -> None:
        why = reason(error) if isinstance(error, OSError) else str(error)
        where = f"{holder.host}:{holder.port}"
        self._quiet.warn(str(holder.id), "daemon", f"daemon {holder.id} at {where} does not respond to a call: {why}")

    def _kept(self, holder: Holder) -> _Line | None:
        """Returns an idle connection to the same incarnation of the same daemon; closes all others."""
        while self._idle:
            line = self._idle.pop()
            if line.holder == holder and not line.connection.closed:
                return line
            line.connection.close()
        return None

    def _keep(self, line: _Line) -> None:
        if len(self._idle) < IDLE_MAX:
            self._idle.append(line)
        else:
            line.connection.close()


class _PendingCall:
    """A call in progress, with the deadlines of its retries and of the wait for its response."""

    def __init__(self, envelope: Envelope, retry_until_s: float, wait_until_s: float) -> None:
        self.envelope = envelope
        self.call_id = secrets.token_bytes(CALL_ID_BYTES)
        self.attempt = 0
        self.vanished = 0
        self.retry_until_s = retry_until_s
        self.wait_until_s = wait_until_s
        self._holder: Holder | None = None
        self._pause_s = PAUSE_S

    @property
    def is_dangerous(self) -> bool:
        """Returns whether the call may be the reason why daemons vanished, and one more daemon could vanish."""
        small = len(self.envelope.request) <= REPEATED_BYTES_MAX
        return self.vanished >= (VANISHED_MAX if small else 1)

    def pause_s(self, holder: Holder) -> float:
        """Returns the wait before the next attempt at the same daemon."""
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX) if holder == self._holder else PAUSE_S
        self._holder = holder
        return self._pause_s


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _response_to(call: Call, response: EnvelopeResponse) -> Struct:
    """Returns the client's response; raises BadMessage where the daemon's one cannot be read."""
    if response.error == Error.NONE and response.data is not None:
        read = partial(response_codec(call.api, call.version).read, Reader(response.data))
        found: Struct = await run_off_loop(read, len(response.data))
        return found
    why = f"the daemon responded to the admin endpoint with {error_name(response.error)}: see its log"
    return refusal(call.body, response.error, why)
