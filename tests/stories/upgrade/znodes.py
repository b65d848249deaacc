"""Restores recorded znodes in the in-memory ZooKeeper, with their versions, zxids and owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metadata_store.acl import OPEN, Acl
from testing.memory.server import MemoryServer
from testing.memory.tree import Tree, _Znode, parent_of

GONE: Final = 0x7E57
"""The session of the killed daemon."""


def restore(server: MemoryServer, recorded: Mapping[str, Any], sessions: Mapping[str, int]) -> None:
    """Gives a server the recorded znodes; those of the killed daemon vanish with its session.

    ``sessions``: the sessions of owners that live on.
    """
    tree = server.tree = Tree()
    tree._nodes.clear()
    found = {path: one for path, one in recorded.items() if path.startswith("/")}
    for path in sorted(found, key=lambda one: (one != "/", one.count("/"))):
        data, owner, numbers, *acls = found[path]
        node = tree._nodes[path] = _Znode(
            data if data is None else data.encode("latin-1"),
            tuple(Acl(*one) for one in acls[0]) if acls else OPEN,
            sessions.get(owner, GONE) if owner else 0,
            0,
        )
        node.version, node.acl_version, node.created, node.czxid, node.mzxid, node.pzxid = numbers
        if path != "/":
            tree._nodes[parent_of(path)].children[path.rpartition("/")[2]] = None
    tree.zxid = recorded["zxid"]
    tree.end_session(GONE)


def owners(recorded: Mapping[str, Any]) -> set[str]:
    """Returns the owners of ephemeral znodes."""
    return {one[1] for path, one in recorded.items() if path.startswith("/") and one[1]}
