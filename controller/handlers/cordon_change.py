"""Follows the cordoned brokers: regent places no further replica on them."""

from __future__ import annotations

import logging

from controller.engine.controller import Controller
from metadata_store.codecs.base import Malformed
from metadata_store.nodes.cordon_node import PATH, read_cordons

log = logging.getLogger("regent.controller")


async def cordon_change(c: Controller) -> None:
    """Reads the marks and watches them; marks that are not understood leave those before in force."""
    since = c.zk.last_zxid
    found = await read_cordons(c.zk)
    absent = not isinstance(found, Malformed) and found.znode_version is None
    await c.zk.watch(data=[PATH] * (not absent), exists=[PATH] * absent, since_zxid=since)
    c.gate.check()
    if isinstance(found, Malformed):
        c.malformed(found)
        return
    before, c.cordoned = c.cordoned, frozenset(found.brokers)
    if added := sorted(c.cordoned - before):
        log.info("brokers %s are cordoned: new replicas are placed on others", added)
    if removed := sorted(before - c.cordoned):
        log.info("brokers %s are no longer cordoned", removed)
