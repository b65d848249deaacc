"""Exchanges frames with the active daemon: tries the daemons of a list in turn, sends one request at a time."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from regent_agent.codec import FRAME_BYTES_MAX, LENGTH, BadFrame, decode_response, encode
from regent_agent.protocol import (
    NOT_ACTIVE,
    RESTORED,
    UNAUTHENTICATED,
    VERSION,
    Accepted,
    Hello,
    Left,
    Open,
    Operation,
    Refused,
    Request,
    Response,
    Welcome,
)

Address: TypeAlias = tuple[str, int]
R = TypeVar("R", bound=Response)

CONNECT_MS_MAX: Final = 3_000
"""Longest wait for one daemon to accept a connection and to welcome it."""
REQUEST_MS_MAX: Final = 5_000
"""Longest wait for the response to a request that the daemon does not hold."""
PAUSE_MS: Final = 50
PAUSE_MS_MAX: Final = 2_000
REFUSED_HINT: Final = (
    "no daemon listens there, or it serves its own machine alone: compare the address with the daemons' regions.host "
    "and regions.port, and without regions.secret_file they listen on 127.0.0.1"
)
UNWELCOME_HINT: Final = (
    "compare the port with the daemons' regions.port, and TLS on both sides with their security.protocol, and a daemon "
    "also ends connections beyond regions.connections_max and regions.connections_per_address_max"
)
SILENT_HINT: Final = "look whether a firewall is in between, and compare the address with the daemons' regions.port"
NOT_WELCOMED: Final = -1
"""Epoch of a connection whose Hello has no response yet."""


class Unreachable(Exception):
    """No response came from an active daemon; the text names the daemons and the causes."""


class Stale(Unreachable):
    """The daemon that responded has a lower epoch than another one that responded before."""


class RequestRefused(Exception):
    """The daemon refused a request. ``code``: a member of :data:`regent_agent.protocol.CODES`.

    ``above``: see :class:`regent_agent.protocol.Refused`.
    """

    def __init__(self, refused: Refused, daemon: str) -> None:
        super().__init__(f"{daemon} refused: {refused.text} ({refused.code})")
        self.code = refused.code
        self.above = refused.above


class Backoff:
    """Draws the pauses between attempts: each doubles the one before, up to a bound, and half of it is random."""

    def __init__(
        self, first_ms: int = PAUSE_MS, longest_ms: int = PAUSE_MS_MAX, jitter: Callable[[], float] = random.random
    ) -> None:
        self._first_ms, self._longest_ms, self._jitter = first_ms, longest_ms, jitter
        self._next_ms = first_ms

    def pause_s(self, longest_ms: int = PAUSE_MS_MAX) -> float:
        """Returns the next pause in seconds, of at most ``longest_ms``, too. ``jitter`` draws from 0 to 1."""
        pause_ms, self._next_ms = min(self._next_ms, longest_ms), min(self._next_ms * 2, self._longest_ms)
        return pause_ms * (0.5 + 0.5 * self._jitter()) / 1000

    def reset(self) -> None:
        """Begins with the first pause again, after a success."""
        self._next_ms = self._first_ms


class Daemons:
    """Knows the daemons, the one that served last, and the highest epoch in a response of any of them.

    All connections of a process share it, so that they find the active daemon together and none obeys a stale one.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        secret: str = "",
        proof: bytes = b"",
        tls: ssl.SSLContext | None = None,
        connect_ms_max: int = CONNECT_MS_MAX,
    ) -> None:
        if not addresses:
            raise ValueError("the list of daemons is empty: name at least one as (host, port)")
        self.addresses = tuple(addresses)
        self._hello = Hello(VERSION, secret, proof)
        self.tls = tls
        self.connect_ms_max = connect_ms_max
        self.epoch = 0
        self.token = 0
        """The highest token that this process was sent."""
        self._active = 0

    @property
    def hello(self) -> Hello:
        """Returns what begins a connection. A server, which has a proof, names what it has seen."""
        if not self._hello.proof:
            return self._hello
        return replace(self._hello, seen_epoch=self.epoch, seen_token=self.token)

    def sent(self, operations: Iterable[Operation]) -> None:
        """Notes the tokens of opens."""
        self.token = max([self.token, *(one.token for one in operations if isinstance(one, Open))])

    def in_turn(self) -> tuple[Address, ...]:
        """Returns all addresses, the one that served last first."""
        return self.addresses[self._active :] + self.addresses[: self._active]

    def served(self, address: Address) -> None:
        """Notes the daemon that welcomed a connection."""
        self._active = self.addresses.index(address)

    def leave(self, address: Address) -> None:
        """Prefers the next daemon, unless another connection has already left this one."""
        if self.addresses[self._active] == address:
            self._active = (self._active + 1) % len(self.addresses)


