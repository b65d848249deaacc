"""Finds rows by the names of their topics and partitions."""

from __future__ import annotations

from bisect import bisect_left

from state_machines.model.types import PartitionRow, Topic, TopicPartition


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
