"""Follows the admin endpoint beside this daemon: brokers show it on their client listener while it is there."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from brokers.security.shared_secret import Seals
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from metadata_store.nodes.endpoint_znode import AdminEndpoint, decode_endpoint, endpoint_path
from metadata_store.port import Node
from state_machines.model.types import Endpoint

log = logging.getLogger("regent.controller")

GONE_S: Final = 10.0
"""Time that an endpoint stays listed after it has gone: longer than its restart takes.

Brokers log an error at each UpdateMetadata in which a node lacks a listener that the others have.
"""


async def endpoint_change(c: Controller) -> None:
    """Reads the endpoint's znode and sends a changed endpoint to every broker."""
    path, since = endpoint_path(c.daemon_id), c.zk.last_zxid
    node = await c.zk.get(path)
    await c.zk.watch(data=[path] * (node is not None), exists=[path] * (node is None), since_zxid=since)
    seals = await c.seals()
    c.gate.check()
    if node is None and _may_return(c):
        return
    found = decode_endpoint(node.data) if node is not None else None
    if node is not None and found is None:
        log.error("%s cannot be understood: the admin endpoint is not shown to clients of brokers", path)
    if node is not None and found is not None and not _is_ours(c.daemon_id, node, found, seals):
        found = None
        log.error(
            "%s is not sealed with this daemon's secret: what it names is not shown to clients of brokers. Upgrade the "
            "admin endpoint with the daemon, give both the same admin.secret_file, and restart the endpoint (the "
            "daemon reads that file again by itself); otherwise another client wrote it: close ZooKeeper to strangers",
            path,
        )
    _show(c, found)


def _may_return(c: Controller) -> bool:
    """Checks whether a listed endpoint is away for so short a time that it stays listed.

    On a listener that brokers share with clients it does not: the brokers' own calls would go to it in vain.
    """
    if c.endpoint.found is None or c.endpoint.found.listener in c.channels.own_listeners:
        return False
    now_s = asyncio.get_running_loop().time()
    if c.endpoint.gone_s is None:
        c.endpoint.gone_s = now_s
        c.spawn(_look_again(c))
    return now_s - c.endpoint.gone_s < GONE_S


async def _look_again(c: Controller) -> None:
    await asyncio.sleep(GONE_S)
    c.queue.signal(EventKind.ENDPOINT_CHANGE)


def _show(c: Controller, found: AdminEndpoint | None) -> None:
    c.endpoint.gone_s = None
    c.endpoint.found = found
    shown = Endpoint(found.listener, found.host, found.port, _protocol(c, found.listener)) if found else None
    if c.channels.show_endpoint(shown):
        log.info("clients of brokers find the controller at the admin endpoint %s", found or "no longer")
        if shown is not None and not any(b.endpoint(shown.listener) for b in c.cluster.brokers.values()):
            log.warning(
                "no broker has a listener %s: clients find no controller; set admin.client_listener to the listener "
                "of the brokers that clients use",
                shown.listener,
            )


def _is_ours(daemon_id: int, node: Node, found: AdminEndpoint, seals: Seals | None) -> bool:
    return seals is not None and seals.announces(daemon_id, node.stat.ephemeral_owner, found)


def _protocol(c: Controller, listener: str) -> int:
    """Returns the security protocol of the endpoint: that of the brokers' listener for clients."""
    found = (broker.endpoint(listener) for broker in c.cluster.brokers.values())
    return next((endpoint.security_protocol for endpoint in found if endpoint is not None), 0)
