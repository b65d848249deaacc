"""Runs ``regent admin-endpoint``: the listener and its view of the cluster, from start to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from admin.carrier import Carrier
from admin.cluster_view import ClusterView
from admin.endpoint_tls import endpoint_tls
from admin.limits import Limits
from admin.listener import AdminListener
from admin.ports import Address
from brokers.security.access import access_of
from brokers.security.shared_secret import shared_secret
from brokers.wire.messages import prepare
from configs.settings import Settings
from metadata_store.port import ZooKeeper

log = logging.getLogger("regent.admin")


async def run(settings: Settings, new_session: Callable[[], ZooKeeper], ready: Callable[[Address], None]) -> None:
    """Serves until cancelled. ``ready`` gets the address that is advertised to clients.

    Raises OSError where it cannot listen, or has no secret to share with daemons. ``new_session`` makes unconnected
    ZooKeeper sessions, one after the other.
    """
    admin = settings.admin
    tls = endpoint_tls(settings)
    announced_for = settings.controller.id if admin.listed else None
    secret = shared_secret(settings.secret_file)
    view = ClusterView(admin.client_listener, secret, announced_for=announced_for, tls=tls is not None)
    carrier = Carrier(view, secret, access_of(settings.security, listens=False).transport)
    shared = admin.client_listener in (settings.brokers.inter_broker_listener, settings.brokers.control_plane_listener)
    listener = AdminListener(admin.host, admin.port, view, carrier, limits(settings), tls, shared=shared)
    await listener.start()
    try:
        port = admin.advertised_port or listener.port
        view.advertised = Address(admin.advertised_host or settings.listener.advertised_host, port)
        log.info("the admin endpoint listens on %s:%d", admin.host, listener.port)
        ready(view.advertised)
        async with anyio.create_task_group() as tasks:  # the daemon waits until the endpoint has announced itself
            tasks.start_soon(view.follow, new_session, settings.zookeeper.connect_timeout_ms / 1000)
            await anyio.to_thread.run_sync(prepare, abandon_on_cancel=True)
    finally:
        with anyio.CancelScope(shield=True):
            await listener.stop()
            carrier.close()


def limits(settings: Settings) -> Limits:
    """Returns the bounds of the settings, and defaults for all others."""
    admin = settings.admin
    return Limits(
        frame_bytes_max=admin.frame_bytes_max,
        connections_max=admin.connections_max,
        connections_per_address_max=admin.connections_per_address_max,
        buffered_bytes_max=admin.buffered_bytes_max,
        frame_timeout_ms=admin.frame_timeout_ms,
        idle_timeout_ms=admin.idle_timeout_ms,
        connect_timeout_ms=settings.brokers.connect_timeout_ms,
    )
