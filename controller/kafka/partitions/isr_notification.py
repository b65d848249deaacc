"""Handles ISR changes that leaders wrote to ZooKeeper themselves (IBP below 2.7-IV2; S4-80)."""

from __future__ import annotations

import logging

from controller.kafka.path.controller import Controller
from controller.kafka.reassignments.reassignment import isrs_changed
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.nodes.cluster_nodes import Contended, delete_children
from metadata_store.reads import read_isr_changes

log = logging.getLogger("regent.controller")


async def isr_notification(c: Controller) -> None:
    """Reads the notifications, observes and propagates the named partitions, then deletes the notifications."""
    since = c.zk.last_zxid
    listed = await c.zk.children(paths.ISR_CHANGES)
    await c.zk.watch(children=[paths.ISR_CHANGES], since_zxid=since)
    names = sorted(listed[0]) if listed is not None else []
    if not names:
        return
    named: dict[int, None] = {}
    for found in await read_isr_changes(c.zk, names):
        if isinstance(found, Malformed):
            c.malformed(found)
            continue
        if found.unusable:
            log.error("%s: %s; the states of the others are read", paths.ISR_CHANGES, found.unusable)
        for topic, partition in found.named:
            row = c.cluster.find(topic, partition)
            if row is not None:
                named[row] = None
    if named:
        await c.reread(list(named))
        isrs_changed(c, named)
    await discard(c, [f"{paths.ISR_CHANGES}/{name}" for name in names])


async def discard(c: Controller, processed: list[str]) -> None:
    """Deletes notifications. Those that cannot be deleted stay, and are read once more with the next ones."""
    try:
        await delete_children(c.zk, processed, c.fence)
    except Contended as contended:
        log.error("%s: check the ACL of their parent", contended)
    for path in processed:
        c.counters.malformed.pop(path, None)
