"""Sets the ACLs of ``/controller_epoch``: the daemons' lock, and those from before the last take-over.

In mode ``hold`` the daemons' digest alone may write that znode, so that no broker can be elected.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import ALL, READ, Acl, default_acls, digest_id
from metadata_store.codecs.base import decoded
from metadata_store.port import ZooKeeper


class _Saved(msgspec.Struct, frozen=True):
    """The part of a roll-back znode that this module reads."""

    acls: list[Acl]


def lock_out_acls(digest: tuple[str, str] | None) -> list[Acl] | None:
    """Returns the ACLs with which daemons lock brokers out; None without credentials."""
    if digest is None:
        return None
    return [Acl(ALL, "digest", digest_id(*digest)), Acl(READ, "world", "anyone")]


def are_lock(acls: Sequence[Acl], lock: Sequence[Acl] | None) -> bool:
    """Returns whether the ACLs are those with which daemons lock brokers out."""
    return lock is not None and set(acls) == set(lock)


async def saved_acls(zk: ZooKeeper) -> list[Acl]:
    """Reads the ACLs from before the last take-over; the default where none were saved."""
    node = await zk.get(own.ROLLBACK)
    try:
        saved = decoded(node.data or b"", _Saved).acls if node is not None else []
    except msgspec.DecodeError:
        saved = []
    return saved or unsaved_acls(zk)


def unsaved_acls(zk: ZooKeeper) -> list[Acl]:
    """Returns the ACLs with which a broker would have created the znode."""
    return list(default_acls(paths.CONTROLLER_EPOCH, secured=zk.set_acl))
