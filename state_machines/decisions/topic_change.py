"""Decides on new topics and partitions, repairs assignments that brokers made, and restores ids that a tool removed.

A broker whose log has another id refuses the topic for good (INCONSISTENT_TOPIC_ID, KAFKA-14190). A broker that is sent
none takes it as it is, and a log without an id takes the first one that its broker is sent. So only an id that is known
to be right is written, or a new one for a topic that never had one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Final

from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, Broker, PartitionState, Topic, TopicAssignment

CREATED = "new partition"

_replicas = attrgetter("replicas")


def new_partitions(draft: Draft, rows: Sequence[int]) -> None:
    """Draws onNewPartitionCreation: partitions New, replicas New, partitions Online, replicas Online.

    Rows that have a state znode by now (another controller's, or regent's own whose reply was lost) are not created
    again.
    """
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    fresh = [i for i in rows if draft.rows[i].state is PartitionState.NON_EXISTENT]
    pairs = [(i, broker) for i in fresh for broker in draft.rows[i].assignment.replicas]
    partitions.create(fresh, CREATED)
    replicas.create(pairs, CREATED)
    partitions.elect_leaderless(rows)
    replicas.bring_online(pairs, CREATED)


def names_any(found: TopicAssignment, ids: frozenset[int]) -> bool:
    """Checks whether a topic's assignment names one of ``ids`` (of daemons: they host no replica)."""
    return not ids.isdisjoint(chain.from_iterable(map(_replicas, found.partitions.values())))


def repaired(
    found: TopicAssignment, daemons: Collection[int], live: Collection[int], load: Mapping[int, int]
) -> dict[int, Assignment] | None:
    """Returns partitions with every daemon's id replaced by the least loaded live broker that has no replica yet.

    ``load`` counts replicas per broker. None where there are not enough brokers: the fresh topic cannot exist.
    """
    counts = {broker: load.get(broker, 0) for broker in live}
    result: dict[int, Assignment] = {}
    for partition, assignment in found.partitions.items():
        replicas = list(assignment.replicas)
        for at, broker in enumerate(replicas):
            if broker not in daemons:
                continue
            free = [b for b in counts if b not in replicas]
            if not free:
                return None
            replicas[at] = min(free, key=lambda b: (counts[b], b))
            counts[replicas[at]] += 1
        result[partition] = Assignment(tuple(replicas), assignment.adding, assignment.removing)
    return result


def taken_out(cluster: Cluster, found: TopicAssignment) -> dict[int, Assignment]:
    """Returns what a foreign rewrite took out of the znode of a known topic, as the model has it, by partition.

    Those are whole partitions, which Kafka cannot remove, and the replicas that a reassignment adds and removes.
    Without these the next controller would take all replicas for the target.
    """
    topic = cluster.topic(found.name)
    if topic is None or topic.czxid != found.czxid:
        return {}
    lost: dict[int, Assignment] = {}
    for i in topic.rows:
        row = cluster.rows[i]
        there, written = found.partitions.get(row.partition), cluster.reassigning.get(i, row.assignment)
        if there is None or (written.moving and not there.moving and set(there.replicas) == set(written.replicas)):
            lost[row.partition] = written
    return lost


LOST_SAMPLE_MAX: Final = 100
"""Topics of a query to a broker where no topic that runs has an id."""
GIVEN: Final = "topic id written"

TopicIds = Mapping[str, bytes | None]
"""Topic ids that one broker knows, None for a topic that it was sent without an id."""


class Verdict(Enum):
    """The verdict on a topic whose id no broker knows."""

    NEVER_HAD_ONE = "it never had an id"
    UNKNOWN = "it may have an id that no live broker knows"
    UNANSWERED = "a live broker that may know its id does not respond"


