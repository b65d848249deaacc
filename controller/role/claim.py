"""Claims the controller role in ZooKeeper: the role flag, the claim, the lock-out.

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
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from brokers.security.shared_secret import Seals
from controller.role import own_znodes as own
from controller.role.history import RoleChange, write_with_entry
from controller.role.own_znodes import Process, RoleFlag
from controller.role.queue import ClaimRefused, PositionLost, QueueMember, usable
from metadata_store import paths
from metadata_store.acl import ALL, READ, Acl, default_acls, digest_id
from metadata_store.codecs.base import MalformedNode, decoded
from metadata_store.codecs.controller import (
    ControllerZnode,
    decode_controller,
    decode_epoch,
    decode_migration,
    encode_controller,
    encode_epoch,
)
from metadata_store.errors import Code, MultiFailed
from metadata_store.port import ANY_VERSION, Check, Create, Delete, Op, SetData, Stat, ZooKeeper

log = logging.getLogger("regent.role")

EPOCH_MAX: Final = 2**31 - 1

CLAIMS_MAX: Final = 20
"""Consecutive claims before the daemon starts over (each loses only to another writer)."""


class Claim(Struct, frozen=True):
    """A won claim: the epoch, the version of ``/controller_epoch`` that fences writes, the id that it displaced."""

    epoch: int
    fence_version: int
    displaced: int | None
    zxid: int


class Role(QueueMember):
    """The role as this process sees it on one session; see :class:`QueueMember` for the arguments not named here.

    ``hold``: see the module; ``digest`` is the user and the password of the lock.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        me: Process,
        *,
        hold: bool,
        digest: tuple[str, str] | None,
        listener: str | None = None,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(zk, me, listener=listener, secret=secret)
        self.hold = hold
        self._digest = digest
        self._sealed_with: Seals | None = None
        """The seals that made the seal in ``/controller``."""

    # -- the role flag

    async def flag(self) -> tuple[RoleFlag, Stat | None]:
        """Reads the flag that assigns the role, with its stat (None: absent, which means ``brokers``).

        A malformed flag assigns the role to neither side: no daemon claims until the flag is set again.
        """
        node = await self.zk.get(own.ROLE)
        if node is None:
            return RoleFlag("brokers"), None
        try:
            return own.decode_role(node.data), node.stat
        except msgspec.DecodeError as error:
            return RoleFlag(f"malformed ({error})"), node.stat

    async def set_flag(self, holder: str, reason: str, by: str) -> None:
        """Sets the flag, with an entry of the history that has ``reason`` and ``by``; idempotent.

        A daemon gives the role to regent only while it is queued. Giving it back depends on nothing but the flag.
        """
        flag, stat = await self.flag()
        if flag.holder == holder and stat is not None:
            return
        now_ms = int(time.time() * 1000)
        data = own.encode(RoleFlag(holder, reason=reason, since_ms=now_ms))
        if stat is None:
            await self._ensure(own.ROOT, b"")
        written: list[Op] = [Create(own.ROLE, data) if stat is None else SetData(own.ROLE, data, stat.version)]
        if holder == "regent" and self.position_path is not None:
            written.insert(0, Check(self.position_path, ANY_VERSION))
        await write_with_entry(self.zk, written, RoleChange(holder, now_ms, by, reason))

    # -- the holder

    async def controller(self) -> tuple[ControllerZnode | None, Stat | None]:
        """Reads ``/controller``; a malformed one counts as a broker's."""
        node = await self.zk.get(paths.CONTROLLER)
        if node is None:
            return None, None
        found = decode_controller(paths.CONTROLLER, node.data)
        return (ControllerZnode(-1) if isinstance(found, MalformedNode) else found), node.stat

    async def is_daemon(self, holder: ControllerZnode) -> bool:
        """Returns whether a daemon wrote ``holder``: it has a nonce, or the id of a daemon that once queued."""
        return holder.nonce is not None or holder.broker in await self.daemons()

    # -- the claim

    async def claim(self) -> Claim:
        """Claims until won; raises :class:`ClaimRefused`, :class:`PositionLost`, OutcomeUnknown or NotConnected."""
        for _ in range(CLAIMS_MAX):
            flag, flag_stat = await self.flag()
            if flag.holder != "regent" or flag_stat is None:
                raise ClaimRefused(f"{own.ROLE} is {flag.holder}: run 'regent takeover' to give the role to regent")
            won = await self._claim_once(flag_stat)
            if won is not None:
                return won
        raise ClaimRefused("the claim lost to other writers too often: is something else rewriting /controller_epoch?")

    async def _claim_once(self, flag: Stat) -> Claim | None:
        position_path = self.position_path
        if position_path is None:
            raise PositionLost("our queue position was given up meanwhile")
        epoch_node = await self.zk.get(paths.CONTROLLER_EPOCH)
        if epoch_node is None:
            await self._ensure(paths.CONTROLLER_EPOCH, b"0")
            return None
        epoch = usable(decode_epoch(paths.CONTROLLER_EPOCH, epoch_node.data))
        if epoch >= EPOCH_MAX:
            raise ClaimRefused(
                f"{paths.CONTROLLER_EPOCH} is {epoch}, and brokers take no larger one: stop all brokers, which makes "
                "them forget it, set it to the largest controller_epoch of the partition states, and start them again"
            )
        holder, stat = await self.controller()
        ops: list[Op] = [
            Check(position_path, ANY_VERSION),
            Check(own.ROLE, flag.version),
            *await self._migration_check(),
        ]
        at = len(ops)
        ops.append(SetData(paths.CONTROLLER_EPOCH, encode_epoch(epoch + 1), epoch_node.stat.version))
        seals = await self.seals()
        ops += self._write_controller(stat, self._own_record(seals))
        try:
            results = await self.zk.multi(ops)
        except MultiFailed as failed:
            if failed.code is Code.NO_AUTH:
                raise ClaimRefused(
                    f"no permission to write {failed.path}: set zookeeper.digest_file to the credentials that locked it"
                ) from failed
            if failed.index == 0:
                raise PositionLost(f"our lock node {position_path} is gone") from failed
            return None
        self._sealed_with = seals
        written = results[at]
        assert isinstance(written, Stat)
        displaced = holder.broker if holder is not None and holder.broker != self.me.id else None
        return Claim(epoch + 1, written.version, displaced, written.mzxid)

    async def _migration_check(self) -> list[Op]:
        node = await self.zk.get(paths.MIGRATION)
        if node is None:
            return []
        found = usable(decode_migration(paths.MIGRATION, node.data))
        if found.kraft_controller_id >= 0:
            raise ClaimRefused(
                f"{paths.MIGRATION} names KRaft controller {found.kraft_controller_id}: this cluster migrates to "
                "KRaft, which regent does not control"
            )
        return [Check(paths.MIGRATION, node.stat.version)]

    async def seal_again(self, claim: Claim | None) -> None:
        """Seals our lock node, and ``/controller`` while ``claim`` holds, with the present secret and cluster id.

        Writes nothing where they have made the present seals. Raises the errors of a write.
        """
        seals = await self.seals()
        await self.mark_again(seals)
        if claim is None or self._sealed_with == seals:
            return
        holder, stat = await self.controller()
        if holder is None or stat is None or holder.nonce != self.me.nonce:
            return
        fence = Check(paths.CONTROLLER_EPOCH, claim.fence_version)
        await self.zk.multi([fence, SetData(paths.CONTROLLER, self._own_record(seals), stat.version)])
        self._sealed_with = seals

    def _own_record(self, seals: Seals | None) -> bytes:
        now_ms = int(time.time() * 1000)
        seal = None
        if seals is not None and self._listener is not None:
            seal = seals.of_controller(self.me.id, self.me.nonce, self._listener)
        return encode_controller(
            ControllerZnode(self.me.id, now_ms, nonce=self.me.nonce, listener=self._listener, seal=seal)
        )

    def _write_controller(self, stat: Stat | None, data: bytes) -> list[Op]:
        if stat is not None and self.hold and stat.ephemeral_owner == 0:
            return [SetData(paths.CONTROLLER, data, stat.version)]
        gone: list[Op] = [Delete(paths.CONTROLLER, stat.version)] if stat is not None else []
        return [*gone, Create(paths.CONTROLLER, data, ephemeral=not self.hold)]

    async def is_ours(self, claim: Claim) -> bool:
        """Returns whether ZooKeeper still holds our claim: after a lost connection, and when our own watches fire."""
        await self.zk.sync(paths.CONTROLLER)
        epoch = await self.zk.exists(paths.CONTROLLER_EPOCH)
        holder, _ = await self.controller()
        return (
            epoch is not None
            and epoch.version == claim.fence_version
            and holder is not None
            and holder.nonce == self.me.nonce
        )

    # -- the lock-out

    def lock_out_acls(self) -> list[Acl] | None:
        """Returns the ACLs of ``/controller_epoch`` in ``hold`` mode; None without credentials."""
        return lock_out_acls(self._digest)

    async def verify_lock_out(self) -> None:
        """Sets or lifts the lock-out, as ``on_absence`` requires; idempotent, called after each claim."""
        acls, stat = await self.zk.get_acls(paths.CONTROLLER_EPOCH)
        lock = self.lock_out_acls()
        if lock is None or are_lock(acls, lock) == self.hold:
            return
        wanted = lock if self.hold else await saved_acls(self.zk)
        await self.zk.set_acls(paths.CONTROLLER_EPOCH, wanted, stat.acl_version)
        log.info(
            "brokers are locked out of the controller election by the ACL of %s"
            if self.hold
            else "the lock on %s is lifted, because controller.on_absence is 'brokers'",
            paths.CONTROLLER_EPOCH,
        )

    async def release(self, claim: Claim) -> None:
        """Deletes ``/controller`` and our lock node in one multi, fenced by the epoch: a broker is elected at once."""
        holder, stat = await self.controller()
        ops: list[Op] = [Check(paths.CONTROLLER_EPOCH, claim.fence_version)]
        if stat is not None and holder is not None and holder.nonce == self.me.nonce:
            ops.append(Delete(paths.CONTROLLER, stat.version))
        if self.position_path is not None:
            ops.append(Delete(self.position_path, ANY_VERSION))
        if ops[1:]:  # the role may have been handed back already
            await self.zk.multi(ops)
        self.position_path = None


