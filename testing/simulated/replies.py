"""Encodes a broker's full responses to LeaderAndIsr, UpdateMetadata and StopReplica, after their 4-byte length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from brokers.wire.primitives import EMPTY_ARRAY, NO_TAGS, ZERO_ID, compact_string, varint
from brokers.wire.versions import Api
from testing.simulated.values import Head, Key, LeaderAndIsr, Request, StopReplica, UpdateMetadata

_TOP: Final = Struct(">i?h").pack
_PARTITION: Final = Struct(">ih?").pack
_API: Final = Struct(">hhh?").pack
_API_VERSIONS: Final = Struct(">ih").pack


def encode_response(request: Request, error: int, errors: Mapping[Key, int]) -> bytes:
    """Encodes the response to ``request``: the top-level ``error`` and its partitions, in the order of ``errors``.

    LeaderAndIsr from v5 on names topics by id, so topics without one share the zero id, as with a real broker.
    """
    top = _TOP(request.head.correlation, False, error)
    match request:
        case UpdateMetadata():
            return top + NO_TAGS
        case LeaderAndIsr() if request.head.version >= 5:
            return top + _by_topic_id(request, errors) + NO_TAGS
        case LeaderAndIsr() | StopReplica():
            return top + _array([compact_string(t) + _PARTITION(p, e, False) for (t, p), e in errors.items()]) + NO_TAGS


def _by_topic_id(request: LeaderAndIsr, errors: Mapping[Key, int]) -> bytes:
    ids = {entry.topic: entry.topic_id or ZERO_ID for entry in request.entries}
    topics: dict[bytes, list[bytes]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(ids[topic], []).append(_PARTITION(partition, error, False))
    return _array([topic_id + _array(found) + NO_TAGS for topic_id, found in topics.items()])


def bare_response(head: Head, error: int) -> bytes:
    """Encodes a response without partitions, as StopReplica gets with a top-level error."""
    listed = b"" if head.api is Api.UPDATE_METADATA else EMPTY_ARRAY
    return _TOP(head.correlation, False, error) + listed + NO_TAGS


def api_versions_response(correlation: int, offered: Mapping[Api, tuple[int, int]]) -> bytes:
    """Encodes ApiVersions v3 and v4; the header of this response never has tags."""
    apis = _array([_API(api, *versions, False) for api, versions in offered.items()])
    return _API_VERSIONS(correlation, 0) + apis + bytes(4) + NO_TAGS


def _array(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return varint(len(found) + 1) + b"".join(found)
