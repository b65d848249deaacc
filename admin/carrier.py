"""Carries clients' calls to the active daemon, over its controller listener and under the shared secret.

A call has a connection of its own while it is answered; connections are used again. Where the daemon turns out not to
be in office, or the connection is lost, the call is tried again, with the same id, as soon as somebody else is known to
be, or after a pause: until its time is over.
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
from brokers.wire.beside import beside
from brokers.wire.envelope import (
    CALL_ID_BYTES,
    Answer,
    Envelope,
    Seal,
    encode_envelope,
    envelope_key,
    read_envelope_response,
)
from brokers.wire.errors import Error, error_name
from brokers.wire.frames import reason
from brokers.wire.messages import response_codec
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.refusals import refusal

CALLS_MAX: Final = 200
"""Calls that are carried at once; further ones wait for their turn."""
RELAYS_MAX: Final = 100
"""Calls of brokers that are passed on at once; further ones wait for their turn."""
IDLE_MAX: Final = 8
"""Connections that are kept for later calls."""
RETRY_S_MAX: Final = 30.0
"""Longest time within which a call is tried again: clients give a request up after about as long."""
WAIT_S_MAX: Final = 300.0
"""Longest wait for an answer, as in the daemon."""
GRACE_S: Final = 5.0
"""How much later than its time-out a call may be answered."""
RELAY_S_MAX: Final = 40.0
"""Longest wait for the answer to a broker's call: longer than a broker waits (30 s)."""
CONNECT_S_MAX: Final = 5.0
PAUSE_S: Final = 0.1
"""Between the first two tries to the same daemon; each further pause is twice as long."""
PAUSE_S_MAX: Final = 2.0
VANISHED_MAX: Final = 2
"""Daemons that vanished one after the other while they had the same call: it may be what ends them."""
REPEATED_BYTES_MAX: Final = 1_048_576
"""A larger call is not sent again once a daemon has vanished with it."""
VANISHED: Final = (
    "the active daemon vanished while it had this call, so it is not sent to the next one: whether it was carried "
    "out is unknown; see the daemon's log"
)
NOT_BEGUN: Final = Error.NOT_CONTROLLER
"""A daemon that is not in office: the call was not begun."""
LOST: Final = Error.STALE_CONTROLLER_EPOCH
"""A daemon that lost the role, or its connection, while the call waited: it may have been carried out."""
UNSEALED: Final = (Error.NOT_CONTROLLER, Error.CLUSTER_AUTHORIZATION_FAILED)
"""Answers to calls that were not opened: of a daemon without the role, or with another secret."""
NO_TIMEOUT_MS: Final = 30_000
"""For the APIs whose requests have no time-out."""


class View(Protocol):
    """Who is in office."""

    def node(self) -> Node | None:
        """See :class:`admin.ports.Controller`."""

    def holder(self) -> Holder | None:
        """The daemon that holds the role and where its controller listener is; None while no daemon holds it."""

    def vacant(self) -> bool:
        """Whether nobody holds the role: then somebody soon will."""

    async def changed(self) -> None:
        """Waits until the role was read anew."""


class _Line:
    """A connection to a daemon that knows a challenge of it."""

    def __init__(self, connection: Connection, holder: Holder, challenge: bytes) -> None:
        self.connection = connection
        self.holder = holder
        self._challenge = challenge
        self._number = 0

    @classmethod
    async def open(cls, transport: Transport, holder: Holder) -> _Line:
        """Raises OSError and Malformed."""
        async with asyncio.timeout(CONNECT_S_MAX):
            connection = await transport.connect(holder.host, holder.port, lambda: None)
            try:
                answer = read_envelope_response(await connection.exchange([encode_envelope(0, Envelope(b""))]), 0)
            except BaseException:
                connection.close()
                raise
        return cls(connection, holder, answer.data or b"")

    async def ask(self, envelope: Envelope, secret: bytes, call_id: bytes, attempt: int) -> Answer:
        """One sealed envelope and its answer; raises OSError and Malformed."""
        self._number += 1
        key = envelope_key(secret, self.holder.cluster_id, self.holder.id)
        write = partial(_sealed, envelope, key, self._challenge, call_id, attempt, self._number)
        seal, asked = await beside(write, len(envelope.request))
        frame = await self.connection.exchange([asked])
        return await beside(partial(_opened, frame, self._number, key, self._challenge, seal), len(frame))


def _sealed(
    envelope: Envelope, key: bytes, challenge: bytes, call_id: bytes, attempt: int, number: int
) -> tuple[Seal, bytes]:
    """A seal and the framed request with it."""
    sealed = envelope.sealed(key, challenge, call_id, attempt, number)
    assert sealed.seal is not None
    return sealed.seal, encode_envelope(number, sealed)


def _opened(frame: bytes, number: int, key: bytes, challenge: bytes, asked: Seal) -> Answer:
    """The daemon's answer; raises :class:`Malformed`."""
    answer = read_envelope_response(frame, number)
    if answer.error not in UNSEALED and not answer.genuine(key, challenge, asked):
        raise Malformed("its answer is not sealed with this endpoint's secret: somebody else may have answered")
    return answer


