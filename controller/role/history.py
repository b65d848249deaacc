"""Keeps ``/regent/history``: each change of the role flag, written in one multi with the flag.

A hand-back ends the term in which procedures run, so it is none; an entry with time, author and reason stands for it.
A history that cannot be read, understood or written stays as it is, and never holds up the role.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from controller.role import own_znodes as own
from metadata_store.codecs.base import decoded
from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.port import Create, Node, Op, SetData, ZooKeeper

log = logging.getLogger("regent.role")

CHANGES_MAX: Final = 100
"""Changes that are kept; the oldest go first."""
CHARS_MAX: Final = 500
"""Characters of an author or a reason."""
BYTES_MAX: Final = 200_000
"""Bytes of the znode; the oldest changes go first."""
ROUNDS_MAX: Final = 3
"""Attempts with an entry while other clients write the history; then the flag is set without one."""
VERSION: Final = 1


class RoleChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of the role flag: the side that got the role, its time, author and reason.

    ``at_ms``: of the wall clock, since 1970. ``by``: the principal, empty where none is known.
    """

    holder: str
    at_ms: int
    by: str = ""
    reason: str = ""


class _Content(msgspec.Struct):
    changes: tuple[RoleChange, ...] = ()
    version: int = VERSION


async def read_history(zk: ZooKeeper) -> tuple[RoleChange, ...] | None:
    """Reads the changes, the oldest first; None where this release does not understand the znode."""
    found = _content(await zk.get(own.HISTORY))
    return None if found is None else found.changes


async def write_with_entry(zk: ZooKeeper, written: Sequence[Op], change: RoleChange) -> None:
    """Writes operations and the entry of a change in one multi; without the entry where the history refuses it."""
    why = "other clients write it all the time"
    for _ in range(ROUNDS_MAX):
        try:
            noted = await _entry(zk, change)
        except ZkError as error:
            why = f"{error}: check its ACL"
            break
        if noted is None:
            why = "this release does not understand it: upgrade the daemon, or delete the znode"
            break
        try:
            await zk.multi([*written, noted])
        except MultiFailed as failed:
            if failed.path != own.HISTORY:
                raise
            if failed.code is Code.NO_AUTH:
                why = f"{failed}: check its ACL"
                break
        else:
            return
    log.warning("this change of the role has no entry in %s: %s", own.HISTORY, why)
    await zk.multi(list(written))


async def _entry(zk: ZooKeeper, change: RoleChange) -> Op | None:
    node = await zk.get(own.HISTORY)
    content = _content(node)
    if content is None:
        return None
    changes = [_cut(one) for one in (*content.changes, change)][-CHANGES_MAX:]
    while len(data := msgspec.json.encode(_Content(tuple(changes)))) > BYTES_MAX:
        del changes[0]
    return Create(own.HISTORY, data) if node is None else SetData(own.HISTORY, data, node.stat.version)


def _cut(change: RoleChange) -> RoleChange:
    return RoleChange(change.holder[:CHARS_MAX], change.at_ms, change.by[:CHARS_MAX], change.reason[:CHARS_MAX])


def _content(node: Node | None) -> _Content | None:
    if node is None:
        return _Content()
    try:
        found = decoded(node.data or b"", _Content)
    except msgspec.DecodeError:
        return None
    return found if found.version <= VERSION else None
