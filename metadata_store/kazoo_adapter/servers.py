"""Orders the attempts at the servers of an ensemble, and queries a server's release and limits (``srvr``, ``conf``).

A session outlives its server only if another one is reached before it ends. So with several servers each attempt is
short, and the server that failed last is tried last. With one server there is no hurry.

MultiRead exists since 3.6. An older server ends the session of a client that sends an operation it does not know, so
its release is read first. ``srvr`` is the one four-letter command that is on by default.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

ATTEMPT_SESSIONS_MAX: Final = 0.3
"""Longest attempt at a server, in session timeouts; but :data:`ATTEMPT_S` at least."""
ATTEMPT_S: Final = 2.0
QUICK_SESSIONS: Final = 1 / 12
"""Attempts of the first round where there are several servers; but :data:`QUICK_S` at least. Each round doubles it."""
QUICK_S: Final = 0.5
ROUNDS_MAX: Final = 10
"""Rounds that are counted: long before, an attempt takes as long as it may."""

Address = tuple[str, str, int]
"""Name, IP address and port."""


class Servers:
    """Order and time limits of attempts. ``clock``: seconds. Used on kazoo's thread; ``several`` on any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed_s: dict[tuple[str, int], float] = {}
        self._rounds = 0
        self._count = 1

    @property
    def several(self) -> bool:
        """Checks whether there is another server than the present one."""
        return self._count > 1

    def round(self, addresses: list[Address]) -> list[Address]:
        """Returns a round over all servers, those that failed lately at the end; the others keep their order."""
        self._rounds = min(self._rounds + 1, ROUNDS_MAX)
        self._count = max(1, len(addresses))
        self._failed_s = {at[1:]: self._failed_s[at[1:]] for at in addresses if at[1:] in self._failed_s}
        return sorted(addresses, key=lambda at: self._failed_s.get(at[1:], 0.0))

    def failed(self, ip: str, port: int) -> None:
        """Notes that an attempt at a server, or the connection to it, has ended."""
        self._failed_s[ip, port] = self._clock()

    def connected(self) -> None:
        """Notes that a server has completed the handshake."""
        self._rounds = 0

    def attempt_s(self, session_s: float) -> float:
        """Returns how long a server may take for the connection, and again for the handshake."""
        longest_s = max(ATTEMPT_S, session_s * ATTEMPT_SESSIONS_MAX)
        if not self.several:
            return longest_s
        quick_s: float = max(QUICK_S, session_s * QUICK_SESSIONS) * 2 ** max(0, self._rounds - 1)
        return min(longest_s, quick_s)


ASK_S_MAX: Final = 2.0
CONF_LINES_MAX: Final = 64
CONF: Final = frozenset({"tickTime", "syncLimit", "minSessionTimeout", "maxSessionTimeout"})


class ServerLimits(Struct, frozen=True):
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


async def server_limits(host: str, port: int, tls: ssl.SSLContext | None = None) -> ServerLimits | None:
    """Returns a server's limits, or None where it does not report them: ``conf`` is off by default."""
    try:
        async with asyncio.timeout(ASK_S_MAX):
            return parse_limits(await _query(host, port, tls, b"conf", CONF_LINES_MAX))
    except (OSError, TimeoutError):
        return None


def parse_limits(answer: bytes) -> ServerLimits | None:
    """Parses a response to ``conf``; a single server has no ``syncLimit``."""
    lines = (line.partition("=") for line in answer.decode(errors="replace").splitlines())
    found = {name: int(value) for name, _, value in lines if name in CONF and value.isdecimal()}
    if not found.keys() >= CONF - {"syncLimit"}:
        return None
    tick_ms, ticks = found["tickTime"], found.get("syncLimit")
    wait_ms = None if ticks is None else tick_ms * ticks
    return ServerLimits(tick_ms, wait_ms, found["minSessionTimeout"], found["maxSessionTimeout"])


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
