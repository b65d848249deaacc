"""Keeps one daemon process in the queue of daemons: queue positions, registration, and its secret's mark."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple, TypeVar

from msgspec import structs

from brokers.security.shared_secret import Seals
from controller.role import own_znodes as own
from controller.role.own_znodes import Process, WrongIdentity, check_identity, close_own, closes
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode, guarded
from metadata_store.errors import Code, ZkError
from metadata_store.nodes.cluster_nodes import read_cluster_id
from metadata_store.own import ENDPOINTS
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


class ClaimRefused(Exception):
    """A condition that forbids a claim; the text names it and its remedy."""


class PositionLost(LookupError):
    """The loss of this session's lock node: another client or an expired session has removed it."""


T = TypeVar("T")


class QueueMember:
    """Holds at most one queue position of one session; ``position_path`` is its lock node, None without a position.

    ``listener`` is host:port of the controller listener. ``secret`` is shared with admin endpoints.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        me: Process,
        *,
        listener: str | None = None,
        secret: bytes | None = None,
    ) -> None:
        self.zk = zk
        self.me = me
        self.position_path: str | None = None
        self._listener = listener
        self._secret = secret
        self._seals: Seals | None = None
        self._queued_as = me
        self._marked_with: Seals | None = None
        """The seals that made the mark in the lock node."""

    async def enter_queue(self) -> str:
        """Registers the daemon id and takes a queue position; returns its lock node.

        Positions of dead processes of this daemon are removed first.
        """
        await self.make_endpoints()
        for path, data in (
            (own.ROOT, b""),
            (own.FORMAT, own.encode(own.Format(own.FORMAT_VERSION))),
            (own.DAEMONS, b""),
            (own.LOCKS, b""),
            (f"{own.DAEMONS}/{self.me.id}", own.encode(self.me)),
        ):
            await self._ensure(path, data)
        await self.check_format()
        if self.zk.set_acl:
            await close_own(self.zk)
        self.position_path = await clear_own_positions(self.zk, self.me)
        if self.position_path is not None:
            return self.position_path
        seals = await self.seals()
        clock_ms = int(time.time() * 1000)
        self._queued_as = structs.replace(self.me, clock_ms=clock_ms, listener=self._listener or "")
        created = await self.zk.create(f"{own.LOCKS}/lock-", self._marked(seals), ephemeral=True, sequential=True)
        self.position_path = created.path
        self._marked_with = seals
        return created.path

    async def leave_queue(self) -> None:
        """Gives up the queue position."""
        if self.position_path is not None:
            await delete_if_there(self.zk, self.position_path)
            self.position_path = None

    async def make_endpoints(self) -> None:
        """Creates the parent of the admin endpoints' znodes, which they may not create where ACLs close znodes."""
        if self.zk.set_acl:
            try:
                await check_identity(self.zk)
            except WrongIdentity as wrong:
                raise ClaimRefused(str(wrong)) from wrong
        if closes(self.zk):
            await self._ensure(own.ROOT, b"")
            await self._ensure(ENDPOINTS, b"")

    async def check_format(self) -> None:
        """Raises :class:`ClaimRefused` where a later release has stored a format that this release does not know."""
        node = await self.zk.get(own.FORMAT)
        data = node.data if node is not None else None
        stored = usable(guarded(own.FORMAT, lambda: own.decode_format(data)))
        if stored > own.FORMAT_VERSION:
            raise ClaimRefused(
                f"{own.FORMAT} is {stored}, this release knows formats up to {own.FORMAT_VERSION}: upgrade this daemon"
            )

    # -- the queue

    async def queue(self) -> list[tuple[str, Process | None]]:
        """Reads the lock nodes in order, with the process of each."""
        return [(position.path, position.process) for position in await read_positions(self.zk)]

    async def predecessor(self) -> QueuePosition | None:
        """Reads the position right before ours, None where ours is the first. Raises :class:`PositionLost`."""
        order = await read_positions(self.zk)
        at = next((at for at, position in enumerate(order) if position.path == self.position_path), None)
        if at is None:
            raise PositionLost(f"our lock node {self.position_path} is gone")
        return order[at - 1] if at else None

    async def daemons(self) -> frozenset[int]:
        """Reads the ids of all daemons that ever queued: they host no replica."""
        listed = await self.zk.children(own.DAEMONS)
        ids = (paths.number(name) for name in listed[0]) if listed is not None else ()
        return frozenset(found for found in ids if found is not None)

    # -- the shared secret

    async def seals(self) -> Seals | None:
        """Returns the seals of what daemon and admin endpoints write for each other; None without a secret."""
        if self._secret is not None and self._seals is None:
            cluster_id = await read_cluster_id(self.zk)
            if not isinstance(cluster_id, str):  # no broker has started yet: read again at the next use
                return Seals(self._secret, "")
            self._seals = Seals(self._secret, cluster_id)
        return self._seals

    def take_secret(self, secret: bytes) -> None:
        """Replaces the secret while the daemon runs; :meth:`mark_again` puts it into the lock node."""
        self._secret, self._seals = secret, None

    async def mark_again(self, seals: Seals | None) -> None:
        """Marks the lock node with ``seals``, unless they made its present mark."""
        if self.position_path is not None and self._marked_with != seals:
            await self.zk.set(self.position_path, self._marked(seals), ANY_VERSION)
            self._marked_with = seals

    def _marked(self, seals: Seals | None) -> bytes:
        mark = seals.of_daemon(self.me.id, self.me.nonce) if seals is not None else ""
        return own.encode(structs.replace(self._queued_as, mark=mark))

    async def _ensure(self, path: str, data: bytes) -> None:
        try:
            await self.zk.create(path, data)
        except ZkError as error:
            if error.code is not Code.NODE_EXISTS:
                raise


def usable(found: T | MalformedNode) -> T:
    """Returns the decoded znode; raises :class:`ClaimRefused` for a malformed one, which forbids a claim."""
    if isinstance(found, MalformedNode):
        raise ClaimRefused(
            f"{found.path} cannot be understood ({found.why}): repair it, then the daemon claims by itself"
        )
    return found
