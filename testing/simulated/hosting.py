"""Holds the replicas of a broker, under LeaderAndIsr and StopReplica (Kafka's ``ReplicaManager``).

A log outlives the broker's process, the metadata that it was sent does not. A partition whose log cannot be opened is
*offline*: it responds with 56 to everything until the broker restarts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from brokers.wire.errors import Error
from brokers.wire.partitions import EPOCH_DURING_DELETE, NO_EPOCH
from state_machines.model.types import NO_LEADER, NO_OFFSET_LAG, LogDirectory, ReplicaLog
from testing.simulated.values import Key, LeaderAndIsr, LeaderAndIsrEntry, StopEntry, StopReplica

NO_LEADER_EPOCH: Final = -1
"""Leader epoch of a replica that has not been sent any leader in this incarnation of its broker."""
ONLINE_DIRECTORY: Final = "/simulated/online"
FAILED_DIRECTORY: Final = "/simulated/failed"
"""Listed while a log directory is failed."""


class Replica(Struct, frozen=True, gc=False):
    """A broker's part in one partition; every change makes another object.

    ``leader`` -1: it neither leads nor follows, because the request was so, or named a leader that is not live. ``isr``
    and ``partition_epoch`` are those of the last request, for a leader those that the controller or ZooKeeper granted
    last. ``stopped``: StopReplica ended its fetching.
    """

    topic_id: bytes | None = None
    leader: int = NO_LEADER
    leader_epoch: int = NO_LEADER_EPOCH
    partition_epoch: int = 0
    controller_epoch: int = 0
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    stopped: bool = False


_FRESH: Final = Replica()


class Hosting:
    """Holds replicas and logs of one broker. ``replicas`` and ``offline`` are of this incarnation, the rest is on disk.

    ``logs`` maps partitions to topic ids (None: the log has none); ``failed`` those on a log directory that failed.
    ``sizes_bytes`` has the sizes of logs that are not empty: a test sets them.
    """

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.replicas: dict[Key, Replica] = {}
        self.offline: set[Key] = set()
        self.logs: dict[Key, bytes | None] = {}
        self.failed: dict[Key, bytes | None] = {}
        self.sizes_bytes: dict[Key, int] = {}

    def copy(self) -> Hosting:
        """Returns an equal one that changes apart."""
        other = Hosting(self.broker_id)
        other.replicas, other.offline = dict(self.replicas), set(self.offline)
        other.logs, other.failed = dict(self.logs), dict(self.failed)
        other.sizes_bytes = dict(self.sizes_bytes)
        return other

    def restart(self) -> None:
        """Begins a new incarnation: no request has come, the logs are there."""
        self.replicas = {}
        self.offline = set()

    def fail(self, key: Key) -> None:
        """Fails the log directory with the log of ``key``."""
        if key in self.logs:
            self.failed[key] = self.logs.pop(key)
            if self.replicas.pop(key, None) is not None:
                self.offline.add(key)

    def recover(self) -> None:
        """Repairs the log directories; a running broker notices only at its next start."""
        self.logs.update(self.failed)
        self.failed = {}

    # -- DescribeLogDirs

    def directories(self, partitions: Iterable[Key] | None = None) -> tuple[LogDirectory, ...]:
        """Returns the log directories with the logs of ``partitions`` (None: all); a failed one lists none."""
        wanted = self.logs if partitions is None else {key: None for key in partitions if key in self.logs}
        online = LogDirectory(ONLINE_DIRECTORY, Error.NONE, tuple(self._log(key) for key in sorted(wanted)))
        return (online, LogDirectory(FAILED_DIRECTORY, Error.KAFKA_STORAGE_ERROR)) if self.failed else (online,)

    def _log(self, key: Key) -> ReplicaLog:
        return ReplicaLog(*key, self.sizes_bytes.get(key, 0), 0 if key in self.replicas else NO_OFFSET_LAG, False)

    # -- LeaderAndIsr

    def lead(self, request: LeaderAndIsr, live: Container[int]) -> dict[Key, int]:
        """Applies every partition of a request whose epochs are good; ``live`` is the live list."""
        errors: dict[Key, int] = {}
        for entry in request.entries:
            key = entry.topic, entry.partition
            errors[key] = Error.KAFKA_STORAGE_ERROR if key in self.offline else self._one(key, entry, live)
        return errors

    def _one(self, key: Key, entry: LeaderAndIsrEntry, live: Container[int]) -> int:
        replica = self.replicas.get(key, _FRESH)
        known_id = replica.topic_id or self.logs.get(key)
        if entry.topic_id and known_id and entry.topic_id != known_id:
            return Error.INCONSISTENT_TOPIC_ID
        if entry.leader_epoch < replica.leader_epoch:
            return Error.STALE_CONTROLLER_EPOCH
        if entry.leader_epoch > replica.leader_epoch:
            return self._apply(key, entry, replica, live)
        if entry.topic_id and not known_id:
            self._assign_id(key, replica, entry.topic_id)
            return Error.NONE
        return Error.STALE_CONTROLLER_EPOCH

    def _apply(self, key: Key, entry: LeaderAndIsrEntry, replica: Replica, live: Container[int]) -> int:
        if self.broker_id not in entry.replicas:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        reachable = entry.leader == self.broker_id or entry.leader in live
        if reachable and entry.partition_epoch < replica.partition_epoch:
            return Error.NONE
        if not self._open_log(key, entry):
            return Error.KAFKA_STORAGE_ERROR
        topic_id = self.logs[key]
        if not reachable:
            self.replicas[key] = replace(replica, topic_id=topic_id)
            return Error.NONE
        self.replicas[key] = Replica(
            topic_id,
            entry.leader,
            entry.leader_epoch,
            entry.partition_epoch,
            entry.controller_epoch,
            entry.isr,
            entry.replicas,
            entry.adding,
            entry.removing,
        )
        return Error.NONE

    def _open_log(self, key: Key, entry: LeaderAndIsrEntry) -> bool:
        """Checks whether the partition has its log now. With a failed directory only new replicas may be created."""
        if key not in self.logs:
            if self.failed and not entry.is_new:
                self.offline.add(key)
                return False
            self.logs[key] = entry.topic_id
        elif self.logs[key] is None:
            self.logs[key] = entry.topic_id
        return True

    def _assign_id(self, key: Key, replica: Replica, topic_id: bytes) -> None:
        self.logs[key] = topic_id
        self.replicas[key] = replace(replica, topic_id=topic_id)

    # -- StopReplica

    def stop(self, request: StopReplica) -> dict[Key, int]:
        """Stops every partition of a request whose epochs are good."""
        return {(entry.topic, entry.partition): self._stop(entry) for entry in request.entries}

    def _stop(self, entry: StopEntry) -> int:
        key = entry.topic, entry.partition
        if key in self.offline:
            return Error.KAFKA_STORAGE_ERROR
        replica = self.replicas.get(key)
        unchecked = entry.leader_epoch in (NO_EPOCH, EPOCH_DURING_DELETE)
        if replica is not None and not unchecked and entry.leader_epoch < replica.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        if entry.delete:
            self.replicas.pop(key, None)
            self.logs.pop(key, None)
            self.sizes_bytes.pop(key, None)
        elif replica is not None:
            self.replicas[key] = replace(replica, stopped=True)
        return Error.NONE
