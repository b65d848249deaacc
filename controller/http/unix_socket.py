"""Opens the daemon's unix socket: one live daemon per path; the file of a dead one is replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MODE: Final = 0o660
FOLDER_MODE: Final = 0o750
BACKLOG: Final = 64


class SocketTaken(Exception):
    """A path that cannot be listened on; the message names cause and remedy."""


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
