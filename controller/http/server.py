"""Serves on the daemon's unix socket inside its event loop: one live daemon per path, and a bounded stop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import math
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
import uvicorn
from fastapi import FastAPI

from configs.connections import HttpSettings
from controller.http.peers import PeerProtocol

log = logging.getLogger("regent.http")

REQUESTS_MAX: Final = 64
"""Concurrent requests; further ones get 503."""
KEEP_ALIVE_S: Final = 5
STOP_EXTRA_S: Final = 1.0
MODE: Final = 0o660
FOLDER_MODE: Final = 0o750
BACKLOG: Final = 64


class SocketTaken(Exception):
    """A path that cannot be listened on; the message names cause and remedy."""


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


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Yields a listening socket at ``path``, readable and writable for owner and group; removes it at the end.

    A lock file beside it distinguishes a live owner from a dead one, and stays. Raises :class:`SocketTaken`.
    """
    with _permitted(path):
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    with _owned(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _bind(listener, path)
        inode = path.stat().st_ino
        listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()


@contextmanager
def _permitted(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise SocketTaken(
            f"no permission to listen on {path}: {error.strerror} at {error.filename}. Remedy: give the folder to the "
            f"daemon's user, as systemd does (install -d -m 0750 -o regent -g regent {path.parent}), or change "
            "http.socket"
        ) from None


@contextmanager
def _owned(path: Path) -> Iterator[None]:
    with _permitted(path):
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SocketTaken(
                f"another daemon listens on {path}. Remedy: stop it, or give this one an http.socket of its own"
            ) from None
        yield
    finally:
        os.close(lock)


def _bind(listener: socket.socket, path: Path) -> None:
    """Binds beside the path, then renames: no process ever sees the socket with another mode."""
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise SocketTaken(f"{path} exists and is not a socket. Remedy: move it away, or change http.socket")
    fresh = path.with_name(f".{path.name}.{os.getpid()}")  # in another container a daemon may have the same pid
    fresh.unlink(missing_ok=True)
    listener.bind(str(fresh))
    fresh.chmod(MODE)
    fresh.rename(path)
