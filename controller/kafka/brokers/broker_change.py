"""Handles changed registrations: new, dead, bounced and modified brokers from one snapshot (S4-44..S4-49).

Covers Kafka's BrokerChange and BrokerModifications. The handler reads the truth; broker epochs (czxid) distinguish a
fast restart from no change (KAFKA-7235).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from controller.kafka.brokers.broker_settings import apply_settings
from controller.kafka.journal.report import Reason, Report
from controller.kafka.path.controller import Controller, carry_out_portions
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.reassignment import brokers_returned
from controller.kafka.topics.deletion import resend_deletions, resume_deletions
from controller.kafka.topics.lost_ids import query_topic_ids_again
from controller.process.clock import wall_ms
from controller.process.wording import counted
from metadata_store import paths
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

log = logging.getLogger("regent.controller")

TURN_ROWS: Final = 15_000
"""Rows of a broker's death or return in one turn of the loop: some 60 ms."""
UNDER_LISTED: Final = "regent list partitions --under-min-isr"


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
