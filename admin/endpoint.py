"""Runs ``regent admin-endpoint``: its view of the cluster, and the listener, which bounds clients' connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import anyio

from admin.carrier import Carrier
from admin.client import Client
from admin.cluster_view import ClusterView
from admin.ports import Address, ControllerPort, Directory, EndpointLimits
from admin.streams import EndpointTls, Stream, Watched, endpoint_tls
from brokers.listener.bound_listener import BoundListener
from brokers.listener.connection_slots import ConnectionSlot
from brokers.security.access import access_of
from brokers.security.shared_secret import shared_secret
from brokers.wire.messages import prepare
from configs.settings import Settings
from metadata_store.port import ZooKeeper

log = logging.getLogger("regent.admin")


class AdminListener(BoundListener):
    """Serves from :meth:`start` to :meth:`stop`. ``shared``: brokers use it as their controller's address, too."""

    def __init__(
        self,
        host: str,
        port: int,
        directory: Directory,
        controller: ControllerPort,
        limits: EndpointLimits | None = None,
        tls: EndpointTls | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self.shared = shared
        self.limits = limits or EndpointLimits()
        of_clients = tls.clients if tls is not None else None
        super().__init__("the admin endpoint", "admin", (host, port), self.limits, self._accept, tls=of_clients)
        self.tls = tls
        self.directory = directory
        self.controller = controller
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def buffered_bytes(self) -> int:
        """Returns the bytes of all requests in progress and of their decoded items."""
        return self.slots.held

    async def stop(self) -> None:
        """Closes the socket and every connection; abandons the calls in progress."""
        await self._entrance.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    def _accept(self, slot: ConnectionSlot) -> Watched:
        def connected(stream: Stream) -> None:
            if not slot.open:
                stream.abort()
                return
            task = asyncio.create_task(Client(self, stream, slot).serve())
            self._clients.add(task)
            task.add_done_callback(partial(self._served, stream))
            slot.give_way = task.cancel
            protocol.on_lost = lambda: _end(task, slot)

        protocol = Watched(connected, self.limits.frame_timeout_ms)
        return protocol

    def _served(self, stream: Stream, task: asyncio.Task[None]) -> None:
        """Ends the connection also where the task was cancelled before its first step."""
        self._clients.discard(task)
        if task.cancelled():
            stream.abort()


def _end(task: asyncio.Task[None], slot: ConnectionSlot) -> None:
    task.cancel()
    slot.leave()


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


def limits(settings: Settings) -> EndpointLimits:
    """Returns the bounds of the settings, and defaults for all others."""
    admin = settings.admin
    return EndpointLimits(
        frame_bytes_max=admin.frame_bytes_max,
        connections_max=admin.connections_max,
        connections_per_address_max=admin.connections_per_address_max,
        buffered_bytes_max=admin.buffered_bytes_max,
        frame_timeout_ms=admin.frame_timeout_ms,
        idle_timeout_ms=admin.idle_timeout_ms,
        connect_timeout_ms=settings.brokers.connect_timeout_ms,
    )
