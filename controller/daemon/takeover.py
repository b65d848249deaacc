"""Takes the role over: preflight, roll-back file, role flag; then a daemon claims (:mod:`controller.role.claim`).

Every step may be repeated. A crash leaves at most another roll-back file, or the flag that was requested.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec
from msgspec import Struct

from brokers.queries import Dial
from brokers.security.shared_secret import existing_secret
from configs.settings import Settings
from controller.daemon.preflight.context import Context, PreflightReport, gather
from controller.daemon.preflight.run import preflight
from controller.journal.segments import sync_folder
from controller.kafka.path.adoption import Answer, to_keep
from controller.process.zookeeper import ReleaseOf, digest_pair
from controller.role import own_znodes as own
from controller.role.claim import Role, are_lock, saved_acls, unsaved_acls
from controller.role.holder import RoleHolder, until
from controller.role.own_znodes import RoleFlag, this_process
from metadata_store import paths
from metadata_store.acl import ADMIN, CREATE, DELETE, READ, WRITE, Acl
from metadata_store.codecs.controller import controller_fields
from metadata_store.errors import Code, ZkError
from metadata_store.port import ZooKeeper

log = logging.getLogger("regent.role")

_PERMS: Final = {READ: "r", WRITE: "w", CREATE: "c", DELETE: "d", ADMIN: "a"}


class TakeoverRefused(Exception):
    """A take-over that was refused before it changed anything. ``report``: the findings where the preflight refuses."""

    def __init__(self, why: str, remedy: str, report: PreflightReport | None = None) -> None:
        super().__init__(f"{why} ({remedy})")
        self.why = why
        self.remedy = remedy
        self.report = report


class Takeover(Struct, frozen=True):
    """The steps done, or planned by a dry run. ``report`` is None where the flag was ``regent`` already."""

    steps: list[str]
    report: PreflightReport | None = None
    file: Path | None = None


def role_of(settings: Settings, zk: ZooKeeper) -> Role:
    """Creates the role for an operator's command, which never queues."""
    return Role(
        zk,
        this_process(settings.controller.id),
        hold=settings.controller.on_absence == "hold",
        digest=digest_pair(settings),
        secret=existing_secret(settings.secret_file),
    )


async def take_over(
    settings: Settings,
    role: Role,
    *,
    dial: Dial,
    release_of: ReleaseOf,
    reason: str,
    by: str,
    own_listener: bool = False,
    dry_run: bool = False,
) -> Takeover:
    """Assigns the role to regent; raises :class:`TakeoverRefused`. Checks nothing where the flag is set already."""
    flag, stat = await role.flag()
    if flag.holder == "regent" and stat is not None:
        return Takeover([f"{own.ROLE} is regent already{f' (reason: {flag.reason})' if flag.reason else ''}"])
    ctx = await gather(settings, role, dial, release_of, own_listener=own_listener)
    report = await preflight(ctx)
    if report.refusals:
        raise TakeoverRefused(
            f"the preflight refuses: {report.sentence()}", "repair what it names, then try again", report
        )
    holder, _ = await role.controller()
    steps = _steps(settings, role, holder.broker if holder is not None else None)
    if dry_run:
        return Takeover(steps, report)
    file = await _saved(settings, role, reason)
    await _keep_settings(ctx)
    await role.set_flag("regent", reason, by)
    log.info("the role is regent's from now on (%s); the state before it is in %s", reason or "no reason given", file)
    return Takeover(steps, report, file)


async def _saved(settings: Settings, role: Role, reason: str) -> Path:
    """Saves the roll-back on this machine, then in ZooKeeper; the flag is set after both."""
    found = await state_before(role, reason)
    try:
        file = await anyio.to_thread.run_sync(save_rollback, settings.state.directory, found)
    except OSError as error:
        raise TakeoverRefused(
            f"the roll-back file cannot be saved in {settings.state.directory}: {error}",
            "free space on its disk, then repeat the take-over"
            if error.errno == errno.ENOSPC
            else "let this user write there, or set state.directory",
        ) from error
    await keep_rollback(role, found)
    return file


