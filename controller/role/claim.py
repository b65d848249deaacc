"""The controller role in ZooKeeper: the queue of daemons, the role flag, the claim, the lock-out.

A claim is one multi: it checks our lock node, the role flag and (where it exists) ``/migration``, raises
``/controller_epoch`` and writes ``/controller``. A claim of unknown outcome is claimed again with the next epoch,
never adopted, so that an epoch is never shared. Two ways to hold the role (setting ``controller.on_absence``):

- ``brokers``: ``/controller`` is ephemeral; when every daemon is dead, Kafka's own controller is elected.
- ``hold``: ``/controller`` is persistent and ``/controller_epoch`` is writable by the daemons' digest only, so that
  no broker can be elected. Claimed first, locked second; the lock is verified at each start.
"""

from __future__ import annotations

import logging
import time
from typing import TypeVar

import msgspec
from msgspec import structs

from brokers.security.attested import Seals
from controller.role import own_znodes as own
from controller.role.epoch_acls import are_lock, lock_acls, saved_acls
from controller.role.own_acls import WrongIdentity, check_identity, close_own, endpoints_acl
from controller.role.own_znodes import Process, RoleFlag
from controller.role.queue import QueuePosition, clear_own_positions, delete_if_there, read_positions
from metadata_store import paths
from metadata_store.acl import Acl
from metadata_store.codecs.base import Malformed, guarded
from metadata_store.codecs.controller import decode_controller, decode_epoch, decode_migration
from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.nodes.cluster_nodes import read_cluster_id
from metadata_store.nodes.endpoint_znode import ENDPOINTS
from metadata_store.port import ANY_VERSION, Check, Create, Created, Delete, Op, SetData, Stat, ZooKeeper

log = logging.getLogger("regent.role")

T = TypeVar("T")

EPOCH_MAX = 2**31 - 1
CLAIMS_MAX = 20
"""Claims tried in a row before the daemon starts over (each loses only to another writer)."""


class ClaimRefused(Exception):
    """The role must not be claimed; the text says why and what would make it possible."""


class PositionLost(LookupError):
    """Our node in the queue is gone: whatever removed it, this session has no place any more."""


class ControllerRecord(
    msgspec.Struct,
    frozen=True,
    rename={"kraft_epoch": "kraftControllerEpoch", "listener": "regentListener", "seal": "regentSeal"},
):
    """Content of ``/controller`` as brokers read it.

    ``regent`` is the nonce of a daemon's process, ``listener`` the host:port of its controller listener, where admin
    endpoints find it, ``seal`` shows them that a daemon wrote this (:mod:`brokers.security.attested`).
    """

    brokerid: int
    timestamp: str = ""
    version: int = 2
    kraft_epoch: int = -1
    regent: str | None = None
    listener: str | None = None
    seal: str | None = None


class Claim(msgspec.Struct, frozen=True):
    """A won claim: the epoch, the version of ``/controller_epoch`` that fences writes, and whom it displaced."""

    epoch: int
    fence_version: int
    displaced: int | None
    zxid: int


