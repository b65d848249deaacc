"""Checks before a daemon queues that its admin endpoint is announced and that no other daemon has its id."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from controller.daemon.state import DaemonState
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.mode import Mode
from controller.role.queue import twin_of
from metadata_store.nodes.endpoint_znode import endpoint_path
from metadata_store.port import ZooKeeper

log = logging.getLogger("regent.daemon")

ENDPOINT_S_MAX: Final = 5.0
"""Longest wait for the admin endpoint beside a daemon, whose start takes one to three seconds."""
TWIN_POLL_S: Final = 2.0


class QueueAdmission:
    """Lets one daemon into the queue. ``endpoint_beside``: an admin endpoint starts beside it."""

    def __init__(self, daemon: DaemonState, *, endpoint_beside: bool) -> None:
        self._d = daemon
        self._awaits_endpoint = endpoint_beside

    async def admits(self, role: Role) -> bool:
        """Returns whether the daemon may queue; waits a while where it may not."""
        await self._endpoint(role)
        return not self._d.stopping.is_set() and not await self._has_twin(role)

    async def _endpoint(self, role: Role) -> None:
        """Waits for the admin endpoint beside this daemon, so that a term's first request to brokers lists both.

        The daemon is not queued meanwhile, so that other daemons pass it. After one wait in vain it waits no more.
        """
        if not self._awaits_endpoint:
            return
        await role.make_endpoints()
        with self._d.until_stopped(), anyio.move_on_after(ENDPOINT_S_MAX):
            await self._until_announced(role.zk, endpoint_path(role.me.id))
            return
        self._awaits_endpoint = False
        if not self._d.stopping.is_set():
            log.warning(
                "the admin endpoint beside this daemon has not announced itself within %g s: the daemon continues, and "
                "brokers list it without the endpoint until then, and log errors; see the endpoint's lines in this log",
                ENDPOINT_S_MAX,
            )

    async def _until_announced(self, zk: ZooKeeper, path: str) -> None:
        while True:
            self._d.changed.clear()
            since = zk.last_zxid
            if await zk.exists(path) is not None:
                return
            self._d.become(Mode.STANDBY, "it queues for the role once the admin endpoint beside it has started")
            await zk.watch(exists=[path], since_zxid=since)
            await self._d.changed.wait()

    async def _has_twin(self, role: Role) -> bool:
        """Returns whether another daemon in the queue has our id; if so, after a while or a change of the queue."""
        since = role.zk.last_zxid
        twin = await twin_of(role.zk, role.me)
        if twin is None:
            return False
        self._d.become(
            Mode.BLOCKED, f"{twin}: give one of the two another controller.id, unless it is an earlier incarnation"
        )
        await role.zk.watch(children=[own.LOCKS], since_zxid=since)
        with self._d.until_stopped(), anyio.move_on_after(TWIN_POLL_S):
            await self._d.changed.wait()
        return True
