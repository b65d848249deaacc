"""Runs uvicorn inside the daemon's event loop: without signal handlers, and with a bounded stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import uvicorn
from fastapi import FastAPI

from configs.http_section import HttpSettings
from controller.http.peers import PeerProtocol
from controller.http.unix_socket import listening

log = logging.getLogger("regent.http")

REQUESTS_MAX: Final = 64
"""Concurrent requests; further ones get 503."""

KEEP_ALIVE_S: Final = 5
STOP_EXTRA_S: Final = 1.0


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to the daemon."""
        yield


@asynccontextmanager
async def serving(app: FastAPI, settings: HttpSettings) -> AsyncIterator[asyncio.Event]:
    """Serves ``app`` on ``http.socket`` inside the block; the event is set when the server ends, for any reason.

    Raises ``SocketTaken`` if another daemon has the socket.
    """
    stop_s = settings.stop_timeout_ms / 1e3
    with listening(settings.socket) as listener:
        server = _Server(_config(app, stop_s))
        task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
        ended = asyncio.Event()
        task.add_done_callback(lambda _: ended.set())
        log.info("operators reach this daemon at %s", settings.socket)
        try:
            yield ended
        finally:
            server.should_exit = True
            # Shielded: responses under way get their bounded time, also when the daemon is cancelled.
            with anyio.move_on_after(stop_s + STOP_EXTRA_S, shield=True):
                await asyncio.wait({task})
            task.cancel()


def _config(app: FastAPI, stop_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the peer's identity is the kernel's, not a header's
        server_header=False,
        limit_concurrency=REQUESTS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(stop_s),
    )
