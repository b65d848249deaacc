"""Follows the admin endpoint beside this daemon: brokers show it on their client listener while it is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from brokers.security.shared_secret import Seals
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind, EventQueue
from metadata_store.nodes.endpoint_znode import AdminEndpoint, decode_endpoint, endpoint_path
from metadata_store.port import Node
from state_machines.model.types import Endpoint

log = logging.getLogger("regent.controller")

GONE_S: Final = 10.0
"""Time that an endpoint stays listed after it has gone: longer than its restart takes.

Brokers log an error at each UpdateMetadata in which a node lacks a listener that the others have.
"""


class ShownEndpoint:
    """Shows brokers the endpoint that is ``found``. ``gone_s``: since when its znode is gone, by the loop's clock.

    ``seals``: returns those of this daemon's secret.
    """

    def __init__(self, c: Controller, daemon_id: int, seals: Callable[[], Awaitable[Seals | None]]) -> None:
        self.found: AdminEndpoint | None = None
        self.gone_s: float | None = None
        self._c = c
        self._daemon_id = daemon_id
        self._seals = seals

    async def change(self) -> None:
        """Reads the endpoint's znode and sends a changed endpoint to every broker."""
        c, path, since = self._c, endpoint_path(self._daemon_id), self._c.zk.last_zxid
        node = await c.zk.get(path)
        await c.zk.watch(data=[path] * (node is not None), exists=[path] * (node is None), since_zxid=since)
        seals = await self._seals()
        c.gate.check()
        if node is None and self._may_return():
            return
        found = decode_endpoint(node.data) if node is not None else None
        if node is not None and found is None:
            log.error("%s cannot be understood: the admin endpoint is not shown to clients of brokers", path)
        if node is not None and found is not None and not self._is_ours(node, found, seals):
            found = None
            log.error(
                "%s is not sealed with this daemon's secret: what it names is not shown to clients of brokers. Upgrade "
                "the admin endpoint with the daemon, give both the same admin.secret_file, and restart the endpoint "
                "(the daemon reads that file again by itself); otherwise another client wrote it: close ZooKeeper to "
                "strangers",
                path,
            )
        self._show(found)

    def _may_return(self) -> bool:
        """Checks whether a listed endpoint is away for so short a time that it stays listed.

        On a listener that brokers share with clients it does not: the brokers' own calls would go to it in vain.
        """
        if self.found is None or self.found.listener in self._c.channels.own_listeners:
            return False
        now_s = asyncio.get_running_loop().time()
        if self.gone_s is None:
            self.gone_s = now_s
            self._c.spawn(_look_again(self._c.queue))
        return now_s - self.gone_s < GONE_S

    def _is_ours(self, node: Node, found: AdminEndpoint, seals: Seals | None) -> bool:
        return seals is not None and seals.announces(self._daemon_id, node.stat.ephemeral_owner, found)

    def _show(self, found: AdminEndpoint | None) -> None:
        c = self._c
        self.gone_s = None
        self.found = found
        shown = Endpoint(found.listener, found.host, found.port, _protocol(c, found.listener)) if found else None
        if c.channels.show_endpoint(shown):
            log.info("clients of brokers find the controller at the admin endpoint %s", found or "no longer")
            if shown is not None and not any(b.endpoint(shown.listener) for b in c.cluster.brokers.values()):
                log.warning(
                    "no broker has a listener %s: clients find no controller; set admin.client_listener to the "
                    "listener of the brokers that clients use",
                    shown.listener,
                )


async def _look_again(queue: EventQueue) -> None:
    await asyncio.sleep(GONE_S)
    queue.signal(EventKind.ENDPOINT_CHANGE)


def _protocol(c: Controller, listener: str) -> int:
    """Returns the security protocol of the endpoint: that of the brokers' listener for clients."""
    found = (broker.endpoint(listener) for broker in c.cluster.brokers.values())
    return next((endpoint.security_protocol for endpoint in found if endpoint is not None), 0)
