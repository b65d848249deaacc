"""Keeps requests for brokers that decode them later: heads read at once, bodies kept as bytes, each once.

The header of a request differs per broker, the body behind it is mostly the same for all. 100 brokers that are sent
100,000 partitions keep 5 MB instead of 500.
"""

from __future__ import annotations

import contextlib
from struct import Struct
from typing import Final

from msgspec.structs import replace

from brokers.wire.errors import Error
from brokers.wire.primitives import NO_TAGS, BadMessage, Reader, varint
from brokers.wire.versions import Api
from testing.simulated.replies import encode_response
from testing.simulated.requests import TOPIC_BYTES_MIN, count_items, read_body
from testing.simulated.values import Head, Request

SAMPLE_BYTES: Final = 64
"""Bytes at the start and in the middle by which candidates for an equal body are found."""
LOOKED_AT_MAX: Final = 16
"""Bodies with equal samples that are compared before a new one is kept apart."""

_TOP: Final = b"\0\0\0"
"""No tags in the header, top-level error 0."""
_CODE: Final = Struct(">h?").pack
_STOP_BYTES: Final = 10
"""A partition of StopReplica without tags: number, leader epoch, the flag to delete, no tags."""
_SHORT: Final = 0x80
"""First length that takes more than one byte."""
_LENGTHS: Final = tuple(map(varint, range(_SHORT)))


class Body:
    """The bytes behind the head of a request; ``data`` is never changed. ``head`` is that of its first arrival."""

    __slots__ = ("_request", "_responses", "data", "head")

    def __init__(self, head: Head, data: bytes) -> None:
        self.head = head
        self.data = data
        self._request: Request | None = None
        self._responses: dict[int, bytes] = {}

    def request(self, head: Head, *, keep: bool = False) -> Request:
        """Decodes the request; raises :class:`BadMessage`. Kept entries are shared by all heads."""
        if self._request is not None:
            return replace(self._request, head=head)
        request = read_body(head, Reader(self.data, items_max=len(self.data)))
        if keep:
            self._request = request
        return request

    def release(self) -> None:
        """Forgets the entries that :meth:`request` kept."""
        self._request = None

    def response(self, code: int) -> bytes:
        """Returns a full response, every partition with the error ``code``, from behind the correlation id on."""
        found = self._responses.get(code)
        if found is None:
            found = self._responses[code] = self._listed(code)
        return found

    def _listed(self, code: int) -> bytes:
        scan = {Api.LEADER_AND_ISR: _scanned, Api.STOP_REPLICA: _stopped}[self.head.api]
        with contextlib.suppress(IndexError, BadMessage):  # rare forms are decoded; malformed ones fail there
            return _TOP + scan(self.data, self.head.version, code) + NO_TAGS
        request = self.request(self.head)
        return encode_response(request, Error.NONE, {(e.topic, e.partition): code for e in request.entries})[4:]


class Bodies:
    """Holds every distinct body in use; callers of :meth:`clear` bound their number."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, bytes, bytes], list[Body]] = {}
        self.kept_bytes = 0

    def intern(self, head: Head, data: bytearray | bytes) -> Body:
        """Returns the one body that is equal to ``data``; compared with memcmp, copied only if it is new."""
        size, middle = len(data), len(data) // 2
        sample = bytes(data[:SAMPLE_BYTES]), bytes(data[middle : middle + SAMPLE_BYTES])
        candidates = self._known.setdefault((head.api, head.version, size, *sample), [])
        for body in candidates[:LOOKED_AT_MAX]:
            if body.data == data:
                return body
        body = Body(head, bytes(data))
        candidates.append(body)
        self.kept_bytes += size
        return body

    def clear(self) -> None:
        """Forgets all bodies."""
        self._known.clear()
        self.kept_bytes = 0


def _scanned(data: bytes, version: int, code: int) -> bytes:
    """Encodes the topics (or partitions) of a response: scans from partition to partition without building them.

    Reads the plain form alone (names, topics and arrays with short lengths, no tags); raises BadMessage or IndexError
    for everything else.
    """
    reader = Reader(data, items_max=len(data))
    by_id = version >= 5
    reader.position = 1 if by_id else 0
    flags = 2 if version >= 6 else 1
    end = _CODE(code, False)
    topics: list[bytes] = []
    listed = 0
    count = count_items(reader, TOPIC_BYTES_MIN)
    pos = reader.position
    for _ in range(count):
        size = data[pos]
        start, pos = pos, pos + size
        if by_id:
            start, pos = pos, pos + 16
        partitions, after = _walk(data, pos, flags)
        if not 0 < size < _SHORT or data[after]:
            raise BadMessage("not in the plain form")
        listed += len(partitions)
        if by_id:
            partitions.append(b"")
            topics.append(data[start:pos] + _LENGTHS[len(partitions)] + end.join(partitions) + NO_TAGS)
        else:
            topics += [data[start:pos] + partition + end for partition in partitions]
        pos = after + 1
    reader.position = pos
    reader.compact_array(_live_leader, 10)
    reader.skip_tags()
    reader.end()
    return varint((count if by_id else listed) + 1) + b"".join(topics)


def _stopped(data: bytes, version: int, code: int) -> bytes:
    """Encodes the partitions of a StopReplica's response: one flat array, each partition with the name of its topic."""
    reader = Reader(data, items_max=len(data))
    end = _CODE(code, False)
    listed: list[bytes] = []
    for _ in range(count_items(reader, TOPIC_BYTES_MIN)):
        size, start = data[reader.position], reader.position
        name, pos = data[start : start + size], start + size
        count = data[pos] - 1
        after = pos + 1 + _STOP_BYTES * count
        tags = data[pos + _STOP_BYTES : after : _STOP_BYTES]
        if not 0 < size < _SHORT or not 0 <= count < _SHORT - 1 or any(tags) or data[after]:
            raise BadMessage("not in the plain form")
        listed += [name + data[at : at + 4] + end for at in range(pos + 1, after, _STOP_BYTES)]
        reader.position = after + 1
    reader.skip_tags()
    reader.end()
    return varint(len(listed) + 1) + b"".join(listed)


def _walk(data: bytes, pos: int, flags: int) -> tuple[list[bytes], int]:
    """Returns the partition numbers of one topic as bytes, and the position behind them."""
    sizes = {data[pos]}
    found: list[bytes] = []
    for _ in range(data[pos] - 1):
        pos += 1
        found.append(data[pos : pos + 4])
        in_sync = data[pos + 16]
        pos += 17 + 4 * in_sync
        replicas = data[pos]
        pos += 4 * replicas - 3
        adding = data[pos]
        pos += 4 * adding - 3
        removing = data[pos]
        pos += 4 * removing - 3 + flags
        sizes |= {in_sync, replicas, adding, removing}
        if data[pos]:
            raise BadMessage("not in the plain form")
    if 0 in sizes or max(sizes) >= _SHORT:
        raise BadMessage("not in the plain form")
    return found, pos + 1


def _live_leader(reader: Reader) -> None:
    reader.i32()
    reader.compact_string()
    reader.i32()
    reader.skip_tags()
