"""Leaves a frozen server: a heartbeat has no reply, and nothing else came, for a third of the session."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from metadata_store.kazoo_adapter.jute import Reply

SILENT_SESSIONS: Final = 1 / 3
"""Longest silence, in session timeouts: the rest of the lease is enough for a few other servers."""
LOOKS: Final = 4
"""Looks during that time. After this process itself stood still, one look is late, and the others wait for replies."""


class Leaving(Protocol):
    """A connection that can be given up."""

    @property
    def received(self) -> int:
        """Grows with each message of the server."""

    def leave(self, silent_s: float) -> bool:
        """Closes the connection, if there is another server: requests under way fail then."""


async def answered_or_left(connection: Leaving, answer: asyncio.Future[Reply], session_s: float) -> Reply:
    """Returns the reply to a heartbeat; raises NotConnected where the server was left."""
    received, silent = connection.received, 0
    try:
        while silent < LOOKS:
            await asyncio.wait({answer}, timeout=session_s * SILENT_SESSIONS / LOOKS)
            if answer.done():
                return answer.result()
            silent, received = (silent + 1 if connection.received == received else 0), connection.received
        connection.leave(session_s * SILENT_SESSIONS)
        return await answer
    finally:
        answer.cancel()
