"""Checks the ensemble: releases, stored formats, the controller epoch, a migration to KRaft."""

from __future__ import annotations

import re
from typing import Final

from controller.daemon.preflight.context import MIGRATION, Context, Finding, ok, refuse, warn
from controller.process.wording import named
from controller.process.zookeeper import Release, limits_of
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.controller import NO_KRAFT_EPOCH, decode_epoch, decode_migration

DEFAULT_PORT: Final = 2181
_SERVER = re.compile(r"(?P<host>\[[^\]]+\]|[^:]+)(:(?P<port>\d+))?")

OLDEST: Final[Release] = (3, 5)
RECOMMENDED: Final[Release] = (3, 6)
EPOCH_MAX: Final = 2**31 - 10_000
"""Controller epochs are 32 bits on the wire; above this one there is no room for many terms."""


async def zookeeper_release(ctx: Context) -> Finding:
    """Checks the servers' releases: 3.5 or later is needed, 3.6 reads many znodes in one request."""
    name = "ZooKeeper release"
    found = {address: await ctx.release_of(*address) for address in servers(ctx.settings.zookeeper.connect)}
    releases = {f"{host}:{port}": release for (host, port), release in found.items()}
    old = [server for server, release in releases.items() if release is not None and release < OLDEST]
    if old:
        return refuse(name, f"{named(old)} is older than 3.5", "upgrade ZooKeeper to 3.6 or later")
    slow = [server for server, release in releases.items() if release is not None and release < RECOMMENDED]
    if slow:
        return warn(
            name, f"{named(slow)} is older than 3.6: a failover reads every znode singly", "upgrade to 3.6 or later"
        )
    silent = [server for server, release in releases.items() if release is None]
    if silent:
        return warn(
            name,
            f"{named(silent)} does not send its release",
            "start it, or allow the command srvr (4lw.commands.whitelist=srvr), if it may be older than 3.6",
        )
    return ok(name, named(f"{server} is {major}.{minor}" for server, (major, minor) in _known(releases)))


async def frozen_leader(ctx: Context) -> Finding:
    """Checks that followers give up a frozen leader well within a session: else each freeze outlasts the lease."""
    name, settings = "ZooKeeper syncLimit", ctx.settings.zookeeper
    requested_ms = settings.session_timeout_ms
    found = {f"{h}:{p}": await limits_of(h, p, settings) for h, p in servers(settings.connect)}
    known = {server: limits for server, limits in found.items() if limits is not None}
    slow = {
        server: limits
        for server, limits in known.items()
        if limits.follower_wait_ms is not None and 2 * limits.follower_wait_ms >= limits.granted(requested_ms)
    }
    if slow:
        worst = max(slow.values(), key=lambda limits: limits.follower_wait_ms or 0)
        session_ms = worst.granted(requested_ms)
        return warn(
            name,
            f"{named(slow)}: followers wait {worst.follower_wait_ms} ms (tickTime x syncLimit) for a frozen leader, "
            f"not less than half of the session of {session_ms} ms: the daemon is suspended for the rest of such a "
            "freeze",
            f"set syncLimit={max(1, (session_ms - 1) // (2 * worst.tick_ms))} (tickTime={worst.tick_ms}) on every "
            "server and restart them one after the other",
        )
    if not known:
        return ok(
            name,
            "no server sends it (conf is not in 4lw.commands.whitelist): tickTime x syncLimit, 10000 ms by default, "
            f"should be below {requested_ms // 2} ms",
        )
    waits = [limits.follower_wait_ms for limits in known.values() if limits.follower_wait_ms is not None]
    if not waits:
        return ok(name, "a single server: there is no other to wait for")
    return ok(name, f"followers wait at most {max(waits)} ms for a frozen leader")


def _known(releases: dict[str, Release | None]) -> list[tuple[str, Release]]:
    return [(server, release) for server, release in releases.items() if release is not None]


def servers(connect: str) -> list[tuple[str, int]]:
    """Returns the hosts and ports of a connect string."""
    found = [_SERVER.fullmatch(server.strip()) for server in connect.partition("/")[0].split(",")]
    return [(m["host"].strip("[]"), int(m["port"] or DEFAULT_PORT)) for m in found if m is not None]


async def stored_format(ctx: Context) -> Finding:
    """Checks the stored format: a later release of regent may have stored one that this release does not know."""
    name = "stored format"
    node = await ctx.zk.get(own.FORMAT)
    stored = own.decode_format(node.data if node is not None else None)
    if stored > own.FORMAT_VERSION:
        return refuse(
            name,
            f"{own.FORMAT} is {stored}, this release knows formats up to {own.FORMAT_VERSION}",
            "upgrade regent on this machine",
        )
    return ok(name, f"{own.ROOT} holds format {stored}" if stored else f"{own.ROOT} does not exist yet")


async def controller_epoch(ctx: Context) -> Finding:
    """Checks that the controller epoch is a number, with room above it."""
    name = "controller epoch"
    node = await ctx.zk.get(paths.CONTROLLER_EPOCH)
    if node is None:
        return ok(name, f"{paths.CONTROLLER_EPOCH} does not exist: no controller was ever elected")
    epoch = decode_epoch(paths.CONTROLLER_EPOCH, node.data)
    if isinstance(epoch, MalformedNode) or epoch > EPOCH_MAX:
        return refuse(
            name,
            f"{paths.CONTROLLER_EPOCH} holds {node.data!r}",
            "find the writer; the znode must hold the highest epoch that any broker has seen, in decimal digits",
        )
    return ok(name, f"{epoch}; {await _holder(ctx)}; a take-over makes it {epoch + 1}")


async def _holder(ctx: Context) -> str:
    """Describes the holder of the role, for operators without a running daemon."""
    holder, _ = await ctx.role.controller()
    if holder is None:
        return "the role has no holder"
    if not await ctx.role.is_daemon(holder):
        return f"broker {holder.broker} holds the role"
    alive = any(process.nonce == holder.nonce for process in ctx.daemons)
    return f"daemon {holder.broker} holds the role" if alive else f"daemon {holder.broker} held the role and is gone"


async def kraft_migration(ctx: Context) -> Finding:
    """Refuses a KRaft quorum as the controller: it holds the metadata, so no claim displaces it."""
    name = "KRaft migration"
    node = await ctx.zk.get(paths.MIGRATION)
    found = decode_migration(paths.MIGRATION, node.data) if node is not None else None
    if isinstance(found, MalformedNode) or (found is not None and found.kraft_controller_id >= 0):
        quorum = (
            "cannot be read" if isinstance(found, MalformedNode) else f"names controller {found.kraft_controller_id}"
        )
        return refuse(
            name,
            f"{paths.MIGRATION} {quorum}: this cluster migrates to KRaft",
            "regent is for ZooKeeper mode; where the migration was rolled back for good, delete "
            f"{paths.MIGRATION} as in Kafka's documentation of the roll-back",
        )
    holder, _ = await ctx.role.controller()
    if holder is not None and holder.kraft_epoch > NO_KRAFT_EPOCH:
        return refuse(
            name,
            f"{paths.CONTROLLER} was written by a KRaft controller (id {holder.broker})",
            "regent is for ZooKeeper mode",
        )
    migrating = ctx.with_config(MIGRATION, "true")
    if migrating:
        return refuse(
            name,
            f"{MIGRATION}=true on broker {named(migrating)}: such brokers forward requests to a KRaft quorum",
            f"remove {MIGRATION} from these brokers and restart them",
        )
    return ok(name, "none")
