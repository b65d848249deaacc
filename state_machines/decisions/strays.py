"""Finds strays, logs that brokers report and that no assignment names, and judges whether one may be deleted.

A broker in ZooKeeper mode keeps every log that no StopReplica names. It stays, for instance, where a broker was away
while a reassignment removed its replica.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, LogDirectory, ReplicaLog, Topic, TopicPartition

NO_EPOCH: Final = -1
"""Leader epoch in StopReplica that brokers do not compare."""


class StrayReason(StrEnum):
    """Why a log is a stray. ``DIRECTORY_OFFLINE``: it is one, and nothing can be done until its directory returns."""

    TOPIC_UNKNOWN = "no topic has this name"
    NOT_ASSIGNED = "the partition's assignment does not name the broker"
    DIRECTORY_OFFLINE = "no assignment names it, and its log directory is offline"


class Stray(Struct, frozen=True):
    """A log on a broker that no assignment names; ``is_future`` as in :class:`ReplicaLog`."""

    broker: int
    directory: str
    topic: str
    partition: int
    size_bytes: int
    is_future: bool
    reason: StrayReason


class Fate(StrEnum):
    """What is done about a log. ``WAITS``: it may be needed, which is judged again later."""

    STOP = "stop"
    ASSIGNED = "assigned"
    WAITS = "waits"


class LogJudgement(NamedTuple):
    """The fate of a log and why; ``leader_epoch`` is that of its StopReplica."""

    fate: Fate
    why: str
    leader_epoch: int = NO_EPOCH


NO_TOPIC: Final = LogJudgement(Fate.STOP, StrayReason.TOPIC_UNKNOWN.value)
NO_PARTITION: Final = LogJudgement(Fate.STOP, "the topic has no such partition")
NAMED: Final = LogJudgement(Fate.ASSIGNED, "an assignment names the broker by now")
UNREAD: Final = LogJudgement(Fate.WAITS, "the topic's znode cannot be read: repair it")
DELETED: Final = LogJudgement(Fate.WAITS, "the topic is being deleted")
DOUBTED: Final = LogJudgement(Fate.WAITS, "the topic's id is unknown or in doubt")
IN_SYNC: Final = LogJudgement(Fate.WAITS, "the broker leads the partition, or is in its ISR")


def judge_log(
    cluster: Cluster,
    broker: int,
    name: TopicPartition,
    unread: Container[str] = (),
    *,
    czxid: int | None = None,
    with_ids: bool = True,
) -> LogJudgement:
    """Judges whether a log may be deleted on a broker, whichever incarnation of its topic it belongs to.

    ``czxid``: the incarnation that the log is known to be of, None where it is not known. StopReplica carries no topic
    id. Within one incarnation its leader epoch protects the log of a replica that is added again; brokers compare no
    epoch across two. ``with_ids`` False: topics have no ids at this IBP.
    """
    if name.topic in unread:
        return UNREAD
    topic = cluster.topic(name.topic)
    if topic is None:
        return NO_TOPIC
    if topic.index in cluster.deletions:
        return DELETED
    if _assigned(cluster, topic, name.partition, broker):
        return NAMED
    if (with_ids and topic.topic_id is None) or cluster.doubts_id(topic):
        return DOUBTED
    i = cluster.row_in(topic, name.partition)
    if i is None:
        return NO_PARTITION
    row = cluster.rows[i]
    if broker == row.leader or broker in row.isr:
        return IN_SYNC
    same = row.has_leadership and czxid in (None, topic.czxid)
    why = StrayReason.NOT_ASSIGNED.value
    return LogJudgement(Fate.STOP, why, row.leader_epoch if same else NO_EPOCH)


def strays(reported: Mapping[int, Iterable[LogDirectory]], cluster: Cluster, unread: Container[str]) -> Iterator[Stray]:
    """Yields the strays among the logs that brokers reported, by broker.

    ``unread``: topics whose znodes exist and cannot be read, so that the model lacks them. A log of such a topic is no
    stray, nor one of a topic that is being deleted or whose id is unknown or in doubt. Nor is a replica that a
    reassignment under way adds or removes. The model must be at least as new as the report, and a stray must be
    checked again before anything is done about it: the partition may have been assigned meanwhile.
    """
    kept: dict[str, bool] = {}
    for broker, directories in sorted(reported.items()):
        for directory in directories:
            for log in directory.logs:
                name = log.topic
                topic = cluster.topic(name)
                if name not in kept:
                    kept[name] = name in unread or (topic is not None and not _certain(cluster, topic))
                if not kept[name] and not _assigned(cluster, topic, log.partition, broker):
                    yield _stray(broker, directory, log, known=topic is not None)


def _certain(cluster: Cluster, topic: Topic) -> bool:
    """Checks whether the topic stays, and is the incarnation that brokers know by this name."""
    return topic.topic_id is not None and topic.index not in cluster.deletions and not cluster.doubts_id(topic)


def _assigned(cluster: Cluster, topic: Topic | None, partition: int, broker: int) -> bool:
    """Checks whether the model's assignment or that of the topic znode, which may be ahead, names the broker."""
    row = cluster.row_in(topic, partition) if topic is not None else None
    if row is None:
        return False
    written = cluster.reassigning.get(row)
    return any(_names(assignment, broker) for assignment in (cluster.rows[row].assignment, written) if assignment)


def _names(assignment: Assignment, broker: int) -> bool:
    return broker in assignment.replicas or broker in assignment.adding or broker in assignment.removing


def _stray(broker: int, directory: LogDirectory, log: ReplicaLog, *, known: bool) -> Stray:
    reason = StrayReason.NOT_ASSIGNED if known else StrayReason.TOPIC_UNKNOWN
    if directory.error:
        reason = StrayReason.DIRECTORY_OFFLINE
    return Stray(broker, directory.path, log.topic, log.partition, log.size_bytes, log.is_future, reason)
