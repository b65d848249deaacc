"""Hands the role back to the brokers; this is complete once every live broker knows the new controller.

Order: role flag, drain, ACLs, one multi that deletes ``/controller`` and the daemon's lock node, then a broker is
elected. Each step checks whether it is already done. So the next daemon that is first in the queue completes an
interrupted hand-back (:func:`finish`), as does a repeated one, or :func:`hand_back_offline` where no daemon runs. A
running daemon (:func:`hand_back`) takes the role back where no broker takes it over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from brokers.queries import Dial
from configs.settings import Settings
from controller.daemon.state import DaemonState, Mode
from controller.daemon.takeover import shell_acls
from controller.kafka.term.term import Term
from controller.process.wording import named
from controller.role import own_znodes as own
from controller.role.claim import Role, are_lock, saved_acls
from controller.role.holder import RoleHolder, until
from metadata_store import paths
from metadata_store.acl import OPEN, Acl
from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, ZkError, ZooKeeperError
from metadata_store.port import ANY_VERSION, Check, Delete, Op
from metadata_store.reads import read_brokers

log = logging.getLogger("regent.role")

Note = Callable[[str], None]
"""Receives a sentence for each completed step."""

FINISH_ROUNDS_MAX: Final = 10
"""Tries of the last multi, each lost to another writer of the same znodes."""

HOLD_S_MAX: Final = 10.0
"""Longest wait until throttles of plans are lifted; a hand-back goes on without that."""


class HandbackRefused(Exception):
    """A hand-back that was refused before it changed anything."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


class HandbackFailed(HandbackRefused):
    """A hand-back that was begun and did not complete; the text describes the present state."""


async def hand_back(daemon: DaemonState, dial: Dial, reason: str, note: Note, by: str) -> RoleHolder:
    """Gives the role to the brokers; on failure takes it back and raises :class:`HandbackFailed`."""
    role, term = daemon.role, daemon.term
    if role is None:
        raise HandbackRefused("this daemon has no ZooKeeper session", "wait until it is connected, then try again")
    await _refuse_if_pointless(role, term)
    for step in await term.procedures.hold(HOLD_S_MAX) if term is not None else ():
        note(step)
    try:
        await role.set_flag("brokers", reason, by)
    except OutcomeUnknown as unknown:
        raise HandbackFailed(f"it is not known whether {own.ROLE} was set: {unknown}", "try again") from unknown
    note(f"{own.ROLE} is brokers: no daemon claims any more")
    if term is not None:
        daemon.become(Mode.HANDING_BACK, reason or "an operator requested it")
        await term.drain(daemon.listener, daemon.settings.controller.drain_timeout_ms / 1000, note)
        await _give_up(role, term, note)
    else:
        note(await finish(role) or "no daemon holds the role")
    return await _until_brokers_hold(daemon, dial)


async def _refuse_if_pointless(role: Role, term: Term | None) -> None:
    if not (await read_brokers(role.zk)).brokers:
        raise HandbackRefused("no broker is live that could take the role", "start a broker first")
    holder, _ = await role.controller()
    if term is None and holder is not None and holder.nonce is not None:
        active = [p for _, p in await role.queue() if p is not None and p.nonce == holder.nonce]
        if active:
            raise HandbackRefused(
                f"the daemon on {active[0].host} (pid {active[0].pid}) holds the role, not this one",
                "run it there",
            )


async def _give_up(role: Role, term: Term, note: Note) -> None:
    """Restores the ACLs, deletes our nodes, ends the term; brokers' connections are closed with it.

    The gate is closed first, because a released role decides no more. ZooKeeper answers a session in order, so earlier
    writes are settled when :meth:`Role.release` has read ``/controller``.
    """
    term.gate.close()
    try:
        if not term.gate.ended:
            await restore_acls(role, note)
            await role.release(term.claim)
            note(f"{paths.CONTROLLER} and the queue position of this daemon are deleted: brokers elect a controller")
    except ZooKeeperError as error:
        log.warning("the role was not released (%s): the first daemon in the queue completes the hand-back", error)
    finally:
        term.gate.end("the role was handed back to the brokers")


async def _until_brokers_hold(daemon: DaemonState, dial: Dial) -> RoleHolder:
    within_s = daemon.settings.controller.handback_timeout_ms / 1000
    done, seen = await until(lambda: daemon.role, dial, brokers_hold, within_s)
    if done and seen is not None:
        log.info("the role was handed back: %s", seen.sentence())
        return seen
    found = seen.sentence() if seen is not None else "ZooKeeper did not answer"
    await _take_back(daemon, f"hand-back undone after {within_s:g} s: {found}")
    raise HandbackFailed(
        f"{found} after {within_s:g} s, so the role was taken back",
        "look at the brokers named (are they frozen, or cut off?), then try again, or raise "
        "controller.handback_timeout_ms",
    )


async def _take_back(daemon: DaemonState, reason: str) -> None:
    """Sets the flag to regent again; the first daemon of the queue then claims by itself."""
    log.error("%s", reason)
    while not daemon.stopping.is_set():
        try:
            if daemon.role is not None:
                await daemon.role.set_flag("regent", reason, "the daemon")
                return
        except (NotConnected, OutcomeUnknown):
            pass
        except ZkError as error:
            if error.code not in (Code.BAD_VERSION, Code.NO_NODE, Code.NODE_EXISTS):
                raise
        await asyncio.sleep(0.2)


