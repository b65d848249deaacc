"""Accepts the connections of a listener: counts them at once, and bounds the number of TLS handshakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol

from brokers.listener.connection_slots import ConnectionSlot, ConnectionSlots
from brokers.listener.handshakes import Handshakes
from brokers.security.access import party

log = logging.getLogger("regent.listener")

BACKLOG: Final = 4_096
"""Connections that may wait for their accept: the system drops further ones, whose peers retry after seconds."""
AGAIN_S: Final = 0.2
"""Pause after a failed accept, for instance without free file descriptors."""


class ServerTls(Protocol):
    """The listener's side of :class:`brokers.security.tls.Tls`."""

    def server(self) -> ssl.SSLContext:
        """Returns the listener's context."""


class Entrance:
    """Accepts connections: ``new`` makes the protocol of one with a slot, ``full`` gets the address of one without.

    ``timeout_ms`` bounds a handshake, its wait for a turn included.
    """

    def __init__(
        self,
        slots: ConnectionSlots,
        new: Callable[[ConnectionSlot], asyncio.Protocol],
        full: Callable[[str], None],
        *,
        tls: ServerTls | None = None,
        timeout_ms: int = 10_000,
    ) -> None:
        self._slots = slots
        self._new = new
        self._full = full
        self._tls = tls
        self._timeout_s = timeout_ms / 1000
        self._handshakes = Handshakes()
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """Binds, and accepts connections from then on; raises OSError."""
        found = _numeric(host, port) or await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        bound: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                bound.append(_listening(family, address))
        except OSError:
            for listening in bound:
                listening.close()
            raise
        for listening in bound:
            self.admit(listening)

    def admit(self, listening: socket.socket) -> None:
        """Accepts at a listening, non-blocking socket, which the entrance closes at its end."""
        self._sockets.append(listening)
        self._start(self._accept_all(listening))

    @property
    def port(self) -> int | None:
        """Returns the bound port, None where the entrance is closed."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else None

    async def close(self) -> None:
        """Accepts no more connections, and ends the handshakes in progress."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._handshakes.close()
        while self._sockets:
            self._sockets.pop().close()

    def _start(
        self, work: Coroutine[object, object, None], cancelled: Callable[[], object] | None = None
    ) -> Callable[[], object]:
        """Starts a task and returns the function that cancels it; that calls ``cancelled``, even before it began."""

        def over(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled() and cancelled is not None:
                cancelled()

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(over)
        return task.cancel

    async def _accept_all(self, listening: socket.socket) -> None:
        """Accepts one connection per turn of the loop. No failure ends it: the port would stay open without accepts."""
        while True:
            try:
                await self._accept_one(listening)
            except OSError as error:
                log.warning("the listener cannot accept connections for the moment: %s", error.strerror or error)
                await asyncio.sleep(AGAIN_S)
            except Exception:
                log.exception("a connection could not be accepted; the next one is accepted in %g s", AGAIN_S)
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(0)

    async def _accept_one(self, listening: socket.socket) -> None:
        connection, address = await asyncio.get_running_loop().sock_accept(listening)
        try:
            self._arrived(connection, str(address[0]))
        except BaseException:
            connection.close()
            raise

    def _arrived(self, connection: socket.socket, address: str) -> None:
        slot = self._slots.enter(party(address), _nothing)
        if slot is None:
            connection.close()
            self._full(address)
            return
        slot.give_way = self._start(self._connect(connection, slot), partial(self._ended, connection, slot))

    async def _connect(self, connection: socket.socket, slot: ConnectionSlot) -> None:
        try:
            if self._tls is None:
                await self._connected(connection, slot)
                return
            turn = self._handshakes.turn(slot.address, known=self._slots.knows(slot.address))
            async with asyncio.timeout(self._timeout_s), turn:
                await self._connected(connection, slot, self._tls.server(), self._timeout_s)
        except OSError:  # a failed or slow handshake
            self._ended(connection, slot)
        except Exception:
            self._ended(connection, slot)
            raise

    async def _connected(
        self,
        connection: socket.socket,
        slot: ConnectionSlot,
        tls: ssl.SSLContext | None = None,
        timeout_s: float | None = None,
    ) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._new(slot), connection, ssl=tls, ssl_handshake_timeout=timeout_s
        )

    @staticmethod
    def _ended(connection: socket.socket, slot: ConnectionSlot) -> None:
        connection.close()
        slot.leave()


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _nothing() -> None:
    pass


def _numeric(host: str, port: int) -> list[tuple[Any, ...]]:
    """Resolves a numeric address at once, without a thread; returns nothing for a name."""
    try:
        flags = socket.AI_PASSIVE | socket.AI_NUMERICHOST
        return list(socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags))
    except socket.gaierror:
        return []
