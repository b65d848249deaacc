"""Remembers the servers at which operators have given opens up: the next open of the region goes to another one."""

from __future__ import annotations

from typing import Final

AVOIDED_MS: Final = 600_000
"""Time for which a region is not sent to such a server, unless an operator names it, or no other one is there."""
AVOIDED_MAX: Final = 10_000
"""Regions that are remembered: the oldest ones are forgotten first."""


class GivenUp:
    """Holds names of servers by region. Times are the loop's. A failover forgets them."""

    def __init__(self) -> None:
        self._servers: dict[int, tuple[str, int]] = {}
        """In the order of the times."""

    def noted(self, region: int, server: str, now_ms: int) -> None:
        """Notes that an operator has given up the open of a region at a server."""
        self._servers.pop(region, None)
        self._servers[region] = server, now_ms + AVOIDED_MS
        if len(self._servers) > AVOIDED_MAX:
            del self._servers[next(iter(self._servers))]

    def opened(self, region: int) -> None:
        """Forgets a region that a server has opened since."""
        self._servers.pop(region, None)

    def of(self, region: int, now_ms: int) -> str:
        """Returns the name of the server that a region is not sent to; empty without one."""
        server, until_ms = self._servers.get(region, ("", 0))
        return server if now_ms < until_ms else ""

    def __bool__(self) -> bool:
        return bool(self._servers)
