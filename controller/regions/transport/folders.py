"""Makes the folders of znodes that servers move, and gives folders and znodes the rights that the settings name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from heapq import nsmallest
from typing import Final

from metadata_store.acl import Acl
from metadata_store.catalog.unassigned import folder_of, marks_of, servers_of
from metadata_store.errors import Code, ZkError
from metadata_store.fencing.fenced import confirm, submit
from metadata_store.fencing.outcome import Fence
from metadata_store.own import Access, Identities, given_acls
from metadata_store.port import Create, ZooKeeper

log = logging.getLogger("regent.regions")

NAMES_SHOWN: Final = 5
NAME_CHARS_SHOWN: Final = 40
PORTION: Final = 200
"""Znodes whose lists are set side by side."""


def closes_regions(zk: ZooKeeper) -> bool:
    """Checks whether the domain's znodes are closed to other clients."""
    return zk.set_acl or Access.REGIONS in zk.own_acls


async def make_folders(zk: ZooKeeper, fence: Fence, root: str) -> None:
    """Makes the folders that are not there, behind the fence."""
    for path in _folders(root):
        if await zk.exists(path) is None:
            failed = await submit(zk, fence, [Create(path, None, acl=_wanted(zk, path))])
            if failed is not None and failed.code is not Code.NODE_EXISTS:
                raise failed


async def renew_rights(zk: ZooKeeper, fence: Fence, root: str) -> None:
    """Sets the lists of folders that have others than the settings ask for, and of their children, behind the fence.

    A folder comes last: where the daemon dies meanwhile, the next one does it again. What a server has created is its
    own, and stays so until the daemon deletes it.
    """
    if not closes_regions(zk):
        return
    for folder in _folders(root):
        found, _ = await zk.get_acls(folder)
        if frozenset(found) == frozenset(_stored(_wanted(zk, folder), zk.identities)):
            continue
        names, _ = await zk.children(folder) or ((), None)
        for first in range(0, len(names), PORTION):
            await confirm(zk, fence)
            await asyncio.gather(*(_set(zk, f"{folder}/{name}") for name in names[first : first + PORTION]))
        await confirm(zk, fence)
        if await _set(zk, folder):
            log.info("%s has the rights that the settings name", folder)
        else:
            log.warning(
                "%s has an ACL that this daemon may not change, and servers may lack the right to move regions there: "
                "delete it with what is in it, and restart the daemon, which makes it anew",
                folder,
            )


def warn_of_strangers(folder: str, names: Collection[str]) -> None:
    """Logs what somebody else has put into a folder: the number of znodes, and the first names."""
    some = ", ".join(repr(one[:NAME_CHARS_SHOWN]) for one in nsmallest(NAMES_SHOWN, names))
    log.warning(
        "%s has %d znodes that are no region's (%s): they stay, and all listings read their names; delete them",
        *(folder, len(names), some),
    )


def _folders(root: str) -> tuple[str, ...]:
    return folder_of(root), marks_of(root), servers_of(root)


def _wanted(zk: ZooKeeper, path: str) -> tuple[Acl, ...]:
    return given_acls(path, zk.own_acls, secured=zk.set_acl)


def _stored(wanted: Iterable[Acl], mine: Identities) -> list[Acl]:
    """Returns a list as ZooKeeper stores it: ``auth`` stands for what the session has proven."""
    return [
        acl
        for one in wanted
        for acl in ([Acl(one.perms, *identity) for identity in mine] if one.scheme == "auth" else [one])
    ]


async def _set(zk: ZooKeeper, path: str) -> bool:
    """Sets the list of a znode; returns whether the daemon may."""
    try:
        await zk.set_acls(path, _wanted(zk, path), (await zk.get_acls(path))[1].acl_version)
    except ZkError as error:
        if error.code not in (Code.NO_AUTH, Code.NO_NODE, Code.BAD_VERSION):
            raise
        return error.code is not Code.NO_AUTH
    return True
