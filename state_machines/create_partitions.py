"""CreatePartitions: the partitions that a topic gets, or why it does not (``KafkaApis``, ``ZkAdminManager``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from state_machines.create_topics import Refused, TopicError, TopicRefusal, check_numbers, spread
from state_machines.types import Assignment, TopicAssignment

Replicas = tuple[int, ...]


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
) -> dict[int, Assignment] | TopicRefusal:
    """The partitions to add, or why there are none.

    ``topic`` is its znode, ``marked`` whether it waits for its deletion, ``spare`` how many partitions the request may
    still create. ``again``: an earlier attempt may have done it; then a topic as wanted gets none and is no error.
    """
    if marked:
        return TopicRefusal(TopicError.INVALID_TOPIC, "The topic is queued for deletion.")
    if topic is None:
        return TopicRefusal(TopicError.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
    try:
        return _judged(wanted, topic, brokers, spare, again=again)
    except Refused as refused:
        return refused.refusal


def _judged(
    wanted: WantedGrowth, topic: TopicAssignment, brokers: Mapping[int, str | None], spare: int, *, again: bool
) -> dict[int, Assignment]:
    if any(assignment.adding or assignment.removing for assignment in topic.partitions.values()):
        why = f"replicas of '{wanted.name}' are being reassigned: try again when that is done"
        raise Refused(TopicError.REASSIGNMENT_IN_PROGRESS, why)
    present = len(topic.partitions)
    if wanted.count == present and again and _as_wanted(wanted, topic):
        return {}
    if wanted.count <= present:
        why = f"it has {present} partitions: give more, a topic cannot shrink"
        raise Refused(TopicError.INVALID_PARTITIONS, why)
    first = topic.partitions.get(0)
    if first is None:
        raise Refused(TopicError.UNKNOWN_SERVER_ERROR, "partition 0 is missing: mend the topic's znode")
    factor, added = len(first.replicas), wanted.count - present
    if wanted.assignments is not None:
        placed = _given(wanted.assignments, present, added, factor, brokers)
        check_numbers(added, factor, factor, spare)
    else:
        check_numbers(added, factor, len(brokers), spare)
        at = _index_from(sorted(brokers), first.replicas[0])
        placed = spread(brokers, added, factor, at, at, present)
    return {p: Assignment(replicas) for p, replicas in placed.items()}


def _as_wanted(wanted: WantedGrowth, topic: TopicAssignment) -> bool:
    """Whether the topic's last partitions are those that were given, if any were."""
    given = wanted.assignments or ()
    last = [topic.partitions[p].replicas for p in sorted(topic.partitions)][len(topic.partitions) - len(given) :]
    return list(given) == last


def _index_from(brokers: Sequence[int], least: int) -> int:
    """Where Kafka begins: at the first broker whose id is not below that of partition 0's preferred leader."""
    return next((at for at, broker in enumerate(brokers) if broker >= least), 0)


def _given(
    assignments: tuple[Replicas, ...], present: int, added: int, factor: int, brokers: Collection[int]
) -> dict[int, Replicas]:
    unknown = sorted({broker for replicas in assignments for broker in replicas} - set(brokers))
    wrong = None
    if unknown:
        wrong = f"brokers {unknown[:10]} are not registered"
    elif len(assignments) != added:
        wrong = f"{len(assignments)} assignments for {added} new partitions"
    elif not all(assignments):
        wrong = "a partition without a replica"
    elif any(len(set(replicas)) != len(replicas) for replicas in assignments):
        wrong = "a broker is named twice for one partition"
    elif any(len(replicas) != factor for replicas in assignments):
        wrong = f"every partition of the topic has {factor} replicas"
    if wrong is not None:
        raise Refused(TopicError.INVALID_REPLICA_ASSIGNMENT, wrong)
    return dict(enumerate(assignments, present))
