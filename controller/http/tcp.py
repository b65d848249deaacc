"""Serves HTTP over TCP in a thread with a loop of its own: its clients never share the loop that watches the lease."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import uvicorn
import uvloop
from starlette.types import ASGIApp

from brokers.listener.connection_slots import ConnectionSlot, ConnectionSlots
from brokers.listener.entrance import Entrance
from brokers.rate_limited_log import RateLimitedLog
from brokers.security.tls import Tls
from configs.connections import HttpSettings
from configs.values import Address, parse_address
from controller.http.peers import RemoteProtocol
from controller.http.remote import BearerToken, Remote

log = logging.getLogger("regent.http")

CONNECTIONS_MAX: Final = 32
"""Most connections at a time, those in their TLS handshake included. Where all slots are in use, a connection
without an authenticated request gives way."""
PER_ADDRESS_MAX: Final = 16
BACKLOG: Final = 128
HANDSHAKE_MS_MAX: Final = 5_000
KEEP_ALIVE_S: Final = 5
HEADER_BYTES_MAX: Final = 16_384
STOP_S_MAX: Final = 3.0


class AddressUnusable(OSError):
    """An ``http.address`` that cannot be listened on; the text names cause and remedy."""


@asynccontextmanager
async def serving_remotely(app: ASGIApp, settings: HttpSettings) -> AsyncIterator[Address | None]:
    """Serves ``app`` for reading at ``http.address`` inside the block; yields the address, None without one.

    Raises ``OSError`` where the address, a certificate or the token cannot be used.
    """
    if not settings.address:
        yield None
        return
    tls, token = credentials_of(settings, os.geteuid())
    open_to_all = not (settings.token_file or settings.client_ca_file)
    remote = Remote(app, asyncio.get_running_loop(), token, open_to_all=open_to_all)
    with _listener(parse_address(settings.address)) as listener:
        bound = Address(*listener.getsockname()[:2])
        surface = _Surface(remote, tls, listener)
        surface.start()
        log.info("metrics and probes are served at %s:%d, %s", *bound, "with TLS" if tls else "without TLS")
        try:
            yield bound
        finally:
            surface.stop()
            await asyncio.to_thread(surface.join, STOP_S_MAX)


class _Surface(threading.Thread):
    """The thread of the TCP surface. The process does not wait for one that does not end in time."""

    def __init__(self, remote: Remote, tls: Tls | None, listener: socket.socket) -> None:
        super().__init__(name="http-tcp", daemon=True)
        self._remote = remote
        self._tls = tls
        self._listener = listener
        self._loop = uvloop.new_event_loop()
        self._ended = asyncio.Event()
        self._quiet = RateLimitedLog()

    def run(self) -> None:
        """Serves until stopped."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception:
            log.exception("metrics and probes are no longer served at http.address: restart the daemon")

    def stop(self) -> None:
        """Stops the thread; runs on the daemon's thread."""
        with suppress(RuntimeError):  # it has ended by itself and logged the reason
            self._loop.call_soon_threadsafe(self._ended.set)

    async def _serve(self) -> None:
        config = _config(self._remote)
        server = uvicorn.Server(config)

        def protocol(slot: ConnectionSlot) -> asyncio.Protocol:
            return RemoteProtocol(config, server.server_state, slot)

        slots = ConnectionSlots(CONNECTIONS_MAX, PER_ADDRESS_MAX, CONNECTIONS_MAX * HEADER_BYTES_MAX)
        entrance = Entrance(slots, protocol, self._full, tls=self._tls, timeout_ms=HANDSHAKE_MS_MAX)
        entrance.admit(self._listener)
        serving = asyncio.create_task(server.serve(sockets=[]))
        try:
            stopped = asyncio.create_task(self._ended.wait())
            ended, _ = await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            await entrance.close()
            server.should_exit = True
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            await asyncio.wait({serving}, timeout=STOP_S_MAX / 2)
            serving.cancel()

    def _full(self, peer: str) -> None:
        self._quiet.warn(
            "",
            "connections",
            f"a connection to http.address from {peer} is refused: of {CONNECTIONS_MAX} in all, or {PER_ADDRESS_MAX} "
            "of one address, none is free, because authorized clients hold them: find them, and lower their rate",
        )


def _config(app: ASGIApp) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=RemoteProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=None,  # the entrance counts connections, and a request ends with its own
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
    )
    config.load()
    return config


def credentials_of(settings: HttpSettings, user: int | None) -> tuple[Tls | None, BearerToken | None]:
    """Reads the files that the settings name; raises ``OSError`` with the reason where one cannot be used.

    ``user`` is the daemon's, None where it is unknown.
    """
    token = BearerToken(settings.token_file, user) if settings.token_file else None
    if settings.certificate_file is None:
        return None, token
    clients = ssl.CERT_OPTIONAL if settings.client_ca_file else ssl.CERT_NONE
    return Tls(settings.certificate_file, settings.key_file, settings.client_ca_file, clients=clients), token


def _listener(address: Address) -> socket.socket:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise AddressUnusable(
            f"http.address {address.host}:{address.port} cannot be listened on ({error.strerror or error}). Remedy: "
            "stop the process that has it, or give another http.address"
        ) from error
    listener.setblocking(False)
    return listener