async def handed_back(role: Role) -> int | None:
    """Returns the broker that holds the role after a complete hand-back, else None."""
    flag, _ = await role.flag()
    holder, _ = await role.controller()
    if flag.holder != "brokers" or holder is None or await role.is_daemon(holder):
        return None
    if await role.zk.exists(paths.CONTROLLER_EPOCH) is None:
        return None
    acls, _ = await role.zk.get_acls(paths.CONTROLLER_EPOCH)
    return None if are_lock(acls, role.lock_out_acls()) else holder.broker


def brokers_hold(seen: RoleHolder) -> bool:
    """Returns whether a broker holds the role and every live broker knows it."""
    return seen.held_by_broker and not seen.unaware


# -- completion of an interrupted hand-back


async def finish(role: Role, note: Note | None = None) -> str | None:
    """Completes the hand-back that the flag requests; returns a sentence about it, None where it was complete.

    Call it only while no daemon before us in the queue lives. The multi checks the version of the flag and our own
    lock node, so that a concurrent take-over wins.
    """
    for _ in range(FINISH_ROUNDS_MAX):
        flag, flag_stat = await role.flag()
        if flag.holder != "brokers" or flag_stat is None:
            return None
        restored = await restore_acls(role, note)
        holder, stat = await role.controller()
        if stat is None or holder is None or not await role.is_daemon(holder):
            return "the ACL of /controller_epoch was restored" if restored else None
        ops: list[Op] = [Check(own.ROLE, flag_stat.version), Delete(paths.CONTROLLER, stat.version)]
        if role.position_path is not None:
            ops.append(Check(role.position_path, ANY_VERSION))
        try:
            await role.zk.multi(ops)
        except MultiFailed as failed:
            if failed.code not in (Code.BAD_VERSION, Code.NO_NODE):
                raise
        except OutcomeUnknown:
            await role.zk.sync()
        else:
            return f"{paths.CONTROLLER} of a former daemon was deleted: brokers elect a controller"
    return None


async def restore_acls(role: Role, note: Note | None = None) -> bool:
    """Gives ``/controller_epoch`` the ACLs from before the take-over where the daemons' lock is set."""
    if await role.zk.exists(paths.CONTROLLER_EPOCH) is None:
        return False
    acls, stat = await role.zk.get_acls(paths.CONTROLLER_EPOCH)
    if not are_lock(acls, role.lock_out_acls()):
        return False
    restored = await saved_acls(role.zk)
    await role.zk.set_acls(paths.CONTROLLER_EPOCH, restored, stat.acl_version)
    if note is not None:
        note(f"{paths.CONTROLLER_EPOCH} is open to brokers again ({shell_acls(restored)})")
    return True


# -- without a daemon


async def hand_back_offline(
    settings: Settings, role: Role, dial: Dial, reason: str, note: Note, *, by: str, dry_run: bool = False
) -> RoleHolder | None:
    """Hands back on ZooKeeper alone; refused while a daemon has a queue position. Returns None for a dry run."""
    alive = [p for _, p in await role.queue() if p is not None]
    if alive:
        daemons = named(f"daemon {p.id} on {p.host} (pid {p.pid})" for p in alive)
        raise HandbackRefused(
            f"{daemons} {'lives' if len(alive) == 1 else 'live'}",
            "run 'regent handback' there; if that process is dead, its queue position ends with its session: wait for "
            "the session timeout and try again",
        )
    await _refuse_if_locked_by_others(role)
    if not dry_run:
        await role.set_flag("brokers", reason, by)
        return await _carry_out_offline(settings, role, dial, note)
    note(f"set {own.ROLE} to brokers")
    note(f"restore the ACL of {paths.CONTROLLER_EPOCH}, where daemons locked it")
    note(f"delete {paths.CONTROLLER}, where a daemon wrote it")
    return None


async def _carry_out_offline(settings: Settings, role: Role, dial: Dial, note: Note) -> RoleHolder:
    note(f"{own.ROLE} is brokers")
    note(await finish(role, note) or f"{paths.CONTROLLER} is not a daemon's")
    within_s = settings.controller.handback_timeout_ms / 1000
    done, seen = await until(lambda: role, dial, brokers_hold, within_s)
    if done and seen is not None:
        return seen
    raise HandbackFailed(
        f"the role is free, and after {within_s:g} s {seen.sentence() if seen is not None else 'nothing is known'}",
        "start a broker, or restart one that does not answer: it takes the role by itself",
    )


async def _refuse_if_locked_by_others(role: Role) -> None:
    """Raises :class:`HandbackRefused` where other credentials set the lock: only they can lift it."""
    if await role.zk.exists(paths.CONTROLLER_EPOCH) is None:
        return
    acls, _ = await role.zk.get_acls(paths.CONTROLLER_EPOCH)
    users = [acl.id.partition(":")[0] for acl in acls if acl.scheme == "digest"]
    if users and not are_lock(acls, role.lock_out_acls()):
        raise HandbackRefused(
            f"{paths.CONTROLLER_EPOCH} is locked by the digest user {named(users)}",
            "set zookeeper.digest_file to its user:password",
        )


def shell_lines(user: str | None = None, acls: list[Acl] | None = None) -> list[str]:
    """Returns the hand-back as lines for ``zookeeper-shell.sh host:port/chroot``, where no regent is available.

    ``user``: the digest user where ``on_absence`` was ``hold``; ``acls``: those of the roll-back file.
    """
    lines = [f"ls {own.LOCKS}", f'set {own.ROLE} {{"holder":"brokers"}}']
    if user is not None:
        lines.insert(0, f"addauth digest {user}:PASSWORD")
        lines.append(f"setAcl {paths.CONTROLLER_EPOCH} {shell_acls(acls or list(OPEN))}")
    return [*lines, f"delete {paths.CONTROLLER}", f"get {paths.CONTROLLER}"]
