"""Answers by znodes of regions in transition, on a ZooKeeper session of this server.

This one module needs regent's ``metadata_store``, and kazoo: a server that reports loads neither. While there is no
session opens fail, and closes are reported; the session that has ended is followed by a new one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from metadata_store.catalog.answers import NodeAnswers
from metadata_store.errors import ZooKeeperError
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.own import REGIONS
from metadata_store.port import ConnectionState

SESSION_MS: Final = 10_000
CONNECT_S: Final = 10.0
"""Longest attempt at a session; the first one goes before the server registers."""
AGAIN_S: Final = 1.0
"""Pause between two attempts."""
REFUSED_S: Final = 30.0
"""Pause until a znode is made that was refused."""

logger = logging.getLogger("kv.znodes")


class Znodes:
    """Holds the session. ``answers``: for the agent."""

    def __init__(self, connect: str, digest: str | None, name: str, incarnation: int) -> None:
        """``connect``: servers of ZooKeeper, and the chroot; ``digest``: user:password, or None without identity."""
        self._zk = KazooZooKeeper(connect, session_timeout_ms=SESSION_MS, credentials=digest)
        self._zk.on_state = self._state
        self.answers = NodeAnswers(self._zk, REGIONS, lambda: (name, incarnation))
        self._ended = asyncio.Event()
        self._tried = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to keep a session; returns after the first attempt, whatever came of it."""
        self._keeping = asyncio.create_task(self._keep())
        tried = asyncio.create_task(self._tried.wait())
        await asyncio.wait({self._keeping, tried}, return_when=asyncio.FIRST_COMPLETED)
        tried.cancel()
        if self._keeping.done():
            self._keeping.result()  # no session can be tried with such an address

    async def stop(self) -> None:
        """Ends the session."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._zk.close()

    async def _keep(self) -> None:
        while True:
            self._ended.clear()
            try:
                await self._zk.connect(CONNECT_S)
            except ZooKeeperError as error:
                logger.warning("no ZooKeeper session, so no region is opened here: %s", error)
                self._tried.set()
                await asyncio.sleep(AGAIN_S)
                continue
            logger.info("ZooKeeper session 0x%x begins", self._zk.session_id)
            self._tried.set()
            appearing = asyncio.create_task(self._appear())
            try:
                await self._ended.wait()
            finally:
                appearing.cancel()
            logger.warning("the ZooKeeper session has ended: opens fail until there is a new one")

    async def _appear(self) -> None:
        """Makes the ephemeral znode of this process in a new session, until that is done or the session over."""
        while True:
            try:
                await self.answers.appears()
                return
            except (ZooKeeperError, PermissionError) as error:
                logger.warning("no znode tells that this server lives, so its lease alone does: %s", error)
            await asyncio.sleep(REFUSED_S)

    def _state(self, state: ConnectionState) -> None:
        if state is ConnectionState.LOST:
            self._ended.set()