# -- the ACLs of /controller_epoch: the daemons' lock, and those from before the last take-over


class _Saved(msgspec.Struct, frozen=True):
    """The part of a roll-back znode that this module reads."""

    acls: list[Acl]


def lock_out_acls(digest: tuple[str, str] | None) -> list[Acl] | None:
    """Returns the ACLs with which daemons lock brokers out; None without credentials."""
    if digest is None:
        return None
    return [Acl(ALL, "digest", digest_id(*digest)), Acl(READ, "world", "anyone")]


def are_lock(acls: Sequence[Acl], lock: Sequence[Acl] | None) -> bool:
    """Returns whether the ACLs are those with which daemons lock brokers out."""
    return lock is not None and set(acls) == set(lock)


async def saved_acls(zk: ZooKeeper) -> list[Acl]:
    """Reads the ACLs from before the last take-over; the default where none were saved."""
    node = await zk.get(own.ROLLBACK)
    try:
        saved = decoded(node.data or b"", _Saved).acls if node is not None else []
    except msgspec.DecodeError:
        saved = []
    return saved or unsaved_acls(zk)


def unsaved_acls(zk: ZooKeeper) -> list[Acl]:
    """Returns the ACLs with which a broker would have created the znode."""
    return list(default_acls(paths.CONTROLLER_EPOCH, secured=zk.set_acl))
