"""Places in the queue of daemons: one ephemeral, sequential lock node per daemon process."""

from __future__ import annotations

import logging
from typing import NamedTuple

from controller.role import own_znodes as own
from controller.role.own_znodes import Process
from metadata_store.errors import Code, ZkError
from metadata_store.port import ANY_VERSION, ZooKeeper

log = logging.getLogger("regent.role")


class QueuePosition(NamedTuple):
    """A lock node. ``process`` is None where its content is not ours to understand.

    ``queued_ms`` is its creation by ZooKeeper's clock, 0 where it is not known.
    """

    path: str
    process: Process | None
    session: int
    queued_ms: int

    def __str__(self) -> str:
        if self.process is None:
            return self.path
        return f"{self.process.id} on {self.process.host} (pid {self.process.pid}, {self.path})"


async def read_positions(zk: ZooKeeper) -> list[QueuePosition]:
    """Lock nodes in order. A persistent node is nobody's place: no session would ever end it."""
    listed = await zk.children(own.LOCKS)
    names = sorted(listed[0], key=lambda name: name.rpartition("-")[2]) if listed is not None else []
    found = await zk.read_many([f"{own.LOCKS}/{name}" for name in names])
    return [
        QueuePosition(
            f"{own.LOCKS}/{name}", own.decode_process(node.data), node.stat.ephemeral_owner, node.stat.ctime_ms
        )
        for name, node in zip(names, found, strict=True)
        if not isinstance(node, Code) and node.stat.ephemeral_owner
    ]


async def clear_own_positions(zk: ZooKeeper, me: Process) -> str | None:
    """Removes what former lives and sessions of this daemon left instead of waiting for their sessions to expire.

    Returns a place of this very session, if there is one: its creation had succeeded and the reply was lost.
    """
    for place in await read_positions(zk):
        if place.process is None:
            continue
        mine = place.process.nonce == me.nonce
        if mine and place.session == zk.session_id:
            return place.path
        if mine or own.is_dead(place.process, me):
            log.info("removing %s of a former life of this daemon (pid %d)", place.path, place.process.pid)
            await delete_if_there(zk, place.path)
    return None


async def twin_of(zk: ZooKeeper, me: Process) -> str | None:
    """Another daemon in the queue that has our id, in words. What is left of a former life goes with its session."""
    for place in await read_positions(zk):
        other = place.process
        if other is not None and other.id == me.id and other.nonce != me.nonce and not own.is_dead(other, me):
            return f"the daemon on {other.host} (pid {other.pid}) has controller.id {me.id}, too"
    return None


async def delete_if_there(zk: ZooKeeper, path: str) -> None:
    """Deletes a znode that may be gone already."""
    try:
        await zk.delete(path, ANY_VERSION)
    except ZkError as error:
        if error.code is not Code.NO_NODE:
            raise
