"""Creates queue positions of daemons: one ephemeral, sequential lock node per daemon process."""

from __future__ import annotations

import logging
from typing import NamedTuple

from controller.role import own_znodes as own
from controller.role.own_znodes import Process
from metadata_store.errors import Code, ZkError
from metadata_store.port import ANY_VERSION, ZooKeeper

log = logging.getLogger("regent.role")


class QueuePosition(NamedTuple):
    """A lock node. ``process`` is None where its content has another form.

    ``queued_ms`` is its creation by ZooKeeper's clock, 0 where that is unknown.
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
    """Reads the lock nodes in order. A persistent node is no queue position: no session would ever end it."""
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
    """Removes positions of this daemon's earlier incarnations and sessions before those sessions expire.

    Returns a position of this very session, if there is one: its creation had succeeded and the reply was lost.
    """
    for position in await read_positions(zk):
        if position.process is None:
            continue
        mine = position.process.nonce == me.nonce
        if mine and position.session == zk.session_id:
            return position.path
        if mine or own.is_dead(position.process, me):
            log.info(
                "removing %s of an earlier incarnation of this daemon (pid %d)", position.path, position.process.pid
            )
            await delete_if_there(zk, position.path)
    return None


async def twin_of(zk: ZooKeeper, me: Process) -> str | None:
    """Describes another live daemon in the queue with our id; an earlier incarnation does not count."""
    for position in await read_positions(zk):
        other = position.process
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
