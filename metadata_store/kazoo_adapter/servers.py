"""Orders the attempts at the servers of an ensemble, and limits how long each may take.

A session outlives its server only if another one is reached before it ends. So with several servers each attempt is
short, and the server that failed last is tried last. With one server there is no hurry.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

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
