"""Checks work in progress: the daemon continues it, and the findings describe the outcome."""

from __future__ import annotations

from typing import Final

from brokers.client import BrokerCallFailed
from controller.daemon.preflight.brokers import own_principal
from controller.daemon.preflight.context import Context
from controller.daemon.preflight.finding import Finding, ok, warn
from controller.kafka.path.adoption import chosen
from controller.process.wording import named
from metadata_store import paths
from state_machines.admin_rules.broker_settings import DELETE, in_force, shown, source

ONLINE: Final = 0


async def reassignments(ctx: Context) -> Finding:
    """Reports running reassignments: they continue, as at any change of the controller."""
    name = "running reassignments"
    running = [f"{t.name}-{p}" for t in ctx.topics for p, a in t.partitions.items() if a.adding or a.removing]
    return ok(name, f"{named(running)}: carried on" if running else "none")


async def reassignment_request(ctx: Context) -> Finding:
    """Reports the znode by which old tools request a reassignment: a term reads it when it begins."""
    name = "requested reassignments"
    requested = await ctx.zk.exists(paths.REASSIGN_PARTITIONS) is not None
    return ok(name, f"{paths.REASSIGN_PARTITIONS} exists: carried out" if requested else "none")


async def preferred_request(ctx: Context) -> Finding:
    """Reports the znode by which old tools request preferred elections: the next controller executes it."""
    requested = await ctx.zk.exists(paths.PREFERRED_ELECTION) is not None
    return ok("requested elections", "carried out after the take-over" if requested else "none")


async def deletions(ctx: Context) -> Finding:
    """Reports topics marked for deletion: a daemon deletes them, or removes the markers where deletion is disabled."""
    name = "topic deletions"
    listed = await ctx.zk.children(paths.DELETE_TOPICS)
    if listed is None or not listed[0]:
        return ok(name, "none")
    marked = f"{named(sorted(listed[0]))} below {paths.DELETE_TOPICS}"
    held = in_force(chosen(ctx.settings.controller), ctx.configs())[DELETE]
    if held.value:
        return ok(name, f"{marked}: carried on")
    return warn(
        name,
        f"{marked}, and delete.topic.enable is {shown(held.value)} ({source(held)}): the markers will be removed and "
        "the topics stay",
        "set delete.topic.enable to true on every broker if they are to be deleted",
    )


async def log_directories(ctx: Context) -> Finding:
    """Reports offline log directories; a broker that does not send them is queried again at the take-over."""
    name = "log directories"
    offline = [
        f"{path} of broker {b}"
        for b, facts in ctx.responding().items()
        if not isinstance(facts.log_dirs, BrokerCallFailed)
        for path, error in facts.log_dirs.items()
        if error != ONLINE
    ]
    if offline:
        return warn(
            name,
            f"offline: {named(offline)}",
            "repair the directory and restart its broker: until then its replicas there are offline",
        )
    unknown = [b for b, facts in ctx.responding().items() if isinstance(facts.log_dirs, BrokerCallFailed)]
    if unknown:
        return warn(
            name,
            f"broker {named(unknown)} does not send its log directories: {ctx.responding()[unknown[0]].log_dirs}",
            f"allow {own_principal(ctx)} Describe on the cluster",
        )
    return ok(name, "all online")