async def _keep_settings(ctx: Context) -> None:
    """Stores the brokers' settings as the preflight read them, so that the claiming daemon knows them at once."""
    configs = ctx.configs()
    data = to_keep({broker: Answer(ctx.brokers[broker].epoch, found) for broker, found in configs.items()})
    stat = await ctx.zk.exists(own.BROKER_SETTINGS)
    if stat is None:
        await ctx.zk.create(own.BROKER_SETTINGS, data)
    else:
        await ctx.zk.set(own.BROKER_SETTINGS, data, stat.version)


def _steps(settings: Settings, role: Role, holder: int | None) -> list[str]:
    steps = [
        f"save a roll-back file in {settings.state.directory}, and the same in ZooKeeper",
        f"set {own.ROLE} to regent",
        f"the first daemon of the queue claims the next controller epoch; {_displaced(holder)}",
    ]
    if role.hold:
        steps.append("it locks brokers out of the controller election by the ACL of /controller_epoch")
    return [*steps, "it sends every broker the whole metadata, with itself as the controller"]


def _displaced(holder: int | None) -> str:
    return f"controller {holder} resigns" if holder is not None else "the role has no holder now"


async def until_held(role: Callable[[], Role | None], dial: Dial, within_s: float) -> tuple[bool, RoleHolder | None]:
    """Waits until a daemon holds the role and every live broker's metadata names it."""
    return await until(role, dial, lambda seen: seen.by_daemon and not seen.unaware, within_s)


# -- the state before a take-over


class Rollback(msgspec.Struct, frozen=True):
    """State before a take-over, saved in a file on this machine and, for the other daemons, in ZooKeeper.

    A hand-back needs ``acls``, those of ``/controller_epoch``, which ``on_absence = "hold"`` replaces. ``controller``:
    the fields of that znode; ``epoch``: None before the first election.
    """

    taken_ms: int
    controller: dict[str, object] | None
    epoch: int | None
    acls: list[Acl]
    role: RoleFlag
    reason: str = ""
    version: int = 1


async def state_before(role: Role, reason: str) -> Rollback:
    """Reads the present state. ACLs that are our own lock (an interrupted hand-back) give way to those saved before."""
    controller, _ = await role.controller()
    node = await role.zk.get(paths.CONTROLLER_EPOCH)
    flag, _ = await role.flag()
    acls = unsaved_acls(role.zk) if node is None else (await role.zk.get_acls(paths.CONTROLLER_EPOCH))[0]
    if are_lock(acls, role.lock_out_acls()):
        acls = await saved_acls(role.zk)
    epoch = None if node is None else int(node.data or b"0")
    fields = controller_fields(controller) if controller is not None else None
    return Rollback(int(time.time() * 1000), fields, epoch, acls, flag, reason)


async def keep_rollback(role: Role, found: Rollback) -> None:
    """Replaces the roll-back of the previous take-over."""
    data = msgspec.json.encode(found)
    node = await role.zk.get(own.ROLLBACK)
    if node is not None:
        await role.zk.set(own.ROLLBACK, data, node.stat.version)
        return
    for path, content in ((own.ROOT, b""), (own.ROLLBACK, data)):
        try:
            await role.zk.create(path, content)
        except ZkError as error:
            if error.code is not Code.NODE_EXISTS:
                raise


def save_rollback(folder: Path, found: Rollback) -> Path:
    """Writes a new file and returns its path; raises OSError. A file with its name is complete and on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(found.taken_ms / 1000))
    draft = folder / f".rollback-{os.getpid()}.tmp"
    with suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return _give_name(draft, folder, f"rollback-{stamp}-epoch-{found.epoch if found.epoch is not None else 'none'}")
    finally:
        draft.unlink()
        sync_folder(folder)


def _give_name(draft: Path, folder: Path, stem: str) -> Path:
    """Gives the file its name without replacing another file."""
    number = 0
    while True:
        final = folder / f"{stem}{f'-{number}' if number else ''}.json"
        try:
            os.link(draft, final)
        except FileExistsError:
            number += 1
        else:
            return final


def shell_acls(acls: Sequence[Acl]) -> str:
    """Returns the ACLs in the form that ZooKeeper's shell reads: ``scheme:id:cdrwa``."""
    return ",".join(
        f"{acl.scheme}:{acl.id}:{''.join(letter for perm, letter in _PERMS.items() if acl.perms & perm)}"
        for acl in acls
    )
