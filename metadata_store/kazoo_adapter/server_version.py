"""Queries a ZooKeeper server by four-letter commands: its release (``srvr``), its limits (``conf``).

MultiRead exists since 3.6. An older server ends the session of a client that sends an operation it does not know, so
its release is read first. ``srvr`` is the one four-letter command that is on by default.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Final

from msgspec import Struct

ASK_S_MAX: Final = 2.0
CONF_LINES_MAX: Final = 64
CONF: Final = frozenset({"tickTime", "syncLimit", "minSessionTimeout", "maxSessionTimeout"})


class Limits(Struct, frozen=True):
    """Times of a server in ms. ``follower_wait_ms``: until it gives up a leader; None for a single server."""

    tick_ms: int
    follower_wait_ms: int | None
    session_ms_min: int
    session_ms_max: int

    def granted(self, session_ms: int) -> int:
        """Returns the session timeout that a client gets for a request of ``session_ms``."""
        return min(max(session_ms, self.session_ms_min), self.session_ms_max)


async def server_version(host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[int, int] | None:
    """Returns the release as (major, minor), or None where the server does not report it."""
    try:
        async with asyncio.timeout(ASK_S_MAX):
            return parse_version(await _query(host, port, tls, b"srvr", 1))
    except (OSError, TimeoutError):
        return None


async def server_limits(host: str, port: int, tls: ssl.SSLContext | None = None) -> Limits | None:
    """Returns a server's limits, or None where it does not report them: ``conf`` is off by default."""
    try:
        async with asyncio.timeout(ASK_S_MAX):
            return parse_limits(await _query(host, port, tls, b"conf", CONF_LINES_MAX))
    except (OSError, TimeoutError):
        return None


def parse_limits(answer: bytes) -> Limits | None:
    """Parses a response to ``conf``; a single server has no ``syncLimit``."""
    lines = (line.partition("=") for line in answer.decode(errors="replace").splitlines())
    found = {name: int(value) for name, _, value in lines if name in CONF and value.isdecimal()}
    if not found.keys() >= CONF - {"syncLimit"}:
        return None
    tick_ms, ticks = found["tickTime"], found.get("syncLimit")
    wait_ms = None if ticks is None else tick_ms * ticks
    return Limits(tick_ms, wait_ms, found["minSessionTimeout"], found["maxSessionTimeout"])


def parse_version(answer: bytes) -> tuple[int, int] | None:
    """Parses the release in a response to ``srvr``."""
    found = re.search(rb"[Vv]ersion: (\d+)\.(\d+)", answer)
    return (int(found[1]), int(found[2])) if found else None


async def _query(host: str, port: int, tls: ssl.SSLContext | None, command: bytes, lines: int) -> bytes:
    """Returns the first ``lines`` of a response, or all of a shorter one; raises OSError."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write(command)
        return b"".join([await reader.readline() for _ in range(lines)])
    except ValueError as error:  # a line without an end
        raise OSError(f"{host}:{port} is not a ZooKeeper server: it responds with no lines of text") from error
    finally:
        writer.close()
