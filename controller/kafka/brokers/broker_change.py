"""Handles changed registrations of brokers (S4-44..S4-49), and of the admin endpoint beside this daemon.

Brokers are found new, dead, bounced and modified from one snapshot. They show the endpoint on their client listener
while it is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

from brokers.security.shared_secret import Seals
from controller.kafka.brokers.broker_settings import apply_settings
from controller.kafka.journal.report import Reason, Report
from controller.kafka.path.controller import Controller, carry_out_portions
from controller.kafka.path.events import EventKind, EventQueue
from controller.kafka.reassignments.reassignment import brokers_returned
from controller.kafka.topics.deletion import resend_deletions, resume_deletions
from controller.kafka.topics.lost_ids import query_topic_ids_again
from controller.process.clock import wall_ms
from controller.process.wording import counted
from metadata_store import paths
from metadata_store.nodes.endpoint_znode import AdminEndpoint, decode_endpoint, endpoint_path
from metadata_store.port import Node
from state_machines.decisions.broker_change import (
    BrokerDelta,
    broker_death,
    broker_return,
    compare,
    touched_by_death,
    touched_by_return,
)
from state_machines.model.facts import BouncedBack, BrokersRead
from state_machines.model.min_isr import led_but_under
from state_machines.model.types import Endpoint

log = logging.getLogger("regent.controller")

GONE_S: Final = 10.0
"""Time that an endpoint stays listed after it has gone: longer than its restart takes.

Brokers log an error at each UpdateMetadata in which a node lacks a listener that the others have.
"""
TURN_ROWS: Final = 15_000
"""Rows of a broker's death or return in one turn of the loop: some 60 ms."""
UNDER_LISTED: Final = "regent list partitions --under-min-isr"


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


async def broker_change(c: Controller, registered: Callable[[Collection[int]], None]) -> None:
    """Reads all registrations, then carries out deaths first and returns after.

    ``registered``: called in the end with the brokers that registered.
    """
    since = c.zk.last_zxid
    found = await c.read_brokers()
    watched = [*(paths.broker(b) for b in found), *c.malformed_below(paths.BROKER_IDS)]
    await c.zk.watch(children=[paths.BROKER_IDS], data=watched, since_zxid=since)
    c.gate.check()
    delta = compare(c.cluster.brokers, found)
    if delta.empty:
        return
    clean = c.cluster.shutting_down.intersection(delta.dead)
    if delta.modified:
        log.info("brokers %s changed their registrations: every broker gets the new ones", list(delta.modified))
    gone, back = (*delta.dead, *delta.bounced), (*delta.new, *delta.bounced)
    c.departed.gone(gone, wall_ms())
    c.departed.back(back)
    c.enter(BrokersRead(found, delta.bounced))
    if gone:
        died, touched = partial(broker_death, dead=gone, unclean=c.unclean), touched_by_death(c.cluster, gone)
        why = f"brokers {sorted(gone)} are gone"
        report = await carry_out_portions(c, died, touched, Reason.BROKER_FAILURE, why, rows_max=TURN_ROWS)
        _log_gone(c, delta, clean, report)
    if delta.bounced:
        c.enter(BouncedBack(found, delta.bounced))
    resend_deletions(c, gone, back)
    if back:
        c.channels.snapshot(back, came_up=True)
        returned, touched = partial(broker_return, returned=back, unclean=c.unclean), touched_by_return(c.cluster, back)
        why = f"brokers {sorted(back)} are back"
        await carry_out_portions(c, returned, touched, Reason.BROKER_RETURN, why, rows_max=TURN_ROWS)
        log.info("%s", _registered(delta))
        await brokers_returned(c, back)
        for name in sorted(c.waiting_topics):
            c.queue.signal(EventKind.PARTITION_MODIFICATIONS, name)
    resume_deletions(c, gone, back)
    query_topic_ids_again(c, registered=bool(back))
    apply_settings(c)
    registered(back)


def _log_gone(c: Controller, delta: BrokerDelta, clean: Collection[int], report: Report) -> None:
    """Logs a warning, unless all had stopped by a controlled shutdown and no producer waits for that."""
    leaderless = len(c.cluster.leaderless)
    moved, shrunk = counted(report.moved_leaders, "leader"), counted(report.written, "partition")
    parts = [f"{moved} moved, {shrunk} lost an in-sync replica"]
    if leaderless:
        parts.append(f"without a leader: {counted(leaderless, 'partition')} (regent list partitions --offline)")
    waiting = led_but_under(c.cluster, (*delta.dead, *delta.bounced), c.cluster.min_isr)
    if waiting:
        below = counted(waiting, "partition")
        parts.append(f"below min.insync.replicas, so that acks=all producers wait: {below} ({UNDER_LISTED})")
    expected = set(delta.dead) <= set(clean) and not delta.bounced and not leaderless and not waiting
    log.log(logging.INFO if expected else logging.WARNING, "%s: %s", _gone(delta, clean), "; ".join(parts))


def _gone(delta: BrokerDelta, clean: Collection[int]) -> str:
    died = [b for b in delta.dead if b not in clean]
    stopped = [b for b in delta.dead if b in clean]
    causes = (
        (died, "gone (session ended)"),
        (stopped, "gone (session ended after a controlled shutdown)"),
        (delta.bounced, "gone (restarted before its session ended)"),
    )
    return ", ".join(f"{named(brokers)} {cause}" for brokers, cause in causes if brokers)


def _registered(delta: BrokerDelta) -> str:
    return f"{named((*delta.new, *delta.bounced))} registered and gets the metadata of all partitions"


def named(brokers: Collection[int]) -> str:
    """Returns "broker 2 is" or "brokers 2, 3 are"."""
    listed = ", ".join(map(str, sorted(brokers)))
    return f"broker {listed} is" if len(brokers) == 1 else f"brokers {listed} are"
