"""Declares where a server answers that does not answer by reports: in a znode of each region in transition.

The agent has no ZooKeeper client of its own. A service that uses this transport brings one, and implements
:class:`Answers` with it; ``regions.transport`` of the daemon is ``zookeeper`` then.
"""

from __future__ import annotations

from typing import Protocol

from regent_agent.protocol import Close, Open


class Answers(Protocol):
    """Moves the znode of a region. Each move is a compare-and-set on the version that was read.

    Versions begin anew where a znode is deleted and made again. So a write counts only where the znode was made by the
    transaction that was read (``czxid``), and an open ends on the znode that it has begun with.
    A call returns once its outcome is certain: after a lost response it reads the znode again. An exception means that
    it cannot become certain, as where the ZooKeeper session has ended: an open fails then, and a close is reported.
    """

    async def appears(self) -> None:
        """Makes the ephemeral znode of this process, ``/regent/regions/rs/NAME,INCARNATION``, unless it is there.

        The agent calls it beside each registration; a service calls it again for each new session. The daemon takes the
        term that finds none for a start, and the end of one for a sign that its process is dead.
        """

    async def begins(self, operation: Open | Close) -> bool:
        """Moves the znode to OPENING, or creates it as CLOSING; returns whether this server may go on."""

    async def opened(self, operation: Open, sequence: int) -> bool:
        """Moves the znode to OPENED; returns whether this server has the region. Without that it is closed again.

        The daemon deletes the znode soon. So an ephemeral mark is made in the same write, ``/regent/regions/opened``
        with ``/REGION,TOKEN``: where it is there after a lost response, the write was applied.
        """

    async def closed(self, operation: Close) -> bool:
        """Moves the znode to CLOSED; returns whether it says so. Without that the agent reports the close."""