class Channel:
    """A connection to the active daemon, opened when a request needs it, and anew after each failure."""

    def __init__(self, daemons: Daemons) -> None:
        self._daemons = daemons
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._address: Address = daemons.addresses[0]
        self._epoch = NOT_WELCOMED

    async def open(self) -> None:
        """Connects to the first daemon that welcomes the connection; raises :class:`Unreachable` without one.

        A wrong secret raises :class:`RequestRefused`, and so does a store that is older than what was seen.
        """
        async with self._turn:
            await self._open()

    async def request(self, message: Request, expected: type[R], timeout_s: float) -> R:
        """Sends a request and returns the response; raises :class:`Unreachable` or :class:`RequestRefused`.

        A response that is late, malformed or of a stale daemon closes the connection.
        """
        async with self._turn:
            await self._open()
            try:
                response = await self._exchange(message, timeout_s)
            except Unreachable:
                self._daemons.leave(self._address)
                raise
            if isinstance(response, expected):
                return response
            if isinstance(response, Refused):
                raise self._refused(response)
            self.close()
            raise Unreachable(f"{self._peer} responded with {type(response).__name__} to {type(message).__name__}")

    def close(self) -> None:
        """Closes the connection at once. A request in progress raises :class:`Unreachable`."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    @property
    def _peer(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _refused(self, refused: Refused) -> RequestRefused:
        if refused.code in (NOT_ACTIVE, UNAUTHENTICATED):
            self.close()
            self._daemons.leave(self._address)
        return RequestRefused(refused, self._peer)

    async def _open(self) -> None:
        if self._streams is not None and self._epoch >= self._daemons.epoch:
            return
        self.close()
        errors = list[Exception]()
        for address in self._daemons.in_turn():
            try:
                await self._connect(address)
            except (Unreachable, RequestRefused) as error:
                errors.append(error)
            else:
                self._daemons.served(address)
                return
        for failed in errors:
            if isinstance(failed, RequestRefused) and failed.code in (RESTORED, UNAUTHENTICATED):
                raise failed
        raise Unreachable("; ".join(map(str, errors)))

    async def _connect(self, address: Address) -> None:
        self._address, self._epoch = address, NOT_WELCOMED
        timeout_s = self._daemons.connect_ms_max / 1000
        try:
            async with asyncio.timeout(timeout_s):
                self._streams = await asyncio.open_connection(*address, ssl=self._daemons.tls)
        except (OSError, TimeoutError) as error:  # errors of TLS are OSErrors, too
            raise Unreachable(f"{self._peer}: {_cause(error, timeout_s)} ({_hint(error)})") from error
        try:
            welcome = await self._exchange(self._daemons.hello, timeout_s)
        except Unreachable as error:
            if isinstance(error, Stale):
                raise
            raise Unreachable(f"{error} ({UNWELCOME_HINT})") from error
        if isinstance(welcome, Refused):
            self.close()
            raise RequestRefused(welcome, self._peer)
        if not isinstance(welcome, Welcome):
            self.close()
            raise Unreachable(f"{self._peer} responded with {type(welcome).__name__} to Hello ({UNWELCOME_HINT})")
        if not 1 <= welcome.version <= VERSION:
            self.close()
            raise Unreachable(f"{self._peer} speaks no version of the protocol up to {VERSION}")

    async def _exchange(self, message: Request, timeout_s: float) -> Response:
        assert self._streams is not None
        reader, writer = self._streams
        try:
            async with asyncio.timeout(timeout_s):
                writer.write(encode(message))
                await writer.drain()
                response = decode_response(await _frame(reader))
            self._check_epoch(response)
        except (OSError, EOFError, TimeoutError, BadFrame) as error:
            self.close()
            raise Unreachable(f"{self._peer}: {_cause(error, timeout_s)}") from error
        except BaseException:
            self.close()  # the response to a cancelled request would be taken for that to the next one
            raise
        return response

    def _check_epoch(self, response: Response) -> None:
        """Keeps the highest epoch; raises :class:`Unreachable` where a daemon with a higher one has responded before.

        Responses without an epoch have that of the last one on this connection.
        """
        if not isinstance(response, Accepted | Left | Refused):
            self._epoch = response.epoch
        elif self._epoch == NOT_WELCOMED:
            return
        if self._epoch < self._daemons.epoch:
            raise Stale(
                f"{self._peer} is a stale daemon: its epoch is {self._epoch}, another one had {self._daemons.epoch}"
                " (where the daemons' store was made anew, restart this process)"
            )
        self._daemons.epoch = self._epoch


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if not 0 < length <= FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {length} bytes, at most {FRAME_BYTES_MAX} are read")
    return await reader.readexactly(length)


def _cause(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {timeout_s:g} s"
    if isinstance(error, EOFError):
        return "the connection was closed"
    return str(error) or type(error).__name__


def _hint(error: Exception) -> str:
    """Returns the likely cause of a connection that was not made."""
    if isinstance(error, ConnectionRefusedError):
        return REFUSED_HINT
    if isinstance(error, ssl.SSLCertVerificationError):
        return "name the authority that signed the daemons' certificate, and the daemon by a name in it"
    return UNWELCOME_HINT if isinstance(error, ssl.SSLError | ConnectionResetError) else SILENT_HINT
