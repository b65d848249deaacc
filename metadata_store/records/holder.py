"""Names the daemon that has a store, as it names itself to the others."""

from __future__ import annotations

import os
import socket

import msgspec


class Holder(msgspec.Struct, frozen=True):
    """A daemon. ``pid`` 0: an older one, which does not name itself. ``socket``: where its operators send requests."""

    host: str = ""
    pid: int = 0
    socket: str = ""

    def __str__(self) -> str:
        return f"the daemon on {self.host or 'a host that it does not name'} (pid {self.pid})"

    @property
    def command(self) -> str:
        """Returns the end of a sentence: the command that sends requests to it; empty where it names no socket."""
        if not self.socket:
            return ""
        return (
            f"; 'regent --server {self.socket}' on {'this machine' if self.is_here else self.host} sends requests to it"
        )

    @property
    def is_here(self) -> bool:
        """Checks whether it runs on this machine, or says so."""
        return self.host == socket.gethostname()


def this(http_socket: str = "") -> Holder:
    """Returns this process."""
    return Holder(socket.gethostname(), os.getpid(), http_socket)


def encode(holder: Holder) -> bytes:
    """Encodes a daemon."""
    return msgspec.json.encode(holder)


def decode(data: bytes | None) -> Holder:
    """Decodes a daemon; one without a name where the bytes are none."""
    try:
        return msgspec.json.decode(data or b"", type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Holder()
