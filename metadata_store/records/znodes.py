"""Reads the znodes of a ZooKeeper store: its root, and an entry for each child, whatever it contains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from metadata_store.errors import Code
from metadata_store.port import Node, Op, ZooKeeper
from metadata_store.records import codec
from metadata_store.records.port import Found, read, unread
from state_machines.portions import weighed
from state_machines.procedures.record import Fault, Record

NAME_DIGITS: Final = 10
"""Digits of a pid in the name of its znode: names are in the order of pids."""
ENTRIES_TOGETHER: Final = 4_000
"""Records that are decoded in one turn of the loop, which takes some 30 ms."""
BYTES_TOGETHER: Final = 4 * 1024 * 1024
"""Bytes of them: a plan of hundreds of KB takes a millisecond."""


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
    """Reads all; None where the root does not exist. A child that is deleted meanwhile is none."""
    node = await zk.get(root)
    listed = await zk.children(root)
    if node is None or listed is None:
        return None
    names = sorted(listed[0])
    paths = [f"{root}/{name}" for name in names]
    nodes = await zk.read_many(paths)
    entries: list[Found] = []
    there = [one for one in zip(names, paths, nodes, strict=True) if one[2] is not Code.NO_NODE]
    for some in weighed(there, _weight, items_max=ENTRIES_TOGETHER, weight_max=BYTES_TOGETHER):
        entries += (_entry(*one) for one in some)
        await asyncio.sleep(0)
    return Children(node.data or b"", entries)


def _weight(one: tuple[str, str, Node | Code]) -> int:
    return len(one[2].data or b"") if isinstance(one[2], Node) else 0


def _entry(name: str, path: str, found: Node | Code) -> Found:
    pid = int(name) if name.isascii() and name.isdigit() and len(name) == NAME_DIGITS else 0
    if not pid:
        return unread(0, path, Fault.UNREADABLE, f"the name of {path} is no pid: another client made it, delete it")
    if isinstance(found, Node):
        return read(pid, path, found.data or b"", codec.unsealed, found.stat.version)
    return unread(pid, path, Fault.UNREADABLE, f"it cannot be read ({found.name}): check its ACL")


class Rows(Protocol):
    """Further znodes of a domain, which are written in the multis of its records."""

    def weigh(self, rows: Sequence[object]) -> int:
        """Returns how many bytes rows add to a multi, at most."""
        ...

    async def prepare(self) -> None:
        """Learns what there is before the first write; raises ``NotConnected``."""
        ...

    def ops(self, rows: Iterable[object]) -> list[Op]:
        """Returns the operations that write rows, for one multi."""
        ...

    def written(self, rows: Iterable[object]) -> None:
        """Notes that :meth:`ops` were applied."""
        ...

    async def find_out(self, rows: Iterable[object]) -> None:
        """Finds out whether :meth:`ops` were applied, after a write whose outcome is unknown."""
        ...


class Pending(NamedTuple):
    """A write that waits for those before it."""

    puts: tuple[Record, ...]
    deletes: tuple[int, ...]
    rows: tuple[object, ...]
    future: asyncio.Future[None]


def settle(one: Pending, error: BaseException | None) -> None:
    """Ends the wait of a write's caller, unless the caller has gone."""
    if one.future.done():
        return
    if error is None:
        one.future.set_result(None)
    elif isinstance(error, Exception):
        one.future.set_exception(error)
    else:
        one.future.cancel()
