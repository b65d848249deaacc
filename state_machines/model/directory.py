"""Directory: rows by the names of their topics and partitions."""

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
        """Topic and partition of a row."""
        row = self.rows[i]
        return TopicPartition(self.topics[row.topic].name, row.partition)

    def topic(self, name: str) -> Topic | None:
        """The present incarnation of a topic."""
        index = self.topic_index.get(name)
        return None if index is None else self.topics[index]

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with an id (16 bytes), or None."""
        index = self.topic_ids.get(topic_id)
        return None if index is None else self.topics[index]

    def find(self, topic: str, partition: int) -> int | None:
        """Row index of a partition, or None."""
        known = self.topic(topic)
        return None if known is None else self.row_in(known, partition)

    def row_in(self, topic: Topic, partition: int) -> int | None:
        """Row index of a partition of ``topic``; constant time where partitions are numbered without holes."""
        found, rows = topic.rows, self.rows
        if 0 <= partition < len(found) and rows[found[partition]].partition == partition:
            return found[partition]
        at = bisect_left(found, partition, key=lambda i: rows[i].partition)
        return found[at] if at < len(found) and rows[found[at]].partition == partition else None
