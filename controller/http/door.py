"""The door of the TCP surface: counts connections when they arrive, before any handshake, and bounds them."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

log = logging.getLogger("regent.http")

CONNECTIONS_MAX: Final = 32
"""Most connections at a time, those in their TLS handshake included; further ones are closed at once."""
PER_ADDRESS_MAX: Final = 16
HANDSHAKE_S_MAX: Final = 5.0
REFUSED_PAUSE_S: Final = 0.5
"""Pause after the system refused a connection, as when the process has no file descriptor left."""

OnLost = Callable[[], None]


class Door:
    """Lets connections of ``listener`` in. ``protocol`` makes the protocol of one, which calls ``OnLost`` at its end.

    ``context`` gives the TLS context, or None where there is no TLS.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[OnLost], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._context = context
        self._inside: Counter[str] = Counter()
        self._handshakes: set[asyncio.Task[None]] = set()

    async def keep(self) -> None:
        """Accepts for ever."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._listener)
                except OSError as error:
                    log.warning("a connection to http.address could not be accepted: %s", error.strerror or error)
                    await asyncio.sleep(REFUSED_PAUSE_S)
                else:
                    self._meet(connection, str(address[0]))
        finally:
            for task in self._handshakes:
                task.cancel()

    def _meet(self, connection: socket.socket, host: str) -> None:
        if self._inside.total() >= CONNECTIONS_MAX or self._inside[host] >= PER_ADDRESS_MAX:
            connection.close()
            return
        self._inside[host] += 1
        task = asyncio.create_task(self._let_in(connection, host))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _let_in(self, connection: socket.socket, host: str) -> None:
        """The handshake. From its end on the protocol says when the connection is over."""
        context, held = self._context(), [host]

        def leave() -> None:
            """Once, whoever notices the end first."""
            if held:
                self._left(held.pop())

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(leave),
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S_MAX if context is not None else None,
            )
        except (OSError, asyncio.CancelledError):
            connection.close()
            leave()

    def _left(self, host: str) -> None:
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]
