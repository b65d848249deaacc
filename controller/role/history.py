"""Keeps ``/regent/history``: each change of the role flag, written in one multi with the flag.

A hand-back ends the term in which procedures run, so it is none; its entry says when, by whom and why instead. What
cannot be understood stays as it is, and never holds up the role.
"""

from __future__ import annotations

from typing import Final

import msgspec

from controller.role import own_znodes as own
from metadata_store.content import decoded
from metadata_store.errors import ZkError
from metadata_store.port import Create, Node, Op, SetData, ZooKeeper

CHANGES_MAX: Final = 100
"""Changes that are kept; the oldest go first."""
REASON_CHARS_MAX: Final = 500
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
    """Reads the changes, the oldest first; None where this release does not understand what is stored."""
    found = _content(await zk.get(own.HISTORY))
    return None if found is None else found.changes


async def entry(zk: ZooKeeper, change: RoleChange) -> list[Op]:
    """Returns the operation that adds a change; none where the history cannot be read or understood."""
    try:
        node = await zk.get(own.HISTORY)
    except ZkError:
        return []
    content = _content(node)
    if content is None:
        return []
    cut = msgspec.structs.replace(change, reason=change.reason[:REASON_CHARS_MAX], by=change.by[:REASON_CHARS_MAX])
    data = msgspec.json.encode(_Content((*content.changes, cut)[-CHANGES_MAX:]))
    return [Create(own.HISTORY, data) if node is None else SetData(own.HISTORY, data, node.stat.version)]


def _content(node: Node | None) -> _Content | None:
    if node is None:
        return _Content()
    try:
        found = decoded(node.data or b"", _Content)
    except msgspec.DecodeError:
        return None
    return found if found.version <= VERSION else None
