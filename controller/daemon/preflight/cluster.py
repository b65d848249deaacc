"""Checks the cluster as a whole: its identity, ids, racks, malformed znodes, and work in progress."""

from __future__ import annotations

from typing import Final

from brokers.client import BrokerCallFailed
from configs.settings import Settings
from controller.daemon.preflight.brokers import own_principal
from controller.daemon.preflight.context import RESERVED_MAX_ID, Context, Finding, ok, refuse, warn
from controller.kafka.path.adoption import chosen
from controller.process.wording import named
from controller.role.own_znodes import Process
from metadata_store import paths
from metadata_store.nodes.cluster_nodes import read_cluster_id
from state_machines.admin_rules.broker_settings import DELETE, in_force, shown, source

IDS_APART: Final = 5_000
"""Least distance of a daemon's id from the ids that brokers generate for themselves."""


async def cluster_id(ctx: Context) -> Finding:
    """Checks that the registered brokers belong to the cluster whose metadata is in this ensemble."""
    name = "cluster id"
    here = await read_cluster_id(ctx.zk)
    if not isinstance(here, str):
        return refuse(
            name,
            f"there is no readable {paths.CLUSTER_ID}: no broker ever started on this ensemble and chroot",
            "compare zookeeper.connect with the brokers' (the chroot after the last address too), or start a broker",
        )
    responses = {b: a.metadata for b, a in ctx.responding().items() if not isinstance(a.metadata, BrokerCallFailed)}
    others = [f"broker {b} has {found.cluster_id}" for b, found in responses.items() if found.cluster_id != here]
    if others:
        return refuse(
            name,
            f"ZooKeeper has {here}, {named(others)}",
            "stop the broker that registered on the wrong ensemble, or fix its advertised listeners",
        )
    return ok(name, here)


async def live_brokers(ctx: Context) -> Finding:
    """Checks that a broker is live: one must be able to take the role back."""
    name = "live brokers"
    if not ctx.brokers:
        return refuse(name, f"no broker is registered below {paths.BROKER_IDS}", "start the brokers")
    return ok(name, named(sorted(ctx.brokers), most=20))


async def own_id(ctx: Context) -> Finding:
    """Checks that no broker and no other daemon has the daemon's id, and that no broker can generate it."""
    name, me = "controller.id", ctx.settings.controller.id
    if me in ctx.brokers:
        return refuse(name, f"broker {me} has it", "give controller.id a number far above every broker's id")
    if twins := _twins(ctx, me):
        seen = named(f"{p.host} (pid {p.pid}{f', at {p.listener}' if p.listener else ''})" for p in twins)
        return refuse(
            name,
            f"{me} is also the id of the daemon on {seen}",
            "give every daemon its own controller.id; where it is this daemon with earlier settings, restart it",
        )
    reserved = [int(c.get(RESERVED_MAX_ID) or 0) for c in ctx.configs().values() if c.get(RESERVED_MAX_ID)]
    generated = max([*reserved, ctx.settings.brokers.reserved_broker_max_id])
    if me <= generated + IDS_APART:
        return refuse(
            name,
            f"{me} is near the ids that brokers generate, from {generated + 1} up",
            f"give an id above {generated + IDS_APART}",
        )
    return _id_in_assignments(ctx, me)


def _twins(ctx: Context, me: int) -> list[Process]:
    """Returns queued daemons with our id, except the one of these settings, which has their listener address."""
    same_id = [p for p in ctx.daemons if p.id == me and p.nonce != ctx.role.me.nonce]
    elsewhere = [p for p in same_id if not of_these_settings(ctx.settings, p)]
    if ctx.role.position_path is not None or len(same_id) > 1:
        return same_id
    return elsewhere


def of_these_settings(settings: Settings, process: Process) -> bool:
    """Returns whether a daemon may have these settings: their id and, where known, their listener address."""
    listener = settings.listener
    host, _, port = process.listener.rpartition(":")
    wanted = listener.advertised_port or listener.port
    same_address = host == listener.advertised_host and (not wanted or port == str(wanted))
    return process.id == settings.controller.id and (not process.listener or same_address)


def _id_in_assignments(ctx: Context, me: int) -> Finding:
    hosted = [f"{topic.name}-{p}" for topic in ctx.topics for p, a in topic.partitions.items() if me in a.replicas]
    if hosted:
        return warn(
            "controller.id",
            f"no broker has {me}, but {named(hosted)} name it as a replica",
            "move these replicas to brokers with kafka-reassign-partitions: a daemon hosts none",
        )
    return ok("controller.id", f"no broker has {me}")


async def racks(ctx: Context) -> Finding:
    """Checks that all brokers or none have a rack: else brokers refuse automatic topic creation."""
    name = "racks"
    without = [b for b, broker in ctx.brokers.items() if broker.rack is None]
    if without and len(without) < len(ctx.brokers):
        return warn(
            name,
            f"broker {named(sorted(without))} has no rack and others have: automatic topic creation fails",
            "set broker.rack on every broker, or on none",
        )
    return ok(name, "no broker has one" if without else "every broker has one")


async def readable(ctx: Context) -> Finding:
    """Reports malformed znodes: regent leaves them alone, and their partitions get no leader."""
    name = "znodes"
    if ctx.malformed:
        return warn(
            name,
            f"{len(ctx.malformed)} cannot be used: {named(f'{bad.path} ({bad.why})' for bad in ctx.malformed)}",
            "repair or delete them; the rest of the cluster is served",
        )
    return ok(name, f"{len(ctx.topics)} topics, {sum(len(topic.partitions) for topic in ctx.topics)} partitions")


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
