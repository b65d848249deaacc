"""The hand-back: the role goes to the brokers, and it is not over before they all know.

Order: role flag, drain, ACLs, one multi that deletes ``/controller`` and the daemon's place, then a broker is elected.
Each step finds out for itself whether it is done, so a hand-back that was cut short anywhere is ended by the next
daemon that is first in the queue (:func:`finish`), by asking again, or with no daemon by :func:`hand_back_offline`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import anyio

from configs.settings import Settings
from controller import own_znodes as own
from controller.daemon import Daemon
from controller.event_queue import Event
from controller.modes import Mode
from controller.office import Office
from controller.preflight.finding import named
from controller.questions import Ask
from controller.reign import Reign
from controller.rollback import is_lock, saved_acls, shell_acls
from controller.standing import Standing, until
from metadata_store import paths
from metadata_store.acl import OPEN, Acl
from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, ZkError, ZooKeeperError
from metadata_store.kafka_store import KafkaStore
from metadata_store.port import ANY_VERSION, Check, Delete, Op

log = logging.getLogger("regent.role")

Note = Callable[[str], None]
"""Hears of each step that was done."""

FINISH_ROUNDS_MAX: Final = 10
"""Tries of the last multi, each lost to another writer of the same znodes."""


class HandbackRefused(Exception):
    """Nothing was changed."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


class HandbackFailed(HandbackRefused):
    """It was begun and did not come about; the text says how things stand."""


async def hand_back(daemon: Daemon, ask: Ask, reason: str, note: Note) -> Standing:
    """Gives the role to the brokers; on failure takes it back and raises :class:`HandbackFailed`."""
    office, reign = daemon.office, daemon.reign
    if office is None:
        raise HandbackRefused("this daemon has no ZooKeeper session", "wait until it is connected, then ask again")
    await _refuse_if_pointless(office, reign)
    try:
        await office.set_role("brokers", reason)
    except OutcomeUnknown as unknown:
        raise HandbackFailed(f"it is not known whether {own.ROLE} was set: {unknown}", "ask again") from unknown
    note(f"{own.ROLE} says brokers: no daemon claims any more")
    if reign is not None:
        daemon.become(Mode.HANDING_BACK, reason or "asked to")
        await drain(daemon, reign, note)
        await _give_up(office, reign, note)
    else:
        note(await finish(office) or "no daemon holds the role")
    return await _until_brokers_hold(daemon, ask)


async def _refuse_if_pointless(office: Office, reign: Reign | None) -> None:
    if not (await KafkaStore(office.zk).load_brokers()).brokers:
        raise HandbackRefused("no broker is live: nobody could take the role", "start a broker first")
    record, _ = await office.controller()
    if reign is None and record is not None and record.regent is not None:
        active = [p for _, p in await office.queue() if p is not None and p.nonce == record.regent]
        if active:
            raise HandbackRefused(
                f"the daemon on {active[0].host} (pid {active[0].pid}) holds the role, not this one", "ask it there"
            )


async def handed_back(office: Office) -> int | None:
    """The broker that holds the role where nothing of a hand-back is left to do, else None."""
    flag, _ = await office.role()
    record, _ = await office.controller()
    if flag.holder != "brokers" or record is None or record.regent is not None:
        return None
    if record.brokerid in await office.daemons() or await office.zk.exists(paths.CONTROLLER_EPOCH) is None:
        return None
    acls, _ = await office.zk.get_acls(paths.CONTROLLER_EPOCH)
    return None if is_lock(office, acls) else record.brokerid


async def drain(daemon: Daemon, reign: Reign, note: Note) -> None:
    """Brokers' calls are turned away, what is in the queue is carried out and told; all of it bounded in time."""
    within_s = daemon.settings.controller.drain_timeout_ms / 1000
    daemon.listener.resign()
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reign.queue.post(Event("settled", settled, key=("settled", id(settled)), preempt=lambda: _cancel(settled)))
    with anyio.move_on_after(within_s):
        await asyncio.wait({settled})
    behind = await reign.channels.quiesced(within_s)
    if behind:
        note(f"drained; broker {named(sorted(behind))} has not acknowledged everything, its next controller repeats it")
    else:
        note("drained: every broker acknowledged everything")


def _cancel(waiting: asyncio.Future[None]) -> None:
    waiting.cancel()


async def _give_up(office: Office, reign: Reign, note: Note) -> None:
    """Restores the ACLs, deletes our nodes, ends the term; brokers' connections are closed with it.

    The term is closed first: whoever gives the role up decides no more. ZooKeeper answers a session in order, so what
    was submitted before is settled when :meth:`Office.release` has read ``/controller``.
    """
    reign.term.close()
    try:
        if not reign.term.ended:
            await restore_acls(office, note)
            await office.release(reign.claim)
            note(f"{paths.CONTROLLER} and the place of this daemon are deleted: brokers elect a controller")
    except ZooKeeperError as error:
        log.warning("the role could not be given up in one step (%s); it is tried again", error)
    finally:
        reign.term.end("the role was handed back to the brokers")


async def _until_brokers_hold(daemon: Daemon, ask: Ask) -> Standing:
    within_s = daemon.settings.controller.handback_timeout_ms / 1000
    came_about, seen = await until(lambda: daemon.office, ask, _brokers_hold, within_s)
    if came_about and seen is not None:
        log.info("the role was handed back: %s", seen.sentence())
        return seen
    found = seen.sentence() if seen is not None else "ZooKeeper did not answer"
    await _take_back(daemon, f"hand-back undone after {within_s:g} s: {found}")
    raise HandbackFailed(
        f"{found} after {within_s:g} s, so the role was taken back",
        "look at the brokers named (are they frozen, or cut off?), then ask again, or raise "
        "controller.handback_timeout_ms",
    )


