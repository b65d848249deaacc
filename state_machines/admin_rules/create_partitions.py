"""Judges CreatePartitions: the partitions that a topic gets, or why not (``KafkaApis``, ``ZkAdminManager``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from state_machines.admin_rules.create_topics import (
    RefusedTopic,
    TopicError,
    TopicRefusal,
    check_numbers,
    spread,
    uncordoned,
)
from state_machines.model.types import Assignment, TopicAssignment

Replicas = tuple[int, ...]
LISTED_MAX: Final = 10
"""Numbers that a text lists."""


class WantedGrowth(Struct, frozen=True, gc=False):
    """A topic and how many partitions it is to have in all; ``assignments`` None: they are placed here."""

    name: str
    count: int
    assignments: tuple[Replicas, ...] | None = None


def judge_growth(
    wanted: WantedGrowth,
    topic: TopicAssignment | None,
    *,
    brokers: Mapping[int, str | None],
    marked: bool,
    spare: int,
    again: bool = False,
    cordoned: Collection[int] = frozenset(),
) -> dict[int, Assignment] | TopicRefusal:
    """Returns the partitions to add, or the refusal.

    ``topic`` is its znode, ``marked`` whether it waits for its deletion, ``spare`` how many partitions the request may
    still create. ``again``: an earlier attempt may have added them; then a topic as wanted gets none and is no error.
    ``cordoned``: brokers that are not chosen; given assignments may name them.
    """
    if marked:
        return TopicRefusal(TopicError.INVALID_TOPIC, "The topic is queued for deletion.")
    if topic is None:
        return TopicRefusal(TopicError.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
    try:
        return _judged(wanted, topic, brokers, spare, cordoned, again=again)
    except RefusedTopic as refused:
        return refused.refusal


def _judged(
    wanted: WantedGrowth,
    topic: TopicAssignment,
    brokers: Mapping[int, str | None],
    spare: int,
    cordoned: Collection[int],
    *,
    again: bool,
) -> dict[int, Assignment]:
    if any(assignment.adding or assignment.removing for assignment in topic.partitions.values()):
        why = f"A partition reassignment is in progress for the topic '{wanted.name}'."
        raise RefusedTopic(TopicError.REASSIGNMENT_IN_PROGRESS, why)
    present = len(topic.partitions)
    if wanted.count == present and again and _as_wanted(wanted, topic):
        return {}
    if wanted.count < present:
        why = f"Topic currently has {present} partitions, which is higher than the requested {wanted.count}."
        raise RefusedTopic(TopicError.INVALID_PARTITIONS, why)
    if wanted.count == present:
        raise RefusedTopic(TopicError.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    first = topic.partitions.get(0)
    if first is None:
        raise RefusedTopic(TopicError.UNKNOWN_SERVER_ERROR, "partition 0 is missing: repair the topic's znode")
    factor, added = len(first.replicas), wanted.count - present
    if wanted.assignments is not None:
        placed = _given(wanted.assignments, present, added, factor, brokers)
        check_numbers(added, factor, factor, spare)
    else:
        free = uncordoned(brokers, cordoned)
        check_numbers(added, factor, len(free), spare, len(brokers) - len(free))
        at = _index_from(sorted(free), first.replicas[0])
        placed = spread(free, added, factor, at, at, present)
    return {p: Assignment(replicas) for p, replicas in placed.items()}


def _as_wanted(wanted: WantedGrowth, topic: TopicAssignment) -> bool:
    """Checks whether the topic's last partitions are those that were given, if any were."""
    given = wanted.assignments or ()
    last = [topic.partitions[p].replicas for p in sorted(topic.partitions)][len(topic.partitions) - len(given) :]
    return list(given) == last


def _index_from(brokers: Sequence[int], least: int) -> int:
    """Returns where Kafka begins: at the first broker whose id is not below that of partition 0's preferred leader."""
    return next((at for at, broker in enumerate(brokers) if broker >= least), 0)


def _given(
    assignments: tuple[Replicas, ...], present: int, added: int, factor: int, brokers: Collection[int]
) -> dict[int, Replicas]:
    unknown = sorted({broker for replicas in assignments for broker in replicas} - set(brokers))
    if unknown:
        wrong: str | None = f"Unknown broker(s) in replica assignment: {_listed(unknown)}."
    elif len(assignments) != added:
        wrong = f"Increasing the number of partitions by {added} but {len(assignments)} assignments provided."
    else:
        wrong = _unlike(dict(enumerate(assignments, present)), factor)
    if wrong is not None:
        raise RefusedTopic(TopicError.INVALID_REPLICA_ASSIGNMENT, wrong)
    return dict(enumerate(assignments, present))


def _unlike(partitions: Mapping[int, Replicas], factor: int) -> str | None:
    """Returns the fault of given replicas: empty, a broker twice, or not as many as partition 0 has."""
    for partition, replicas in partitions.items():
        if not replicas:
            return f"Cannot have replication factor of 0 for partition id {partition}."
        if len(set(replicas)) != len(replicas):
            named = _listed(replicas)
            return f"Duplicate brokers not allowed in replica assignment: {named} for partition id {partition}."
    others = {partition: len(replicas) for partition, replicas in partitions.items() if len(replicas) != factor}
    if not others:
        return None
    return (
        f"Inconsistent replication factor between partitions, partition 0 has {factor} while partitions "
        f"[{_listed(others)}] have replication factors [{_listed(others.values())}], respectively."
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, islice(numbers, LISTED_MAX)))
