"""Declares the parts of Produce and Fetch that a refusal needs, which makes clients refresh their metadata."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.primitives import ZERO_ID

NO_OFFSET: Final = -1
"""Stands for no offset."""


class ProducedPartition(Struct, frozen=True, gc=False):
    """A partition of the request; its records are skipped."""

    index: int


class ProducedTopic(Struct, frozen=True):
    """Partitions of one topic."""

    name: str
    partition_data: tuple[ProducedPartition, ...]


class ProduceRequest(Struct, frozen=True):
    """Produce; with ``acks`` 0 the client expects no response."""

    acks: int
    topic_data: tuple[ProducedTopic, ...]


class PartitionProduceResponse(Struct, frozen=True, gc=False):
    """The error of one partition."""

    index: int
    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1


class TopicProduceResponse(Struct, frozen=True):
    """The outcomes for one topic."""

    name: str
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(Struct, frozen=True):
    """The response to Produce."""

    responses: tuple[TopicProduceResponse, ...]


class FetchedPartition(Struct, frozen=True, gc=False):
    """A requested partition."""

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
    """The error of one partition."""

    partition_index: int
    error_code: int
    high_watermark: int = NO_OFFSET
    records: bytes = b""


class TopicFetchResponse(Struct, frozen=True):
    """The outcomes for one topic."""

    partitions: tuple[PartitionFetchResponse, ...]
    topic: str = ""
    topic_id: bytes = ZERO_ID


class FetchResponse(Struct, frozen=True):
    """The response to Fetch; v0 to v6 have no error of their own."""

    responses: tuple[TopicFetchResponse, ...]
    error_code: int = 0
