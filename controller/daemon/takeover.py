"""Takes the role over: preflight, roll-back file, role flag; then a daemon claims (:mod:`controller.role.claim`).

Every step may be repeated. A crash leaves at most another roll-back file, or the flag that was requested.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
from msgspec import Struct

from brokers.queries import Dial
from brokers.security.shared_secret import existing_secret
from configs.settings import Settings
from controller.daemon.preflight.context import Context, gather
from controller.daemon.preflight.finding import PreflightReport
from controller.daemon.preflight.run import preflight
from controller.daemon.rollback import keep_in_zookeeper, present, save
from controller.kafka.path.adoption import Answer, to_keep
from controller.process.znode_acls import digest_pair
from controller.process.zookeeper_tls import ReleaseOf
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.holder import RoleHolder, until
from controller.role.own_znodes import this_process
from metadata_store.port import ZooKeeper

log = logging.getLogger("regent.role")


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
    found = await present(role, reason)
    try:
        file = await anyio.to_thread.run_sync(save, settings.state.directory, found)
    except OSError as error:
        raise TakeoverRefused(
            f"the roll-back file cannot be saved in {settings.state.directory}: {error}",
            "free space on its disk, then repeat the take-over"
            if error.errno == errno.ENOSPC
            else "let this user write there, or set state.directory",
        ) from error
    await keep_in_zookeeper(role, found)
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
