"""Holds rows and their assignments: what replicas were sent, what topic znodes hold, and where a row is found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from state_machines.model.hosting import Hosting
from state_machines.model.refusals import Refusals
from state_machines.model.types import (
    LEADER_DURING_DELETE,
    Assignment,
    PartitionRow,
    PartitionState,
    Topic,
    TopicPartition,
)


class Directory:
    """Rows and topics, and how they are found. A row index names one incarnation of a topic's partition."""

    def __init__(self) -> None:
        self.rows: list[PartitionRow] = []
        self.topics: list[Topic] = []
        self.topic_index: dict[str, int] = {}
        self.topic_ids: dict[bytes, int] = {}

    def name(self, i: int) -> TopicPartition:
        """Returns the topic and partition of a row."""
        row = self.rows[i]
        return TopicPartition(self.topics[row.topic].name, row.partition)

    def topic(self, name: str) -> Topic | None:
        """Returns the present incarnation of a topic."""
        index = self.topic_index.get(name)
        return None if index is None else self.topics[index]

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Returns the topic with an id (16 bytes), or None."""
        index = self.topic_ids.get(topic_id)
        return None if index is None else self.topics[index]

    def find(self, topic: str, partition: int) -> int | None:
        """Returns the row index of a partition, or None."""
        known = self.topic(topic)
        return None if known is None else self.row_in(known, partition)

    def row_in(self, topic: Topic, partition: int) -> int | None:
        """Returns the row index of a partition of ``topic``; in constant time where partition numbers have no holes."""
        found, rows = topic.rows, self.rows
        if 0 <= partition < len(found) and rows[found[partition]].partition == partition:
            return found[partition]
        at = bisect_left(found, partition, key=lambda i: rows[i].partition)
        return found[at] if at < len(found) and rows[found[at]].partition == partition else None


NO_REPLICAS: Final = Assignment(())


class Assigned(Directory):
    """Rows with the assignments that their replicas were sent; during a reassignment the topic znode is ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.reassigning: dict[int, Assignment] = {}
        """Assignments of topic znodes that add or remove replicas, or differ from the row's assignment, by row."""
        self._hosting = Hosting()
        self.ids_refused: dict[int, set[tuple[int, int]]] = {}
        """Topics whose ids brokers refused (INCONSISTENT_TOPIC_ID), with these brokers and rows."""
        self.refusals = Refusals()
        """Replicas whose brokers refused the last LeaderAndIsr."""
        self.given_up: set[tuple[int, int]] = set()
        """Rows of topics in deletion, and brokers for whose logs of them it does not wait while they are away."""
        self.ended = 0
        """Rows of topics that vanished, and of partitions that brokers alone knew: they stay until the term ends."""
        self.ids_learned = 0
        """How many topics got an id after they were loaded."""

    def hosted(self, broker: int) -> list[int]:
        """Returns rows with a replica on ``broker``, in their order; visits distinct assignments and their rows."""
        rows, gone = self.rows, PartitionState.NON_EXISTENT
        return sorted(i for i in self._hosting.rows_on(broker) if rows[i].state is not gone)

    def rows_on(self, brokers: Collection[int]) -> set[int]:
        """Returns rows with a replica on any of ``brokers``, each once, also those of partitions that are gone."""
        return set().union(*map(self._hosting.rows_on, brokers))

    def hosts(self) -> set[int]:
        """Returns the brokers that assignments name; visits distinct assignments."""
        return self._hosting.brokers()

    def replicas_by_broker(self) -> dict[int, int]:
        """Counts the replicas that each broker hosts."""
        return self._hosting.replicas()

    def is_moving(self, i: int) -> bool:
        """Checks whether the topic znode has a reassignment of a row; replicas that it only dropped are none."""
        written = self.reassigning.get(i)
        return written is not None and written.moving

    def observe_assignments(self, name: str, version: int, found: Mapping[int, Assignment]) -> list[int]:
        """Enters a topic znode's assignments of known partitions, as written or read back; returns their rows.

        The rows follow by a decision: until then :attr:`reassigning` has the znode's assignment.
        """
        topic = self.topic(name)
        if topic is None:
            return []
        self.topics[topic.index] = replace(topic, version=version)
        known = ((self.row_in(topic, partition), assignment) for partition, assignment in found.items())
        written = {i: assignment for i, assignment in known if i is not None}
        self.reassigning.update(written)
        for i in written:
            self._forget_reassigned(i)
        return list(written)

    def observe_topic_id(self, name: str, topic_id: bytes) -> None:
        """Enters the id of a topic that had none; a known id is only replaced where it may be wrong."""
        topic = self.topic(name)
        if topic is not None and (topic.topic_id is None or self.doubts_id(topic)):
            self.topic_ids.pop(topic.topic_id or b"", None)
            self.topics[topic.index] = replace(topic, topic_id=topic_id)
            self.topic_ids[topic_id] = topic.index
            self.ids_refused.pop(topic.index, None)
            self.ids_learned += 1

    def doubts_id(self, topic: Topic) -> bool:
        """Checks whether no evidence confirms the id: a broker refused it, or no broker was sent any partition."""
        return topic.index in self.ids_refused or not any(self.rows[i].has_leadership for i in topic.rows)

    def observe_id_refused(self, broker: int, rows: Iterable[int]) -> None:
        """Notes that a broker has logs of these rows with another topic id."""
        for i in rows:
            self.ids_refused.setdefault(self.rows[i].topic, set()).add((broker, i))

    def observe_leader_and_isr(
        self, broker: int, rows: Collection[int], failed: Mapping[int, int], now_ms: int
    ) -> None:
        """Enters a broker's response to LeaderAndIsr: errors of some rows, none of the others.

        ``rows`` may be a range that has also rows without a replica on the broker.
        """
        if known := self.refusals.on(broker):
            self.refusals.end(broker, [i for i in known if i in rows and i not in failed])
        if failed:
            hosted = [(i, error) for i, error in failed.items() if self._hosts(broker, self.rows[i])]
            self.refusals.add(broker, hosted, now_ms)

    @staticmethod
    def _hosts(broker: int, row: PartitionRow) -> bool:
        return row.state is not PartitionState.NON_EXISTENT and broker in row.assignment.replicas

    def observe_logs_deleted(self, broker: int, rows: Iterable[int]) -> None:
        """Ends the doubts of ids that the deleted logs of these rows alone have raised."""
        for i in rows:
            topic = self.rows[i].topic
            refusals = self.ids_refused.get(topic, set())
            refusals.discard((broker, i))
            if not refusals:
                self.ids_refused.pop(topic, None)

    def observe_given_up(self, logs: Iterable[tuple[int, int]]) -> None:
        """Enters rows and brokers whose logs are remembered as strays, so that a deletion does not wait for them."""
        self.given_up.update(logs)

    def observe_ghosts(self, name: str, numbers: Iterable[int]) -> list[int]:
        """Enters partitions that brokers show and ZooKeeper lacks as removed ones; returns their rows.

        Those of a topic that is there are sent under its id: without one brokers would drop it.
        """
        topic = self.topic(name)
        if topic is None:
            topic = Topic(len(self.topics), name, None, (), 0, 0)
            self.topics.append(topic)
        known, start = topic, len(self.rows)
        self.rows += [
            PartitionRow(known.index, n, NO_REPLICAS, PartitionState.NON_EXISTENT, leader=LEADER_DURING_DELETE)
            for n in sorted(numbers)
            if self.row_in(known, n) is None
        ]
        self.ended += len(self.rows) - start
        return list(range(start, len(self.rows)))

    def observe_strays(self, rows: Iterable[int] | None = None) -> list[int]:
        """Enters rows (None: all), just loaded, whose ISR names brokers that the topic znode does not; returns them.

        Kafka's controller died after it had written that a reassignment was cancelled or overridden, and before the
        replicas that this drops left the ISR. They are replicas still, and the reassignment goes on from there.
        """
        outside: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
        found: list[int] = []
        for i in range(len(self.rows)) if rows is None else rows:
            row = self.rows[i]
            key = row.isr, row.assignment.replicas
            strays = outside.get(key)
            if strays is None:
                strays = outside[key] = tuple(b for b in key[0] if b not in key[1])
            if strays and row.state is not PartitionState.NON_EXISTENT:
                found.append(i)
                self.reassigning[i] = row.assignment
                with_strays = replace(row.assignment, replicas=(*row.assignment.replicas, *strays))
                self._assigned(i, row.assignment, replace(row, assignment=with_strays))
        return found

    def _assigned(self, i: int, before: Assignment, row: PartitionRow) -> None:
        """Enters a row with another assignment than before, as the one object of that assignment."""
        assignment = self._hosting.move(i, before, row.assignment)
        if self.refusals:
            self.refusals.end_replicas(i, [b for b in before.replicas if b not in assignment.replicas])
        self.rows[i] = row if row.assignment is assignment else replace(row, assignment=assignment)
        self._forget_reassigned(i)

    def _forget_reassigned(self, i: int) -> None:
        assignment = self.reassigning.get(i)
        if assignment is not None and not assignment.moving and assignment == self.rows[i].assignment:
            del self.reassigning[i]


Isr = tuple[int, ...]

ISRS_SPARE: Final = 10_000
"""Distinct ISRs that may be kept without a row, beside as many as rows have."""


class Isrs:
    """All ISRs that rows have, and some that they had."""

    def __init__(self) -> None:
        self._known: dict[Isr, Isr] = {}
        self._needed = 0

    def __len__(self) -> int:
        return len(self._known)

    def one(self, isr: Isr) -> Isr:
        """Returns the one tuple that is equal to ``isr``."""
        return self._known.setdefault(isr, isr)

    def forget(self, rows: Iterable[PartitionRow]) -> None:
        """Drops ISRs without a row once there are many: each order in which replicas came back is a distinct ISR."""
        if len(self._known) > 2 * self._needed + ISRS_SPARE:
            self._known = {row.isr: row.isr for row in rows}
            self._needed = len(self._known)
