"""Produce and Fetch, as far as it takes to refuse them: a client that speaks to the wrong node must look again."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.primitives import ZERO_ID

NO_OFFSET: Final = -1
"""An offset that there is not."""


class ProducedPartition(Struct, frozen=True, gc=False):
    """A partition that records were sent for; the records are passed over."""

    index: int


class ProducedTopic(Struct, frozen=True):
    """Partitions of one topic."""

    name: str
    partition_data: tuple[ProducedPartition, ...]


class ProduceRequest(Struct, frozen=True):
    """Produce; with ``acks`` 0 no answer is expected."""

    acks: int
    topic_data: tuple[ProducedTopic, ...]


class PartitionProduceResponse(Struct, frozen=True, gc=False):
    """Why nothing was written."""

    index: int
    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1


class TopicProduceResponse(Struct, frozen=True):
    """Outcomes of one topic."""

    name: str
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(Struct, frozen=True):
    """The answer to Produce."""

    responses: tuple[TopicProduceResponse, ...]


class FetchedPartition(Struct, frozen=True, gc=False):
    """A partition that was asked for."""

    partition: int


class FetchedTopic(Struct, frozen=True):
    """Partitions of one topic, named up to v12, by id after."""

    partitions: tuple[FetchedPartition, ...]
    topic: str = ""
    topic_id: bytes = ZERO_ID


class FetchRequest(Struct, frozen=True):
    """Fetch; ``session_id`` from v7 on."""

    topics: tuple[FetchedTopic, ...]
    session_id: int = 0


class PartitionFetchResponse(Struct, frozen=True, gc=False):
    """Why nothing was read."""

    partition_index: int
    error_code: int
    high_watermark: int = NO_OFFSET
    records: bytes = b""


class TopicFetchResponse(Struct, frozen=True):
    """Outcomes of one topic."""

    partitions: tuple[PartitionFetchResponse, ...]
    topic: str = ""
    topic_id: bytes = ZERO_ID


class FetchResponse(Struct, frozen=True):
    """The answer to Fetch; v0 to v6 have no error of their own."""

    responses: tuple[TopicFetchResponse, ...]
    error_code: int = 0
