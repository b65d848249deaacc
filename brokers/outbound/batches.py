"""Encodes request bodies from dirty rows of the model, at the time of sending.

A row is encoded once, and the encoding is kept while the row stays the same object. It serves every replica's
LeaderAndIsr and the UpdateMetadata of all brokers. The feed is cut at most once per batch interval, for all channels
alike. Each channel's position is a cut, so one UpdateMetadata body serves every channel between the same two cuts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from brokers.wire.partitions import (
    NO_TOPIC,
    PartitionEncoder,
    body,
    forgotten_head,
    head,
    metadata_tail,
    stop_entry,
    stop_log_entry,
    topic_piece,
)
from brokers.wire.primitives import compact_string
from brokers.wire.requests import Failure, TopicKey
from brokers.wire.versions import Ibp
from state_machines.model.types import PartitionRow, PartitionState, TopicPartition
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import is_removed, is_sent, successor

REQUEST_ROWS_MAX: Final = 20_000
"""Most partitions in one request: about 1.5 MB, far below ``socket.request.max.bytes``."""
KEPT_MAX: Final = 40_000
"""Most rows whose encoding is kept: about 10 MB."""
SHARED_BODIES_MAX: Final = 4
"""Most UpdateMetadata bodies that are kept for channels that reach the same position."""
ANY_NUMBER: Final = -1
NOTHING_WITHHELD: Final = 0


class _Kept(NamedTuple):
    """A row's encoding, valid while the row stays the same object: its head, and its entry in LeaderAndIsr."""

    row: PartitionRow
    head: bytes
    entry: bytes