class Carrier:
    """Implements :class:`admin.ports.Controller`. Without a ``secret`` nothing is carried."""

    def __init__(self, view: View, secret: bytes | None, transport: Transport | None = None) -> None:
        self._view = view
        self._secret = secret
        self._transport = transport or TcpTransport()
        self._idle: deque[_Line] = deque()
        self._turns = asyncio.Semaphore(CALLS_MAX)
        self._relays = asyncio.Semaphore(RELAYS_MAX)
        self._quiet = RateLimitedLog()

    def node(self) -> Node | None:
        """See :class:`admin.ports.Controller`."""
        return self._view.node()

    def close(self) -> None:
        """Ends the connections that nobody uses."""
        while self._idle:
            self._idle.pop().connection.close()

    async def carry(self, call: Call) -> Struct:
        """See :class:`admin.ports.Controller`."""
        timeout_s = max(getattr(call.body, "timeout_ms", NO_TIMEOUT_MS), 0) / 1000
        envelope = Envelope(call.frame, call.principal, call.client_host)
        until_s = _now_s() + min(timeout_s, RETRY_S_MAX)
        trying = _Trying(envelope, until_s, _now_s() + min(timeout_s, WAIT_S_MAX) + GRACE_S)
        async with self._turns:
            while True:
                holder = self._view.holder()
                if self._secret is None or (holder is None and not self._view.vacant()):
                    raise NotController
                if holder is not None:
                    answer = await self._try(holder, trying, self._secret)
                    if answer.error not in (NOT_BEGUN, LOST):
                        return await _answer_to(call, answer)
                    if trying.is_dangerous:
                        return refusal(call.body, Error.UNKNOWN_SERVER_ERROR, VANISHED)
                    trying.attempt += answer.error == LOST
                await self._until_again(holder, trying)

    async def relay(self, frame: bytes, principal: str, client_host: str) -> bytes:
        """See :class:`admin.ports.Controller`. Brokers ask again by themselves, and look for the controller first."""
        holder, now_s = self._view.holder(), _now_s()
        if holder is None or self._secret is None:
            raise NotController
        trying = _Trying(Envelope(frame, principal, client_host), now_s, now_s + RELAY_S_MAX)
        async with self._relays:
            answer = await self._try(holder, trying, self._secret)
        if answer.error != Error.NONE or answer.data is None:
            raise NotController
        return answer.data

    async def _until_again(self, holder: Holder | None, trying: _Trying) -> None:
        """Until the role was read anew or, while somebody is in office, for a little; NotController at the deadline."""
        if (left_s := trying.again_until_s - _now_s()) <= 0:
            raise NotController
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s if holder is None else min(left_s, trying.pause_s(holder))):
                await self._view.changed()

    async def _try(self, holder: Holder, trying: _Trying, secret: bytes) -> Answer:
        """The daemon's answer; NOT_BEGUN where it is not in office or cannot be reached, LOST if it may have begun."""
        try:
            line = self._kept(holder) or await _Line.open(self._transport, holder)
        except (OSError, Malformed) as error:
            self._say(holder, error)
            return Answer(NOT_BEGUN, None)
        try:
            answer = await self._asked(line, trying, secret)
        except (OSError, Malformed) as error:
            line.connection.close()
            self._say(holder, error)
            trying.vanished += 1
            return Answer(LOST, None)
        except BaseException:
            line.connection.close()
            raise
        trying.vanished = 0
        if answer.error == Error.CLUSTER_AUTHORIZATION_FAILED:
            line.connection.close()  # nothing large is taken from there any more
        else:
            self._keep(line)
        return answer

    async def _asked(self, line: _Line, trying: _Trying, secret: bytes) -> Answer:
        """Given up when somebody else comes into office: a frozen daemon would never answer."""
        asking = asyncio.ensure_future(line.ask(trying.envelope, secret, trying.call_id, trying.attempt))
        try:
            while not asking.done():
                if self._view.holder() != line.holder:
                    raise ConnectionAbortedError("it is not in office any more")
                if (left_s := trying.wait_until_s - _now_s()) <= 0:
                    raise TimeoutError
                changed = asyncio.ensure_future(self._view.changed())
                try:
                    await asyncio.wait({asking, changed}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
            return asking.result()
        finally:
            asking.cancel()

    def _say(self, holder: Holder, error: Exception) -> None:
        why = reason(error) if isinstance(error, OSError) else str(error)
        where = f"{holder.host}:{holder.port}"
        self._quiet.warn(str(holder.id), "daemon", f"daemon {holder.id} at {where} does not answer a call: {why}")

    def _kept(self, holder: Holder) -> _Line | None:
        """An idle connection to the same life of the same daemon; others are closed."""
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


class _Trying:
    """A call and how far it is: until when it is tried again, and until when its answer is waited for."""

    def __init__(self, envelope: Envelope, again_until_s: float, wait_until_s: float) -> None:
        self.envelope = envelope
        self.call_id = secrets.token_bytes(CALL_ID_BYTES)
        self.attempt = 0
        self.vanished = 0
        self.again_until_s = again_until_s
        self.wait_until_s = wait_until_s
        self._holder: Holder | None = None
        self._pause_s = PAUSE_S

    @property
    def is_dangerous(self) -> bool:
        """Whether one more daemon could vanish for it."""
        small = len(self.envelope.request) <= REPEATED_BYTES_MAX
        return self.vanished >= (VANISHED_MAX if small else 1)

    def pause_s(self, holder: Holder) -> float:
        """The wait before the same daemon is tried again."""
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX) if holder == self._holder else PAUSE_S
        self._holder = holder
        return self._pause_s


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _answer_to(call: Call, answer: Answer) -> Struct:
    """What the client gets; raises Malformed where the daemon's answer cannot be read."""
    if answer.error == Error.NONE and answer.data is not None:
        read = partial(response_codec(call.api, call.version).read, Reader(answer.data))
        found: Struct = await beside(read, len(answer.data))
        return found
    why = f"the daemon answered the admin endpoint with {error_name(answer.error)}: see its log"
    return refusal(call.body, answer.error, why)