class Role:
    """The role as this process sees it on one session.

    ``announcer``: scheme and id of the admin endpoints at ZooKeeper, where it is not the daemon's own. ``secret``: what
    they know, too.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        me: Process,
        *,
        hold: bool,
        digest: tuple[str, str] | None,
        listener: str | None = None,
        announcer: tuple[str, str] | None = None,
        secret: bytes | None = None,
    ) -> None:
        self.zk = zk
        self.me = me
        self.hold = hold
        self.lock_path: str | None = None
        self._digest = digest
        self._listener = listener
        self._announcer = announcer
        self._secret = secret
        self._seals: Seals | None = None
        self._place = me
        self._marked_with: Seals | None = None
        """What made the mark in our place; ``_sealed_with`` made the seal in ``/controller``."""
        self._sealed_with: Seals | None = None

    # -- the queue

    async def enter_queue(self) -> str:
        """Ensures our roots, registers the id, clears our own dead process's place, takes a place of our own."""
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
            await close_own(self.zk, self._announcer)
        self.lock_path = await clear_own_positions(self.zk, self.me)
        if self.lock_path is not None:
            return self.lock_path
        seals = await self.seals()
        clock_ms = int(time.time() * 1000)
        self._place = structs.replace(self.me, clock_ms=clock_ms, listener=self._listener or "")
        data = self._marked(seals)
        created = await self.zk.create(f"{own.LOCKS}/lock-", data, ephemeral=True, sequential=True)
        self.lock_path = created.path
        self._marked_with = seals
        return created.path

    def _marked(self, seals: Seals | None) -> bytes:
        mark = seals.of_daemon(self.me.id, self.me.nonce) if seals is not None else ""
        return own.encode(structs.replace(self._place, mark=mark))

    async def make_endpoints(self) -> None:
        """Makes the place where admin endpoints announce themselves, which they may not where ACLs close znodes."""
        if not self.zk.set_acl:
            return
        try:
            await check_identity(self.zk)
        except WrongIdentity as wrong:
            raise ClaimRefused(str(wrong)) from wrong
        await self._ensure(own.ROOT, b"")
        await self._ensure(ENDPOINTS, b"", endpoints_acl(self._announcer))

    async def seals(self) -> Seals | None:
        """To seal, and to believe, what daemon and admin endpoints write for each other; None without a secret."""
        if self._secret is not None and self._seals is None:
            cluster_id = await read_cluster_id(self.zk)
            if not isinstance(cluster_id, str):  # no broker has started yet: read again at the next use
                return Seals(self._secret, "")
            self._seals = Seals(self._secret, cluster_id)
        return self._seals

    def take_secret(self, secret: bytes) -> None:
        """Another secret, read while the daemon runs; :meth:`seal_again` puts it into what is written already."""
        self._secret, self._seals = secret, None

    async def seal_again(self, claim: Claim | None) -> None:
        """Seals our place in the queue, and ``/controller`` while ``claim`` holds, under the present secret.

        Again, too, once the first broker has given the cluster its id. Writes nothing where both are. Raises what a
        write raises.
        """
        place, seals = self.lock_path, await self.seals()
        if place is not None and self._marked_with != seals:
            await self.zk.set(place, self._marked(seals), ANY_VERSION)
            self._marked_with = seals
        if claim is None or self._sealed_with == seals:
            return
        record, stat = await self.controller()
        if record is None or stat is None or record.regent != self.me.nonce:
            return
        fence = Check(paths.CONTROLLER_EPOCH, claim.fence_version)
        await self.zk.multi([fence, SetData(paths.CONTROLLER, self._record(seals), stat.version)])
        self._sealed_with = seals

    async def leave_queue(self) -> None:
        """Gives the place up."""
        if self.lock_path is not None:
            await delete_if_there(self.zk, self.lock_path)
            self.lock_path = None

    async def check_format(self) -> None:
        """Refuses where a later release stored what this one does not know."""
        node = await self.zk.get(own.FORMAT)
        data = node.data if node is not None else None
        stored = _understood(guarded(own.FORMAT, lambda: own.decode_format(data)))
        if stored > own.FORMAT_VERSION:
            raise ClaimRefused(
                f"{own.FORMAT} says {stored}, this release knows formats up to {own.FORMAT_VERSION}: "
                "upgrade this daemon"
            )

    async def queue(self) -> list[tuple[str, Process | None]]:
        """Lock nodes in order with the process of each."""
        return [(place.path, place.process) for place in await read_positions(self.zk)]

    async def predecessor(self) -> QueuePosition | None:
        """The place right before ours, or None where we are first. Raises :class:`PositionLost`."""
        order = await read_positions(self.zk)
        at = next((at for at, place in enumerate(order) if place.path == self.lock_path), None)
        if at is None:
            raise PositionLost(f"our lock node {self.lock_path} is gone")
        return order[at - 1] if at else None

    async def daemons(self) -> frozenset[int]:
        """Ids of all daemons that ever queued: they host no replica."""
        listed = await self.zk.children(own.DAEMONS)
        ids = (paths.number(name) for name in listed[0]) if listed is not None else ()
        return frozenset(found for found in ids if found is not None)

    # -- the role flag

    async def flag(self) -> tuple[RoleFlag, Stat | None]:
        """Who should hold the role, with the flag's stat (None: absent, which means ``brokers``).

        A flag that cannot be understood is nobody's: no daemon claims, and setting it mends it.
        """
        node = await self.zk.get(own.ROLE)
        if node is None:
            return RoleFlag("brokers"), None
        try:
            return own.decode_role(node.data), node.stat
        except msgspec.DecodeError as error:
            return RoleFlag(f"nothing that can be understood ({error})"), node.stat

    async def set_flag(self, holder: str, reason: str) -> None:
        """Sets the flag; idempotent."""
        flag, stat = await self.flag()
        if flag.holder == holder and stat is not None:
            return
        data = own.encode(RoleFlag(holder, reason=reason, since_ms=int(time.time() * 1000)))
        if stat is None:
            await self._ensure(own.ROOT, b"")
            await self.zk.create(own.ROLE, data)
        else:
            await self.zk.set(own.ROLE, data, stat.version)

    # -- the claim

    async def controller(self) -> tuple[ControllerRecord | None, Stat | None]:
        """``/controller`` as it is; a record that cannot be read counts as a broker's."""
        node = await self.zk.get(paths.CONTROLLER)
        if node is None:
            return None, None
        found = decode_controller(paths.CONTROLLER, node.data)
        if isinstance(found, Malformed):
            return ControllerRecord(-1), node.stat
        nonce = found.unknown.get("regent")
        regent = nonce if isinstance(nonce, str) else None
        record = ControllerRecord(found.broker, str(found.timestamp_ms), kraft_epoch=found.kraft_epoch, regent=regent)
        return record, node.stat

    async def claim(self) -> Claim:
        """Claims until won; raises :class:`ClaimRefused`, :class:`PositionLost`, OutcomeUnknown or NotConnected."""
        for _ in range(CLAIMS_MAX):
            flag, flag_stat = await self.flag()
            if flag.holder != "regent" or flag_stat is None:
                raise ClaimRefused(f"{own.ROLE} says {flag.holder}: run 'regent takeover' to give the role to regent")
            won = await self._claim_once(flag_stat)
            if won is not None:
                return won
        raise ClaimRefused("the claim lost to other writers too often: is something else rewriting /controller_epoch?")

    async def _claim_once(self, flag: Stat) -> Claim | None:
        place = self.lock_path
        if place is None:
            raise PositionLost("our place in the queue was given up meanwhile")
        epoch_node = await self.zk.get(paths.CONTROLLER_EPOCH)
        if epoch_node is None:
            await self._ensure(paths.CONTROLLER_EPOCH, b"0")
            return None
        epoch = _understood(decode_epoch(paths.CONTROLLER_EPOCH, epoch_node.data))
        if epoch >= EPOCH_MAX:
            raise ClaimRefused(
                f"{paths.CONTROLLER_EPOCH} is {epoch}, and brokers take no larger one: stop all brokers, which makes "
                "them forget it, set it to the largest controller_epoch of the partition states, and start them again"
            )
        record, stat = await self.controller()
        ops: list[Op] = [Check(place, ANY_VERSION), Check(own.ROLE, flag.version), *await self._migration_check()]
        at = len(ops)
        ops.append(SetData(paths.CONTROLLER_EPOCH, str(epoch + 1).encode(), epoch_node.stat.version))
        seals = await self.seals()
        ops += self._write_controller(stat, self._record(seals))
        try:
            results = await self.zk.multi(ops)
        except MultiFailed as failed:
            if failed.code is Code.NO_AUTH:
                raise ClaimRefused(
                    f"no permission to write {failed.path}: set zookeeper.digest to the credentials that locked it"
                ) from failed
            if failed.index == 0:
                raise PositionLost(f"our lock node {place} is gone") from failed
            return None
        self._sealed_with = seals
        written = results[at]
        assert isinstance(written, Stat)
        displaced = record.brokerid if record is not None and record.brokerid != self.me.id else None
        return Claim(epoch + 1, written.version, displaced, written.mzxid)

    async def _migration_check(self) -> list[Op]:
        node = await self.zk.get(paths.MIGRATION)
        if node is None:
            return []
        found = _understood(decode_migration(paths.MIGRATION, node.data))
        if found.kraft_controller_id >= 0:
            raise ClaimRefused(
                f"{paths.MIGRATION} names KRaft controller {found.kraft_controller_id}: this cluster migrates to "
                "KRaft, which regent does not control"
            )
        return [Check(paths.MIGRATION, node.stat.version)]

    def _record(self, seals: Seals | None) -> bytes:
        now_ms = str(int(time.time() * 1000))
        seal = None
        if seals is not None and self._listener is not None:
            seal = seals.of_controller(self.me.id, self.me.nonce, self._listener)
        record = ControllerRecord(self.me.id, now_ms, regent=self.me.nonce, listener=self._listener, seal=seal)
        return msgspec.json.encode(record)

    def _write_controller(self, stat: Stat | None, data: bytes) -> list[Op]:
        if stat is not None and self.hold and stat.ephemeral_owner == 0:
            return [SetData(paths.CONTROLLER, data, stat.version)]
        gone: list[Op] = [Delete(paths.CONTROLLER, stat.version)] if stat is not None else []
        return [*gone, Create(paths.CONTROLLER, data, ephemeral=not self.hold)]

    async def is_ours(self, claim: Claim) -> bool:
        """Whether ZooKeeper still holds our claim: asked after a blip and when our own watches fire."""
        await self.zk.sync(paths.CONTROLLER)
        epoch = await self.zk.exists(paths.CONTROLLER_EPOCH)
        record, _ = await self.controller()
        return (
            epoch is not None
            and epoch.version == claim.fence_version
            and record is not None
            and record.regent == self.me.nonce
        )

    # -- the lock-out

    def lock_acls(self) -> list[Acl] | None:
        """Who may write ``/controller_epoch`` in ``hold`` mode; None without credentials."""
        return lock_acls(self._digest)

    async def verify_lock(self) -> None:
        """Sets or lifts the lock-out, as the mode asks; idempotent, called after each claim."""
        acls, stat = await self.zk.get_acls(paths.CONTROLLER_EPOCH)
        lock = self.lock_acls()
        if lock is None or are_lock(acls, lock) == self.hold:
            return
        wanted = lock if self.hold else await saved_acls(self.zk)
        await self.zk.set_acls(paths.CONTROLLER_EPOCH, wanted, stat.acl_version)
        log.info(
            "brokers are locked out of the controller election by the ACL of %s"
            if self.hold
            else "on_absence is 'brokers': the lock on %s is lifted",
            paths.CONTROLLER_EPOCH,
        )

    async def release(self, claim: Claim) -> None:
        """One multi that deletes ``/controller`` and our place, fenced by the epoch: a broker is elected at once."""
        record, stat = await self.controller()
        ops: list[Op] = [Check(paths.CONTROLLER_EPOCH, claim.fence_version)]
        if stat is not None and record is not None and record.regent == self.me.nonce:
            ops.append(Delete(paths.CONTROLLER, stat.version))
        if self.lock_path is not None:
            ops.append(Delete(self.lock_path, ANY_VERSION))
        if ops[1:]:  # it may have been handed back already
            await self.zk.multi(ops)
        self.lock_path = None

    # -- helpers

    async def _ensure(self, path: str, data: bytes, acls: tuple[Acl, ...] | None = None) -> Created | None:
        try:
            return await self.zk.create(path, data, acl=acls)
        except ZkError as error:
            if error.code is not Code.NODE_EXISTS:
                raise
            return None


def _understood(found: T | Malformed) -> T:
    """What a znode says; one that cannot be understood stands in the way of a claim."""
    if isinstance(found, Malformed):
        raise ClaimRefused(
            f"{found.path} cannot be understood ({found.why}): mend it, then the daemon claims by itself"
        )
    return found
