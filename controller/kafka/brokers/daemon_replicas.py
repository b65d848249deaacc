"""Replaces a daemon that running partitions name as a replica by a broker (S4-88).

For a moment after the last daemon's end brokers count it as one of them, and Kafka's own controller starts topics that
they auto-create then. The replica exists nowhere, so moving it loses nothing; the partitions go on meanwhile.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from controller.kafka.path.controller import Controller
from controller.kafka.reassignments.reassignment_calls import begin
from state_machines.decisions.reassignment import current_assignment
from state_machines.decisions.topic_change import repaired
from state_machines.model.types import Assignment, TopicAssignment, TopicPartition

log = logging.getLogger("regent.controller")


async def replace_daemons(c: Controller) -> None:
    """Reassigns such partitions; topics without a free broker wait until one registers."""
    load: Mapping[int, int] = Counter(b for row in c.cluster.rows for b in row.assignment.replicas)
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for name in sorted(c.reassignment_queue.name_daemons):
        named = _named(c, name)
        if not named:
            c.reassignment_queue.name_daemons.discard(name)
            continue
        found = repaired(TopicAssignment(name, None, named, 0, 0), c.daemons, c.cluster.live, load)
        if found is None:
            log.warning(
                "topic %s: %d running partitions name a daemon among their replicas and no broker is free to take its "
                "place: start one",
                name,
                len(named),
            )
            continue
        targets.update({TopicPartition(name, p): assignment.replicas for p, assignment in found.items()})
    if targets:
        refused = await begin(c, targets, "that name a daemon among their replicas")
        left = {name.topic for name in refused}
        c.reassignment_queue.name_daemons.difference_update({name.topic for name in targets} - left)


def _named(c: Controller, name: str) -> dict[int, Assignment]:
    """Returns targets for a topic's partitions that name a daemon."""
    topic = c.cluster.topic(name)
    found = {} if topic is None else {c.cluster.rows[i].partition: current_assignment(c.cluster, i) for i in topic.rows}
    return {
        p: Assignment(now.target)
        for p, now in found.items()
        if now is not None and not c.daemons.isdisjoint(now.target)
    }
