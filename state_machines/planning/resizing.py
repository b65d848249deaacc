"""Draws changes of the replication factor."""

from __future__ import annotations

from typing import Final

from state_machines.planning.drafting import PlanDraft
from state_machines.planning.goals import ReplicationFactor

FACTOR_MAX: Final = 2**15 - 1
"""Largest replication factor (Kafka's int16)."""


def draw_factor(draft: PlanDraft, goal: ReplicationFactor) -> None:
    """Draws replicas on the least loaded brokers that racks allow, or drops those of the most loaded ones.

    The first replica is never dropped. A partition is refused where no live replica would stay.
    """
    draft.check_topics(goal.topics)
    if not 1 <= goal.factor <= FACTOR_MAX:
        draft.refuse("factor", f"factor = {goal.factor}: give 1 to {FACTOR_MAX}")
    if draft.refused:
        return
    topics = []
    for topic in sorted(set(goal.topics)):
        if goal.factor >= (least := draft.view.min_isr_of(topic)):
            topics.append(topic)
        else:
            why = f"factor = {goal.factor} is below min.insync.replicas = {least}: give {least}, or lower the setting"
            draft.refuse(f"topic {topic}", why)
    for topic, row in draft.rows(tuple(topics), lambda replicas: len(replicas) != goal.factor):
        origin = draft.view.assignments[row].replicas
        if goal.factor > len(origin):
            _grow(draft, topic, row, goal.factor)
        else:
            _shrink(draft, topic, row, goal.factor)


def _grow(draft: PlanDraft, topic: str, row: int, factor: int) -> None:
    origin = draft.view.assignments[row].replicas
    target = list(origin)
    while len(target) < factor:
        found = draft.pick(target)
        if found is None:
            draft.refuse_crowded(topic, row, factor)
            return
        target.append(found)
    draft.move(topic, row, draft.arranged(origin, target))


def _shrink(draft: PlanDraft, topic: str, row: int, factor: int) -> None:
    origin, live = draft.view.assignments[row].replicas, draft.view.is_live
    target = list(origin)
    while len(target) > factor:
        target.remove(_spare(draft, target))
    if any(map(live, target)):
        draft.move(topic, row, tuple(target))
    else:
        why = f"factor = {factor}: its first replica, which stays, is not live: start broker {origin[0]}"
        draft.refuse(f"{topic}-{draft.view.partitions[row]}", why)


def _spare(draft: PlanDraft, replicas: list[int]) -> int:
    """Returns the replica to drop: a dead one, else one that shares a rack, else that of the most loaded broker."""
    places = [draft.racks.of(b) for b in replicas]

    def weight(at: int) -> tuple[bool, bool, int, int]:
        broker = replicas[at]
        shares = places.count(places[at]) > 1
        return not draft.view.is_live(broker), shares, draft.loads.replicas[broker], at

    return replicas[max(range(1, len(replicas)), key=weight)]
