"""Follows the ephemeral znodes of servers, one of each process that lives.

A process whose znode ends counts as crashed after half a lease without a poll, while another process polls. A process
that polls counts as alive, also after its session has ended. For one without a znode the end of its lease alone counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from controller.regions.dispatcher import Key
from metadata_store.catalog.unassigned import server_of, servers_of
from metadata_store.port import ZooKeeper

NO_ONE: Final[frozenset[Key]] = frozenset()
PORTION: Final = 1_000
"""Names that one turn of the loop reads."""


class Presence:
    """The processes that have a znode below ``root``.

    ``gone``: takes one whose znode has ended, ``back``: one that has made a znode; they must not wait.
    """

    def __init__(self, zk: ZooKeeper, root: str) -> None:
        self._zk = zk
        self.folder = servers_of(root)
        self.present = NO_ONE
        self.is_due = True
        """Whether the znodes are to be listed: their watch has fired, or a connection has dropped it."""
        self.gone: Callable[[Key], None] = lambda key: None
        self.back: Callable[[Key], None] = lambda key: None

    async def look(self) -> None:
        """Lists the znodes if a list is due; calls ``gone`` and ``back`` for each process that left or came."""
        if not self.is_due:
            return
        self.is_due = False
        try:
            since_zxid = self._zk.last_zxid
            names, _ = await self._zk.children(self.folder) or ((), None)
            await self._zk.watch(children=[self.folder], since_zxid=since_zxid)
        except BaseException:
            self.is_due = True
            raise
        found: set[Key] = set()
        for first in range(0, len(names), PORTION):  # strangers may have made any number
            found.update(one for name in names[first : first + PORTION] if (one := server_of(name)) is not None)
            await asyncio.sleep(0)
        before, self.present = self.present, frozenset(found)
        for key in sorted(before - self.present):
            self.gone(key)
        for key in self.present - before:
            self.back(key)
