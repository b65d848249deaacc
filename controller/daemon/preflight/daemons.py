"""Checks the future holders of the role: daemons in the queue, their secrets, and the folder of the roll-back file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from brokers.security.shared_secret import Seals, secret_trouble
from configs.advice import advice
from configs.daemon_user import daemon_user
from controller.daemon.preflight.context import Context, Finding, ok, warn
from controller.process.wording import named
from controller.role.queue import QueuePosition, read_positions

SKEW_S_MAX: Final = 2.0
"""Largest difference between the clocks of a daemon and of ZooKeeper's leader, request latency included."""


async def daemons(ctx: Context) -> Finding:
    """Checks that a daemon can take the role, and with ``hold`` a second one after the first dies."""
    name = "daemons"
    queue = [f"{process.id} on {process.host} (pid {process.pid})" for process in ctx.daemons]
    if not queue:
        return warn(name, "none runs that could take the role", "start 'regent run' first")
    if ctx.role.hold and len(queue) < 2:
        return warn(
            name,
            f'one ({queue[0]}), and controller.on_absence is "hold": while it is away no leader moves',
            'start a second daemon on another machine, or set controller.on_absence to "brokers"',
        )
    return ok(name, named(queue))


async def daemons_agree(ctx: Context) -> Finding:
    """Compares the admin secret and the clock of every daemon in the queue."""
    name = "daemons agree"
    positions = [position for position in await read_positions(ctx.zk) if position.process is not None]
    seals = await ctx.role.seals()
    other = [_daemon(p) for p in positions if seals is not None and not _same_secret(seals, p)]
    without = [_daemon(p) for p in positions if p.process is not None and not p.process.mark]
    if without:
        return warn(
            name,
            f"daemon {named(without)} has no admin secret that it can use: while it holds the role, Kafka's tools find "
            "no controller",
            f"repair {ctx.settings.secret_file} on its machine as its log describes (the daemon reads it again), or "
            "upgrade a daemon of an earlier release",
        )
    if other:
        return warn(
            name,
            f"daemon {named(other)} has another admin secret than this machine: Kafka's tools would be refused where "
            "the role and the endpoint are on different machines",
            f"copy {ctx.settings.secret_file} to every machine with a daemon or an endpoint, for the user of both, and "
            "restart the endpoints (daemons read it again by themselves)",
        )
    skewed = [f"{_daemon(p)} by {skew_s:+.1f} s" for p in positions if abs(skew_s := _skew_s(p)) > SKEW_S_MAX]
    if skewed:
        return warn(
            name,
            f"the clock differs from ZooKeeper's: {named(skewed)}; the journals of both daemons would not fit together",
            "let NTP set the clocks of daemons and ZooKeeper servers",
        )
    if seals is None:
        return ok(name, f"{len(positions)} clocks compared; {_not_compared(ctx.settings.secret_file)}")
    return ok(name, f"{len(positions)} daemons have the same admin secret, and ZooKeeper's clock")


def _daemon(position: QueuePosition) -> str:
    return f"{position.process.id} on {position.process.host}" if position.process is not None else position.path


def _not_compared(file: Path) -> str:
    try:
        there = file.exists()
    except OSError:
        there = True
    if there:
        return f"{file} is not readable here to compare it"
    return f"there is no {file} yet to compare: a daemon or its admin endpoint makes it at its start"


def _same_secret(seals: Seals, position: QueuePosition) -> bool:
    found = position.process
    return found is None or not found.mark or found.mark == seals.of_daemon(found.id, found.nonce)


def _skew_s(position: QueuePosition) -> float:
    known = position.process is not None and position.process.clock_ms and position.queued_ms
    return (position.process.clock_ms - position.queued_ms) / 1000 if known and position.process is not None else 0.0


async def rollback_place(ctx: Context) -> Finding:
    """Checks that a take-over can save its roll-back file."""
    name, folder = "roll-back file", ctx.settings.state.directory
    if not _writable(folder):
        return warn(
            name,
            f"state.directory {folder} cannot be written to by this user: a take-over from here would refuse",
            "create it for the user that takes over, or set state.directory",
        )
    return ok(name, f"goes to {folder}")


def _writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


async def exposure(ctx: Context) -> Finding:
    """Checks files with secrets, passwords on the wire, and the admin endpoint's identity at ZooKeeper."""
    trouble = secret_trouble(ctx.settings.secret_file, daemon_user(ctx.settings.state.directory))
    found = [*advice(ctx.settings), *([f"{trouble}; without it Kafka's tools find no controller"] if trouble else [])]
    if not found:
        return ok("secrets", "no file of a secret is open to others, no password crosses the network in plain text")
    return warn("secrets", "; ".join(found), "repair what it names")