def _brokers_hold(seen: Standing) -> bool:
    return seen.held_by_broker and not seen.unaware


async def _take_back(daemon: Daemon, reason: str) -> None:
    """The flag is set again; the first daemon of the queue claims by itself."""
    log.error("%s", reason)
    while not daemon.stopping.is_set():
        try:
            if daemon.office is not None:
                await daemon.office.set_role("regent", reason)
                return
        except (NotConnected, OutcomeUnknown):
            pass
        except ZkError as error:
            if error.code is not Code.BAD_VERSION:
                raise
        await asyncio.sleep(0.2)


# -- what is left of one that was cut short


async def finish(office: Office, note: Note | None = None) -> str | None:
    """Ends a hand-back that the flag says was begun; returns what was done, None where nothing was left to do.

    Call it only while no daemon before us in the queue lives. Fenced by the version of the flag and by our own place:
    a take-over meanwhile wins.
    """
    for _ in range(FINISH_ROUNDS_MAX):
        flag, flag_stat = await office.role()
        if flag.holder != "brokers" or flag_stat is None:
            return None
        restored = await restore_acls(office, note)
        record, stat = await office.controller()
        ours = record is not None and (record.regent is not None or record.brokerid in await office.daemons())
        if stat is None or not ours:
            return "the ACL of /controller_epoch was restored" if restored else None
        ops: list[Op] = [Check(own.ROLE, flag_stat.version), Delete(paths.CONTROLLER, stat.version)]
        if office.lock_path is not None:
            ops.append(Check(office.lock_path, ANY_VERSION))
        try:
            await office.zk.multi(ops)
        except MultiFailed as failed:
            if failed.code not in (Code.BAD_VERSION, Code.NO_NODE):
                raise
        except OutcomeUnknown:
            await office.zk.sync()
        else:
            return f"{paths.CONTROLLER} of a former daemon was deleted: brokers elect a controller"
    return None


async def restore_acls(office: Office, note: Note | None = None) -> bool:
    """Gives ``/controller_epoch`` the ACLs from before the take-over, where it has the daemons' lock."""
    if await office.zk.exists(paths.CONTROLLER_EPOCH) is None:
        return False
    acls, stat = await office.zk.get_acls(paths.CONTROLLER_EPOCH)
    if not is_lock(office, acls):
        return False
    restored = await saved_acls(office)
    await office.zk.set_acls(paths.CONTROLLER_EPOCH, restored, stat.acl_version)
    if note is not None:
        note(f"{paths.CONTROLLER_EPOCH} is open to brokers again ({shell_acls(restored)})")
    return True


# -- without a daemon


async def hand_back_offline(
    settings: Settings, office: Office, ask: Ask, reason: str, note: Note, *, dry_run: bool = False
) -> Standing | None:
    """Does it on ZooKeeper alone; refused while a daemon's place in the queue lives. None for a dry run."""
    alive = [p for _, p in await office.queue() if p is not None]
    if alive:
        daemons = named(f"daemon {p.id} on {p.host} (pid {p.pid})" for p in alive)
        raise HandbackRefused(
            f"{daemons} {'lives' if len(alive) == 1 else 'live'}",
            "run 'regent handback' there; if that process is dead, its place in the queue ends "
            "with its session: wait for the session timeout and ask again",
        )
    await _refuse_if_locked_by_others(office)
    if not dry_run:
        return await _carry_out_offline(settings, office, ask, reason, note)
    note(f"set {own.ROLE} to brokers")
    note(f"restore the ACL of {paths.CONTROLLER_EPOCH}, where daemons locked it")
    note(f"delete {paths.CONTROLLER}, where it is a daemon's")
    return None


async def _carry_out_offline(settings: Settings, office: Office, ask: Ask, reason: str, note: Note) -> Standing:
    await office.set_role("brokers", reason)
    note(f"{own.ROLE} says brokers")
    note(await finish(office, note) or f"{paths.CONTROLLER} is no daemon's")
    within_s = settings.controller.handback_timeout_ms / 1000
    came_about, seen = await until(lambda: office, ask, _brokers_hold, within_s)
    if came_about and seen is not None:
        return seen
    raise HandbackFailed(
        f"the role is free, and after {within_s:g} s {seen.sentence() if seen is not None else 'nothing is known'}",
        "start a broker, or restart one that does not answer: it takes the role by itself",
    )


async def _refuse_if_locked_by_others(office: Office) -> None:
    """The lock can be lifted by those who set it only."""
    if await office.zk.exists(paths.CONTROLLER_EPOCH) is None:
        return
    acls, _ = await office.zk.get_acls(paths.CONTROLLER_EPOCH)
    users = [acl.id.partition(":")[0] for acl in acls if acl.scheme == "digest"]
    if users and not is_lock(office, acls):
        raise HandbackRefused(
            f"{paths.CONTROLLER_EPOCH} is locked by the digest user {named(users)}",
            "set zookeeper.digest_file to its user:password",
        )


def shell_lines(user: str | None = None, acls: list[Acl] | None = None) -> list[str]:
    """The same for ``zookeeper-shell.sh host:port/chroot``, for the day when no regent is at hand.

    ``user``: the digest user where ``on_absence`` was ``hold``; ``acls``: those of the roll-back file.
    """
    lines = [f"ls {own.LOCKS}", f'set {own.ROLE} {{"holder":"brokers"}}']
    if user is not None:
        lines.insert(0, f"addauth digest {user}:PASSWORD")
        lines.append(f"setAcl {paths.CONTROLLER_EPOCH} {shell_acls(acls or list(OPEN))}")
    return [*lines, f"delete {paths.CONTROLLER}", f"get {paths.CONTROLLER}"]
