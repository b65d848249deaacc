"""Removes a topic that is gone from ZooKeeper, and everything that the term keeps for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from controller.kafka.path.controller import Controller
from controller.kafka.path.event_kinds import EventKind
from controller.kafka.path.portions import portions
from state_machines.model.topic_facts import RowsEnded, TopicGone

VANISHED_MAX: Final = 1_000
"""Topics that vanished without a deletion, of which a term remembers the partitions."""

TURN_ROWS: Final = 15_000
"""Partitions of vanished topics that are removed in one turn of the loop: some 25 ms."""


async def remove_vanished(c: Controller, names: Iterable[str]) -> int:
    """Removes topics whose znodes are gone, in portions; returns how many partitions they had."""
    removed = since = 0
    for name in names:
        topic = c.cluster.topic(name)
        for some in portions(list(topic.rows), TURN_ROWS) if topic is not None else ():
            if since + len(some) > TURN_ROWS:
                await asyncio.sleep(0)
                c.gate.check()
                since = 0
            since += len(some)
            _remember(c, name, some)
            c.enter(RowsEnded(some))
        removed += _remove_topic(c, name)
    return removed


def _remember(c: Controller, name: str, of: Iterable[int]) -> None:
    """Remembers the partitions that brokers go on to show, for the next topic of that name."""
    rows = (c.cluster.rows[i] for i in of)
    if shown := {row.partition for row in rows if row.has_leadership and not row.is_removed}:
        c.vanished.setdefault(name, set()).update(shown)
        while len(c.vanished) > VANISHED_MAX:
            del c.vanished[next(iter(c.vanished))]


def _remove_topic(c: Controller, name: str) -> int:
    """Removes a topic whose rows have ended; returns how many partitions it had."""
    c.waiting_topics.discard(name)
    c.lost_ids.drop(name)
    c.reassignment_queue.name_daemons.discard(name)
    topic = c.cluster.topic(name)
    if topic is None:
        return 0
    c.deletion_queue.gone(topic.index)
    if c.reassignment_queue.names(name):
        c.queue.signal(EventKind.REASSIGN_PARTITIONS)
    return len(c.enter(TopicGone(name)).rows)
