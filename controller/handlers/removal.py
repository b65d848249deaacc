"""Removes a topic that is gone from ZooKeeper, and everything that the term keeps for it."""

from __future__ import annotations

from controller.engine.controller import Controller
from controller.engine.event_kinds import EventKind
from state_machines.journal.events import Kind


def remove_topic(c: Controller, name: str) -> int:
    """Removes a topic; returns how many partitions it had."""
    c.waiting_topics.discard(name)
    c.lost_ids.drop(name)
    c.reassignment_queue.name_daemons.discard(name)
    topic = c.cluster.topic(name)
    if topic is None:
        return 0
    c.deletion_queue.gone(topic.index)
    c.channels.hand_out([topic.index])
    if c.reassignment_queue.names(name):
        c.queue.signal(EventKind.REASSIGN_PARTITIONS)
    c.journal.event(Kind.TOPIC_DELETE, topic=name)
    return len(c.cluster.observe_topic_gone(name))
