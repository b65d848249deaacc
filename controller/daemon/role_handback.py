"""Hands the role back while a daemon runs: flag, drain, ACLs, end of the term; undone if no broker takes over."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from brokers.queries import Dial
from controller.daemon.daemon import Daemon
from controller.daemon.handback import HandbackFailed, HandbackRefused, Note, brokers_hold, finish, restore_acls
from controller.kafka.term.term import Term
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.holder import RoleHolder, until
from controller.role.mode import Mode
from metadata_store import paths
from metadata_store.errors import Code, NotConnected, OutcomeUnknown, ZkError, ZooKeeperError
from metadata_store.reads import read_brokers

log = logging.getLogger("regent.role")

HOLD_S_MAX: Final = 10.0
"""Longest wait until throttles of plans are lifted; a hand-back goes on without that."""


async def hand_back(daemon: Daemon, dial: Dial, reason: str, note: Note, by: str) -> RoleHolder:
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


async def _until_brokers_hold(daemon: Daemon, dial: Dial) -> RoleHolder:
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


async def _take_back(daemon: Daemon, reason: str) -> None:
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
