"""Lists take-overs and hand-backs from ZooKeeper, on any daemon that has a session."""

from __future__ import annotations

from datetime import UTC, datetime

from controller.daemon.daemon import Daemon
from controller.http.errors import NotActive, Refused
from controller.http.role_history import RoleChangeItem
from controller.role import own_znodes as own
from controller.role.history import RoleChange, read_history
from metadata_store.errors import ZooKeeperError


class RoleChanges:
    """The history of the role flag."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def changes(self) -> list[RoleChangeItem]:
        """Lists the latest changes, the oldest first."""
        role = self._daemon.role
        if role is None:
            raise NotActive("this daemon has no ZooKeeper session", "wait until it is connected, then try again")
        try:
            found = await read_history(role.zk)
        except ZooKeeperError as error:
            raise NotActive(f"ZooKeeper does not send {own.HISTORY}: {error}", "try again; check its ACL") from error
        if found is None:
            raise Refused(f"{own.HISTORY} cannot be understood", "upgrade this daemon, or delete the znode")
        return list(map(_item, found))


def _item(change: RoleChange) -> RoleChangeItem:
    at = datetime.fromtimestamp(change.at_ms / 1000, UTC)
    return RoleChangeItem(at=at, holder=change.holder, principal=change.by, reason=change.reason)
