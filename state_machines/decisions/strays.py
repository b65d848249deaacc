"""Finds strays: logs that brokers report and that no assignment names.

A stray occupies disk and is never deleted by itself: a broker in ZooKeeper mode keeps every log that no StopReplica
names. It stays, for instance, where a controller died between the end of a reassignment and StopReplica.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from state_machines.model.cluster import Cluster
from state_machines.model.replica_logs import LogDirectory, ReplicaLog
from state_machines.model.types import Assignment, Topic


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