class Batcher:
    """Encodes dirty rows for all channels of one term."""

    def __init__(self, propagation: Propagation, ibp: Ibp) -> None:
        self._propagation = propagation
        self._view = propagation.view
        self._encoder = PartitionEncoder(ibp)
        self._by_id = ibp.leader_and_isr_version >= 5
        self._kept: dict[int, _Kept] = {}
        self._shared: dict[tuple[int, int, int, int, int], tuple[bytes | None, int]] = {}
        self._cut = 0
        self._cut_at_s = -math.inf

    def leader_and_isr(self, entries: Mapping[int, bool]) -> bytes | None:
        """Returns the body of LeaderAndIsr for rows (row -> is new); None where no row is to be sent any more."""
        rows, kept, tail = self._view.rows, self._kept, self._encoder.leader_and_isr_tail
        groups: dict[int, list[bytes]] = {}
        group, topic = [], NO_TOPIC
        for i, is_new in entries.items():
            row, known = rows[i], kept.get(i)
            if known is None or known.row is not row:
                known = self._encode(i, row)
                if known is None:
                    continue
            if row.topic != topic:
                group, topic = groups.setdefault(row.topic, []), row.topic
            group.append(known.head + tail(row, is_new=True) if is_new else known.entry)
        return self._body(groups)

    def cut(self, now_s: float, interval_s: float) -> int:
        """Returns the feed's end for a batch that starts now; it moves once in an interval at most."""
        number = self._propagation.feed.number
        if self._cut < number and now_s - self._cut_at_s >= interval_s:
            self._cut, self._cut_at_s = number, now_s
        return self._cut

    def update_metadata(
        self, position: int, cut: int, *, current: bool = False, withheld: Collection[int] = ()
    ) -> tuple[bytes | None, int]:
        """Returns the changes between ``position`` and ``cut``, without topics ``withheld``, and the new position.

        A shared body may hold an earlier state of a row that changed since; the newer state follows. A broker that got
        a turn of a snapshot meanwhile may know the newer state already, so it needs a ``current`` body.
        """
        withholding = self._propagation.withholding if withheld else NOTHING_WITHHELD
        number = self._propagation.feed.number if current else ANY_NUMBER
        key = position, cut, number, withholding, self._view.ids_learned
        shared = self._shared.get(key)
        if shared is None:
            rows, reached = self._propagation.feed.since(position, cut, REQUEST_ROWS_MAX)
            rows, reached = self._one_incarnation(rows, reached)
            shared = self._metadata(rows, withheld), reached
            while len(self._shared) >= SHARED_BODIES_MAX:
                del self._shared[next(iter(self._shared))]
            self._shared[key] = shared
        return shared

    def _one_incarnation(self, rows: list[int], reached: int) -> tuple[list[int], int]:
        """Returns the rows before the second incarnation of a topic whose first one is removed, and their position.

        With the last partition of a topic a broker forgets its id, also the new id of the same request.
        """
        table, topics, forgotten = self._view.rows, self._view.topics, set[str]()
        for at, i in enumerate(rows):
            row = table[i]
            if row.state is PartitionState.NON_EXISTENT:
                if is_removed(row):
                    forgotten.add(topics[row.topic].name)
            elif forgotten and topics[row.topic].name in forgotten:
                return rows[:at], self._propagation.feed.number_of(rows[at - 1])
        return rows, reached

    def _metadata(self, changed: Iterable[int], withheld: Collection[int]) -> bytes | None:
        rows, kept, offline_replicas = self._view.rows, self._kept, self._view.offline_replicas
        groups: dict[int, list[bytes]] = {}
        group, topic = [], NO_TOPIC
        for i in changed:
            row, known = rows[i], kept.get(i)
            if known is None or known.row is not row:
                known = self._encode(i, row)
            hidden = row.topic in withheld if known is not None else not self._forgets(i, row)
            if hidden:
                continue
            if row.topic != topic:
                group, topic = groups.setdefault(row.topic, []), row.topic
            fields = forgotten_head(row) if known is None else known.head
            group.append(fields + metadata_tail(offline_replicas(i)))
        return self._body(groups)

    def stop_replica(self, entries: Mapping[int, bool]) -> bytes:
        """Returns the body of StopReplica for rows (row -> delete)."""
        groups: dict[int, list[bytes]] = {}
        for i, delete in entries.items():
            row = self._view.rows[i]
            groups.setdefault(row.topic, []).append(stop_entry(row, delete=delete))
        topics = self._view.topics
        return body([topic_piece(compact_string(topics[index].name), found) for index, found in groups.items()])

    @staticmethod
    def stop_logs(epochs: Mapping[TopicPartition, int]) -> bytes:
        """Returns the body of StopReplica by name: leader epochs of partitions whose logs are deleted."""
        groups: dict[str, list[bytes]] = {}
        for name, epoch in epochs.items():
            groups.setdefault(name.topic, []).append(stop_log_entry(name.partition, epoch))
        return body([topic_piece(compact_string(topic), found) for topic, found in groups.items()])

    def rows_of(self, failed: Iterable[Failure], sent: Iterable[int]) -> list[tuple[int, int]]:
        """Returns (row, error) of the failures in the response to a request for the rows ``sent``."""
        wanted = {(failure.topic, failure.partition): failure.error for failure in failed}
        found: list[tuple[int, int]] = []
        for i in sent if wanted else ():
            row = self._view.rows[i]
            topic = self._view.topics[row.topic]
            keys: tuple[TopicKey, ...] = (topic.name, topic.topic_id) if topic.topic_id else (topic.name,)
            found += [(i, wanted[key, row.partition]) for key in keys if (key, row.partition) in wanted]
        return found

    def _encode(self, i: int, row: PartitionRow) -> _Kept | None:
        """Encodes a row and keeps the encoding; returns None where the row is not sent."""
        if not is_sent(row):
            return None
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        fields = head(row)
        known = self._kept[i] = _Kept(row, fields, fields + self._encoder.leader_and_isr_tail(row))
        return known

    def _forgets(self, i: int, row: PartitionRow) -> bool:
        """Returns whether UpdateMetadata makes brokers forget a row.

        It must not where a new topic of the same name has the partition: a broker that came back may have it from its
        snapshot.
        """
        return is_removed(row) and successor(self._view, i) is None

    def _body(self, groups: Mapping[int, list[bytes]]) -> bytes | None:
        topics, encode = self._view.topics, self._encoder.topic
        if not groups:
            return None
        return body([topic_piece(encode(topics[index]), entries) for index, entries in groups.items()])