class Evidence:
    """Merged responses of brokers: they grow with the topics, not with topics x brokers.

    ``ids``: by topic, those that any broker knows. ``sent_none``: whether a broker was sent any of the topics without
    an id. ``answered``: broker id -> broker epoch. ``sampled``: whether the responses are on a sample of the topics.
    """

    def __init__(self, before: Evidence | None = None, *, sampled: bool = False) -> None:
        self.ids: dict[str, set[bytes]] = {} if before is None else before.ids
        self.sent_none: bool = before is not None and before.sent_none
        self.answered: dict[int, int] = {}
        self.sampled = sampled

    def add(
        self,
        broker: Broker,
        known: TopicIds,
        lost: Collection[str],
        *,
        sent: bool = False,
        late: bool = False,
    ) -> None:
        """Merges a response. ``sent``: a daemon sent the broker such topics without ids, so "none" is no proof.

        ``late``: that was before its response, so with "none" the broker has not responded yet.
        """
        none = any(name in known and known[name] is None for name in lost)
        for name in lost:
            if (topic_id := known.get(name)) is not None:
                self.ids.setdefault(name, set()).add(topic_id)
        self.sent_none |= none and not sent
        if not (none and late):
            self.answered[broker.id] = broker.epoch

    def lacks(self, broker: Broker) -> bool:
        """Checks whether the broker has yet to respond."""
        return self.answered.get(broker.id) != broker.epoch

    def complete(self, live: Mapping[int, Broker]) -> bool:
        """Checks whether all live brokers responded; never where there are none."""
        return bool(live) and not any(self.lacks(broker) for broker in live.values())


def judge_ids(
    lost: Iterable[str], evidence: Evidence, *, complete: bool, none_had_one: bool
) -> dict[str, bytes | Verdict]:
    """Returns the id of each topic in ``lost``, or the verdict. ``complete``: every live broker responded.

    ``none_had_one``: no topic that ran had an id in ZooKeeper. Where no broker knows one either, the cluster is older
    than topic ids: a controller sends every broker every id, so any response would show one. Brokers that all restarted
    since were sent nothing, and prove nothing.
    """
    upgraded = none_had_one and complete and evidence.sent_none and not evidence.ids
    return {name: _judge(name, evidence, complete=complete, upgraded=upgraded) for name in lost}


def _judge(name: str, evidence: Evidence, *, complete: bool, upgraded: bool) -> bytes | Verdict:
    found = evidence.ids.get(name, ())
    if len(found) == 1:
        return next(iter(found))
    if not found and upgraded:
        return Verdict.NEVER_HAD_ONE
    return Verdict.UNKNOWN if complete or found else Verdict.UNANSWERED


def any_has_id(cluster: Cluster) -> bool:
    """Checks whether a topic that runs has an id. One that is new proves nothing: it has its id from this term."""
    return any(topic.topic_id is not None and _runs(cluster, topic) for topic in cluster.topics)


def _runs(cluster: Cluster, topic: Topic) -> bool:
    return cluster.topic(topic.name) is topic and any(cluster.rows[i].has_leadership for i in topic.rows)


def sample_of_lost(lost: Mapping[str, int]) -> list[str]:
    """Returns some of the topics (name -> czxid) without an id: those that may have had one come first.

    Ids are given in the order of names, so an interrupted term gave them to the first. The youngest topics may have had
    theirs from the beginning. Where a tool rewrote all topics, any of them shows it.
    """
    names = sorted(lost)
    if len(names) <= LOST_SAMPLE_MAX:
        return names
    half = LOST_SAMPLE_MAX // 2
    return [*names[:half], *sorted(names[half:], key=lambda name: lost[name])[-half:]]


def id_changes(cluster: Cluster, ids: Mapping[str, bytes]) -> Sequence[TopicChange]:
    """Returns rewrites of the topics that have no id yet."""
    known = [(topic, ids[name]) for name in ids if (topic := cluster.topic(name)) is not None]
    return [
        TopicChange(topic.name, topic.version, topic.czxid, {}, topic_id, GIVEN)
        for topic, topic_id in known
        if topic.topic_id is None
    ]
