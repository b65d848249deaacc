"""Removes a topic that is gone from ZooKeeper, and everything that the term keeps for it."""

from __future__ import annotations

from typing import Final

from controller.engine.controller import Controller
from controller.engine.event_kinds import EventKind
from state_machines.journal.events import Kind
from state_machines.model.types import Topic

VANISHED_MAX: Final = 1_000
"""Topics that vanished without a deletion, of which a term remembers the partitions."""


def _remember(c: Controller, topic: Topic) -> None:
    """Remembers the partitions that brokers go on to show, for the next topic of that name."""
    rows = (c.cluster.rows[i] for i in topic.rows)
    if shown := {row.partition for row in rows if row.has_leadership and not row.is_removed}:
        c.vanished.setdefault(topic.name, set()).update(shown)
        while len(c.vanished) > VANISHED_MAX:
            del c.vanished[next(iter(c.vanished))]


def remove_topic(c: Controller, name: str) -> int:
    """Removes a topic; returns how many partitions it had."""
    c.waiting_topics.discard(name)
    c.lost_ids.drop(name)
    c.reassignment_queue.name_daemons.discard(name)
    topic = c.cluster.topic(name)
    if topic is None:
        return 0
    _remember(c, topic)
    c.deletion_queue.gone(topic.index)
    c.channels.hand_out([topic.index])
    if c.reassignment_queue.names(name):
        c.queue.signal(EventKind.REASSIGN_PARTITIONS)
    c.journal.event(Kind.TOPIC_DELETE, topic=name)
    return len(c.cluster.observe_topic_gone(name))
