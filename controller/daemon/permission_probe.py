"""Probes whether ZooKeeper permits a claim, before the daemon queues and could block other daemons."""

from __future__ import annotations

from controller.daemon.preflight.permissions import refused_paths
from controller.role.errors import ClaimRefused
from metadata_store import paths
from metadata_store.acl import WRITE
from metadata_store.port import SetData, ZooKeeper


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
                f"no permission to write {paths.CONTROLLER_EPOCH}: set zookeeper.digest to the credentials that locked "
                "it, or hand the role back, which lifts the lock; this daemon leaves the queue to others meanwhile"
            )

    async def _may_write(self) -> bool:
        node, (acls, _) = await self._zk.get(paths.CONTROLLER_EPOCH), await self._zk.get_acls(paths.CONTROLLER_EPOCH)
        if node is None or any(acl.scheme == "world" and acl.perms & WRITE for acl in acls):
            return True
        probe = SetData(paths.CONTROLLER_EPOCH, node.data, node.stat.version)
        return not await refused_paths(self._zk, [probe], 1)
