"""Checks of what will hold the role: daemons in the queue, and the place of the roll-back file."""

from __future__ import annotations

import os
from pathlib import Path

from controller.preflight.context import Context
from controller.preflight.finding import Finding, named, ok, warn


async def daemons(ctx: Context) -> Finding:
    """Somebody must be there to take the role; with ``hold`` a second one for when the first dies."""
    name = "daemons"
    queue = [f"{process.id} on {process.host} (pid {process.pid})" for process in ctx.daemons]
    if not queue:
        return warn(name, "none runs: nobody would take the role", "start 'regent run' first")
    if ctx.office.hold and len(queue) < 2:
        return warn(
            name,
            f'one ({queue[0]}), and controller.on_absence is "hold": while it is away no leader moves',
            'start a second daemon on another machine, or set controller.on_absence to "brokers"',
        )
    return ok(name, named(queue))


async def rollback_place(ctx: Context) -> Finding:
    """Where a take-over saves what was before it."""
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
