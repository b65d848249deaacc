"""Measures a ZooKeeper outage: without answered heartbeats, which begins earlier, and without a connection."""

from __future__ import annotations

import asyncio

from controller.role.lease import Lease


class Outage:
    """Measures one outage at a time, from the first :meth:`begin` to :meth:`end`."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._silent_s = 0.0

    def begin(self, lease: Lease | None) -> None:
        """Notes the loss of the connection and the seconds for which no heartbeat was answered before it."""
        if self._since_s is None:
            self._since_s = asyncio.get_running_loop().time()
            self._silent_s = max(0.0, lease.silent_s()) if lease is not None else 0.0

    def end(self) -> str | None:
        """Returns the length for a log line, and begins anew; None where no outage was under way."""
        if self._since_s is None:
            return None
        away_s, self._since_s = asyncio.get_running_loop().time() - self._since_s, None
        return f"{self._silent_s + away_s:.1f} s without an answered heartbeat, {away_s:.1f} s without a connection"
