"""When a server counts as frozen: a heartbeat is unanswered, and nothing else came, for a third of the session."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from metadata_store.kazoo_adapter.jute import Reply

SILENT_SESSIONS: Final = 1 / 3
"""Longest silence, in session timeouts: what is left of the lease then is enough for a few other servers."""
LOOKS: Final = 4
"""Looks during that time. After this process itself stood still, one look is late, and the others wait for answers."""


class Leaving(Protocol):
    """A connection that can be given up."""

    @property
    def heard(self) -> int:
        """Grows with each message of the server."""

    def leave(self, silent_s: float) -> bool:
        """Gives it up, if there is another server: what is under way fails then."""


async def answered_or_left(connection: Leaving, answer: asyncio.Future[Reply], session_s: float) -> Reply:
    """The answer to a heartbeat; raises NotConnected where the server was left."""
    heard, silent = connection.heard, 0
    try:
        while silent < LOOKS:
            await asyncio.wait({answer}, timeout=session_s * SILENT_SESSIONS / LOOKS)
            if answer.done():
                return answer.result()
            silent, heard = (silent + 1 if connection.heard == heard else 0), connection.heard
        connection.leave(session_s * SILENT_SESSIONS)
        return await answer
    finally:
        answer.cancel()
