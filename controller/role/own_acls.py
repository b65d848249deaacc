"""Closes regent's own znodes where ``zookeeper.set_acl`` or ``on_absence = "hold"`` asks for it.

With ``set_acl`` they get the list of the brokers' znodes: the brokers' identity may do everything, any client may read.
A daemon closes them when it queues. In mode ``hold`` the daemons' digest alone writes them, and the term that begins
closes them, as it locks ``/controller_epoch``. Their lists come from :mod:`controller.process.znode_acls`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from metadata_store import paths
from metadata_store.closing import Closed, close_tree, unfenced
from metadata_store.errors import Code, ZkError
from metadata_store.own import REGIONS, ROOT, Access
from metadata_store.port import ZooKeeper

UNUSED_ACL_VERSION: Final = 2**31 - 1


class WrongIdentity(Exception):
    """An identity whose znodes would be closed to the brokers; the text names cause and remedy."""


def closes(zk: ZooKeeper) -> bool:
    """Checks whether the znodes of the role are closed to other clients."""
    return zk.set_acl or Access.DAEMONS in zk.own_acls


async def close_own(zk: ZooKeeper, may_write: Callable[[], Awaitable[None]] = unfenced) -> Closed:
    """Closes znodes that were created while the cluster was open, or by an earlier release.

    Those of the regions' domain belong to another store, which closes them itself. ``may_write``: checks the epoch.
    """
    found = await close_tree(zk, ROOT, without=(REGIONS,), may_write=may_write)
    found.tell(ROOT)
    return found


async def check_identity(zk: ZooKeeper) -> None:
    """Raises :class:`WrongIdentity` where the brokers' znodes belong to another identity than this session's.

    Called before the first znode is created, because znodes of another identity would shut the brokers out.
    """
    if await zk.exists(paths.TOPICS) is not None and not await may_change_acls(zk, paths.TOPICS):
        raise WrongIdentity(
            f"zookeeper.set_acl is true, and the ACL of {paths.TOPICS} does not name this daemon's identity: set "
            "zookeeper.sasl_file to the user of the section Client in the brokers' JAAS file"
        )


async def may_change_acls(zk: ZooKeeper, path: str) -> bool:
    """Returns whether this session has the right, which ZooKeeper checks before it refuses the unused ACL version."""
    try:
        acls, _ = await zk.get_acls(path)
        await zk.set_acls(path, acls, UNUSED_ACL_VERSION)
    except ZkError as error:
        return error.code is not Code.NO_AUTH
    return True
