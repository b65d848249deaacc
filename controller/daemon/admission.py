"""Checks what a daemon needs before it queues: the permission to claim, its admin endpoint, an id of its own."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from controller.daemon.preflight.permissions import refused_paths
from controller.daemon.state import DaemonState, Mode
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.queue import ClaimRefused, twin_of
from metadata_store import paths
from metadata_store.acl import WRITE
from metadata_store.nodes.endpoint_znode import endpoint_path
from metadata_store.port import SetData, ZooKeeper

log = logging.getLogger("regent.daemon")

ENDPOINT_S_MAX: Final = 5.0
"""Longest wait for the admin endpoint beside a daemon, whose start takes one to three seconds."""

TWIN_POLL_S: Final = 2.0


class PermissionProbe:
    """One session's permission to write ``/controller_epoch``; where its ACL is not open, ZooKeeper gets a probe."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._probed: tuple[int, int] | None = None
        self._refused = False

    async def require(self) -> None:
        """Raises :class:`ClaimRefused` where this session may not write the epoch."""
        stat = await self._zk.exists(paths.CONTROLLER_EPOCH)
        if stat is None:
            return
        acl = stat.czxid, stat.acl_version
        if acl != self._probed:
            self._refused = not await self._may_write()
            self._probed = acl
        if self._refused:
            raise ClaimRefused(
                f"no permission to write {paths.CONTROLLER_EPOCH}: set zookeeper.digest_file to the credentials that "
                "locked it, or hand the role back, which lifts the lock; this daemon leaves the queue to others "
                "meanwhile"
            )

    async def _may_write(self) -> bool:
        node, (acls, _) = await self._zk.get(paths.CONTROLLER_EPOCH), await self._zk.get_acls(paths.CONTROLLER_EPOCH)
        if node is None or any(acl.scheme == "world" and acl.perms & WRITE for acl in acls):
            return True
        probe = SetData(paths.CONTROLLER_EPOCH, node.data, node.stat.version)
        return not await refused_paths(self._zk, [probe], 1)


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
