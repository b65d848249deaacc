"""Makes the regions' domain from the settings."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

from brokers.listener.entrance import ServerTls
from brokers.listener.inbound import ListenerLimits
from brokers.regions.listener import RegionListener
from brokers.regions.secret import NO_SECRETS, Secrets, regions_secrets
from configs.settings import Settings
from controller.journal.journal import Journal
from controller.journal.segments import regions_folder_in
from controller.process.wording import name_of
from controller.process.zookeeper import connections
from controller.regions.claim import Opened, Opening
from controller.regions.dispatcher import HOLD_FRACTION, DispatchLimits
from controller.regions.domain import RegionsDomain
from controller.regions.environment import Options
from controller.regions.metrics import RegionCounters
from controller.regions.sqlite_store import SqliteOpened
from controller.regions.zookeeper_store import ZooKeeperOpened

CALL_EXTRA_MS = 25_000
"""Time for a request beyond the longest wait for operations; after it the connection is closed."""


def regions_secrets_of(settings: Settings) -> Secrets:
    """Reads the secrets of servers and clients; raises ``SecurityUnusable``."""
    return regions_secrets(settings.regions.secret_file, settings.regions.clients_secret_file)


def domain_of(settings: Settings, tls: ServerTls | None, secrets: Secrets = NO_SECRETS) -> RegionsDomain:
    """Returns the domain that the settings describe. ``tls``: the daemon's own, where its listeners use TLS."""
    wanted = settings.regions
    listener = RegionListener(
        settings.regions_host,
        wanted.port,
        listener_limits(settings),
        secrets=secrets,
        tls=tls,
        daemon=name_of(settings),
    )
    counters = RegionCounters(hellos_refused=listener.hellos_refused)
    return RegionsDomain(
        _opening(settings),
        listener,
        Options.of(wanted),
        wall_ms=lambda: int(time.time() * 1000),
        limits=DispatchLimits(wanted.delay_ms, wanted.batch_max, wanted.in_flight_max),
        placement=wanted.placement,
        counters=counters,
        journal=_journal(settings, counters),
        daemon=settings.controller.id,
        socket=str(settings.http.socket),
    )


def _opening(settings: Settings) -> Callable[[Opening], Awaitable[Opened]]:
    """Returns what claims and opens the store."""
    if settings.regions.store == "sqlite":
        return partial(SqliteOpened.open, settings.regions_file, lease_ms=settings.regions.lease_ms)
    return partial(
        ZooKeeperOpened.open,
        connections(settings),
        lease_ms=settings.regions.lease_ms,
        connect_s=settings.zookeeper.connect_timeout_ms / 1000,
        fraction=settings.controller.lease_fraction,
        noded=settings.regions.transport == "zookeeper",
    )


def _journal(settings: Settings, counters: RegionCounters) -> Journal | None:
    """Returns the journal of the domain, None where it is switched off."""
    if not settings.journal.enabled:
        return None
    return Journal(regions_folder_in(settings.state.directory), settings.journal, counters)


def listener_limits(settings: Settings) -> ListenerLimits:
    """Returns the bounds of the listener: each connection may have a request that waits for operations."""
    wanted = settings.regions
    return ListenerLimits(
        connections_max=wanted.connections_max,
        connections_per_address_max=wanted.connections_per_address_max,
        frame_timeout_ms=wanted.frame_timeout_ms,
        idle_timeout_ms=wanted.idle_timeout_ms,
        calls_max=wanted.connections_max,
        call_timeout_ms=wanted.lease_ms // HOLD_FRACTION + CALL_EXTRA_MS,
    )
