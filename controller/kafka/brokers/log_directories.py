"""Handles failed log directories (S4-29, S4-81): brokers notify, and report lost replicas by error 56.

A broker ignores a LeaderAndIsr with leader epochs that it knows, but responds KAFKA_STORAGE_ERROR for replicas that it
lost. A term's first snapshot goes to every broker, so earlier notifications need no reading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from controller.kafka.journal.report import Reason
from controller.kafka.partitions.isr_changes import discard
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.reads import read_log_dir_events
from state_machines.decisions.broker_change import log_directories_failed
from state_machines.model.facts import ReplicasFailed
from state_machines.portions import portions

log = logging.getLogger("regent.controller")

ANSWERS_MAX: Final = 100
"""Responses of brokers that are handled together."""
TURN_ROWS: Final = 10_000
"""Rows of one decision, in one turn of the loop."""


class Failed(NamedTuple):
    """Holds a broker's incarnation, and rows whose replicas there are on a failed log directory."""

    broker: int
    epoch: int
    rows: tuple[int, ...]


async def log_dir_event(c: Controller) -> None:
    """Queries brokers that reported a failure for all their replicas, then deletes the notifications."""
    since = c.zk.last_zxid
    listed = await c.zk.children(paths.LOG_DIR_EVENTS)
    await c.zk.watch(children=[paths.LOG_DIR_EVENTS], since_zxid=since)
    names = sorted(listed[0]) if listed is not None else []
    if not names:
        return
    brokers: set[int] = set()
    for found in await read_log_dir_events(c.zk, names):
        if isinstance(found, MalformedNode):
            c.malformed(found)
        else:
            brokers.add(found)
    c.gate.check()
    _ask(c, sorted(brokers & c.cluster.brokers.keys()))
    await discard(c, [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names])


def _ask(c: Controller, brokers: Iterable[int]) -> None:
    """Sends LeaderAndIsr for every replica that is not being stopped."""
    for broker in brokers:
        rows = [i for i in c.cluster.hosted(broker) if not c.cluster.stopped(i, broker)]
        log.warning("broker %d lost a log directory: it is queried for which of its %d replicas", broker, len(rows))
        c.channels.leader_and_isr_to(broker, rows)


async def replicas_failed(c: Controller, first: Failed) -> None:
    """Elects other leaders for failed replicas; these leave their ISRs until their broker starts anew."""
    failed: dict[int, list[int]] = {}
    for broker, epoch, rows in c.queue.following(EventKind.REPLICAS_FAILED, first, ANSWERS_MAX):
        known = c.cluster.brokers.get(broker)
        if known is not None and known.epoch == epoch:
            failed.setdefault(broker, []).extend(c.enter(ReplicasFailed(broker, rows)).rows)
    failed = {broker: rows for broker, rows in failed.items() if rows}
    if not failed:
        return
    for broker, found in failed.items():
        log.warning(
            "broker %d lost %d replicas with a log directory, the first is %s: they are offline until it is restarted",
            broker,
            len(found),
            c.cluster.name(found[0]),
        )
    decide = partial(log_directories_failed, failed=failed, unclean=c.unclean)
    why = f"log directories failed on brokers {sorted(failed)}"
    for some in portions(sorted(c.cluster.leaderless.union(*failed.values())), TURN_ROWS):
        await c.carry_out(decide, Reason.LOG_DIRECTORY, why, only=some)
