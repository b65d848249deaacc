"""Reads the znodes of a ZooKeeper store: its root, and an entry for each child, whatever it contains."""

from __future__ import annotations

from typing import Final, NamedTuple

from metadata_store.errors import Code
from metadata_store.port import Node, ZooKeeper
from metadata_store.records import codec
from metadata_store.records.found import Found, read, unread
from state_machines.procedures.faults import Fault

NAME_DIGITS: Final = 10
"""Digits of a pid in the name of its znode: names are in the order of pids."""


class Children(NamedTuple):
    """The data of the root, and its entries in the order of names."""

    data: bytes
    entries: list[Found]

    @property
    def last_pid(self) -> int | None:
        """Returns the highest pid that was reserved, or is in use; None where the root holds no number."""
        text = self.data.decode("ascii", "replace")
        fits = text.isdigit() and len(text) <= NAME_DIGITS
        return max([int(text), *(one.pid for one in self.entries)]) if fits else None


async def children(zk: ZooKeeper, root: str) -> Children | None:
    """Reads all; None where the root does not exist."""
    node = await zk.get(root)
    listed = await zk.children(root)
    if node is None or listed is None:
        return None
    names = sorted(listed[0])
    paths = [f"{root}/{name}" for name in names]
    nodes = await zk.read_many(paths)
    return Children(node.data or b"", list(map(_entry, names, paths, nodes)))


def _entry(name: str, path: str, found: Node | Code) -> Found:
    pid = int(name) if name.isascii() and name.isdigit() and len(name) == NAME_DIGITS else 0
    if not pid:
        return unread(0, path, Fault.UNREADABLE, f"the name of {path} is no pid: another client made it, delete it")
    if isinstance(found, Node):
        return read(pid, path, found.data or b"", codec.unsealed, found.stat.version)
    return unread(pid, path, Fault.UNREADABLE, f"it cannot be read ({found.name}): check its ACL")
