"""Encodes and decodes AllocateProducerIds v0 from a broker's side."""

from __future__ import annotations

from struct import pack

from brokers.wire.primitives import NO_TAGS, Reader, legacy_string
from brokers.wire.requests import request_header
from brokers.wire.versions import Api


def allocate(correlation: int, broker: int, epoch: int) -> bytes:
    """Encodes the request, without its length."""
    head = request_header(Api.ALLOCATE_PRODUCER_IDS, 0, correlation, legacy_string(str(broker)))
    return head + pack(">iq", broker, epoch) + NO_TAGS


def block(response: bytes) -> int | None:
    """Returns the first id of the block; None where the controller refused it."""
    reader = Reader(response)
    reader.i32()
    reader.skip_tags()
    reader.i32()
    error, start = reader.i16(), reader.i64()
    return None if error else start
