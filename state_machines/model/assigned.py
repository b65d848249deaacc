"""Rows and their assignments: what replicas were told, and what topic znodes say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from state_machines.model.directory import Directory
from state_machines.model.hosting import Hosting
from state_machines.model.types import Assignment, PartitionRow, PartitionState, Topic


class Assigned(Directory):
    """A row has the assignment that its replicas were told; the topic znode is ahead of it during a reassignment."""

    def __init__(self) -> None:
        super().__init__()
        self.reassigning: dict[int, Assignment] = {}
        """What topic znodes say of rows where that adds or removes replicas, or is not the row's assignment yet."""
        self._hosting = Hosting()
        self.ids_refused: set[int] = set()
        """Topics whose ids brokers refused (INCONSISTENT_TOPIC_ID)."""
        self.ids_learned = 0
        """How many topics got an id after they were loaded."""

    def hosted(self, broker: int) -> list[int]:
        """Rows with a replica on ``broker``, in their order; looks at assignments, and at rows that were given them."""
        rows, gone = self.rows, PartitionState.NON_EXISTENT
        return sorted(i for i in self._hosting.rows_on(broker) if rows[i].state is not gone)

    def rows_on(self, brokers: Collection[int]) -> set[int]:
        """Rows with a replica on any of ``brokers``, each once, also those of partitions that are gone."""
        return set().union(*map(self._hosting.rows_on, brokers))

    def hosts(self) -> set[int]:
        """Brokers that assignments name; looks at distinct assignments."""
        return self._hosting.brokers()

    def observe_assignments(self, name: str, version: int, found: Mapping[int, Assignment]) -> list[int]:
        """What a topic znode says of known partitions, as we wrote it or read it back; returns their rows.

        The rows follow by a decision: until then :attr:`reassigning` has what the znode says.
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
        """A topic that had no id has one; a known id is only replaced where it may be wrong."""
        topic = self.topic(name)
        if topic is not None and (topic.topic_id is None or self.doubts_id(topic)):
            self.topic_ids.pop(topic.topic_id or b"", None)
            self.topics[topic.index] = replace(topic, topic_id=topic_id)
            self.topic_ids[topic_id] = topic.index
            self.ids_refused.discard(topic.index)
            self.ids_learned += 1

    def doubts_id(self, topic: Topic) -> bool:
        """Whether nothing says that the id is right: a broker refused it, or none was told any partition."""
        return topic.index in self.ids_refused or not any(self.rows[i].has_leadership for i in topic.rows)

    def observe_id_refused(self, rows: Iterable[int]) -> None:
        """A broker has logs of these rows with another topic id."""
        self.ids_refused.update(self.rows[i].topic for i in rows)

    def observe_strays(self, rows: Iterable[int] | None = None) -> list[int]:
        """Rows (None: all), just loaded, whose ISR names brokers that the topic znode does not; returns them.

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
                told = replace(row.assignment, replicas=(*row.assignment.replicas, *strays))
                self._assigned(i, row.assignment, replace(row, assignment=told))
        return found

    def _assigned(self, i: int, before: Assignment, row: PartitionRow) -> None:
        """A row has another assignment than before: the one object of it."""
        assignment = self._hosting.move(i, before, row.assignment)
        self.rows[i] = row if row.assignment is assignment else replace(row, assignment=assignment)
        self._forget_reassigned(i)

    def _forget_reassigned(self, i: int) -> None:
        assignment = self.reassigning.get(i)
        if assignment is not None and not assignment.moving and assignment == self.rows[i].assignment:
            del self.reassigning[i]
