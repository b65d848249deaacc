"""Registrations changed: new, dead, bounced and modified brokers from one snapshot (S4-44..S4-49).

Covers Kafka's BrokerChange and BrokerModifications. The truth is read when the event is handled, broker epochs
(czxid) tell a fast restart from no change (KAFKA-7235).
"""

from __future__ import annotations

import logging
from functools import partial

from controller.controller import Controller
from controller.handlers.deletion import brokers_changed
from controller.handlers.reassignment import brokers_returned
from metadata_store import paths
from state_machines.broker_change import broker_death, broker_return, compare
from state_machines.events import Kind

log = logging.getLogger("regent.controller")


async def broker_change(c: Controller) -> None:
    """Reads all registrations, then carries out deaths first and returns after."""
    since = c.zk.last_zxid
    found = await c.read_brokers()
    watched = [*(paths.broker(b) for b in found), *c.malformed_below(paths.BROKER_IDS)]
    await c.zk.watch(children=[paths.BROKER_IDS], data=watched, since_zxid=since)
    c.term.check()
    delta = compare(c.cluster.brokers, found)
    if delta.empty:
        return
    log.info(
        "brokers: new %s, gone %s, restarted %s, changed %s",
        list(delta.new),
        list(delta.dead),
        list(delta.bounced),
        list(delta.modified),
    )
    gone, back = (*delta.dead, *delta.bounced), (*delta.new, *delta.bounced)
    c.journal.brokers(Kind.BROKER_DOWN, (c.cluster.brokers[b] for b in gone))
    c.journal.brokers(Kind.BROKER_UP, (found[b] for b in back))
    for broker in gone:
        c.channels.remove(broker)
    c.cluster.observe_brokers({b: found[b] for b in found if b not in delta.bounced})
    for broker in (*delta.new, *delta.modified):
        c.channels.add(found[broker])
    c.channels.live_list_changed()
    if gone:
        await c.carry_out(partial(broker_death, dead=gone, unclean=c.unclean), f"brokers {sorted(gone)} are gone")
    if delta.bounced:
        c.cluster.observe_brokers(found)
        for broker in delta.bounced:
            c.channels.add(found[broker])
        c.channels.live_list_changed()
    if back:
        c.channels.snapshot(back, came_up=True)
        await c.carry_out(partial(broker_return, returned=back, unclean=c.unclean), f"brokers {sorted(back)} are back")
        await brokers_returned(c, back)
        for name in sorted(c.waiting_topics):
            c.queue.signal("partition_modifications", name)
    brokers_changed(c, gone, back)
    c.brokers_joined(back)
