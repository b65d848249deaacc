"""Holds a broker's view of the cluster: the content of UpdateMetadata requests (Kafka's ``ZkMetadataCache``)."""

from __future__ import annotations

from typing import Final

from state_machines.model.types import LEADER_DURING_DELETE, Broker
from testing.simulated.values import Key, MetadataEntry, UpdateMetadata

NO_CONTROLLER: Final = -1


class MetadataCache:
    """Holds a view. Every request replaces ``live`` and is merged into ``partitions`` and ``topic_ids``."""

    def __init__(self) -> None:
        self.controller_id = NO_CONTROLLER
        self.live: dict[int, Broker] = {}
        self.partitions: dict[Key, MetadataEntry] = {}
        self.topic_ids: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}

    def copy(self) -> MetadataCache:
        """Returns an equal one that changes apart."""
        other = MetadataCache()
        other.controller_id, other.live = self.controller_id, self.live
        other.partitions, other.topic_ids = dict(self.partitions), dict(self.topic_ids)
        other._sizes = dict(self._sizes)
        return other

    def update(self, request: UpdateMetadata) -> None:
        """Takes a request whose epochs are good. Leader -2 removes a partition, and the topic's id with its last."""
        self.controller_id = max(request.head.controller_id, NO_CONTROLLER)
        self.live = {broker.id: broker for broker in request.live}
        for topic, topic_id in request.topics.items():
            if topic_id is None:
                self.topic_ids.pop(topic, None)
            else:
                self.topic_ids[topic] = topic_id
        partitions, sizes = self.partitions, self._sizes
        for entry in request.entries:
            key = entry.topic, entry.partition
            if entry.leader == LEADER_DURING_DELETE:
                self._remove(key)
                continue
            if key not in partitions:
                sizes[entry.topic] = sizes.get(entry.topic, 0) + 1
            partitions[key] = entry

    def _remove(self, key: Key) -> None:
        if self.partitions.pop(key, None) is None:
            return
        topic = key[0]
        self._sizes[topic] -= 1
        if not self._sizes[topic]:
            del self._sizes[topic]
            self.topic_ids.pop(topic, None)
