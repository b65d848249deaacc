"""Writes DescribeLogDirs requests and reads the responses, v0 to v4 (KIP-113, KIP-827).

A response about all replicas of a broker has 22 bytes or more for each: some megabytes at 100,000 replicas. Its reader
belongs on the thread of :mod:`brokers.wire.frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain
from struct import Struct as Pack
from typing import Final, NamedTuple, TypeVar

from brokers.wire.errors import Error
from brokers.wire.messages import MESSAGES, request_codec
from brokers.wire.messages.nodes import DescribableTopic, DescribeLogDirsRequest
from brokers.wire.primitives import NO_TAGS, BadMessage, Reader, legacy_string
from brokers.wire.versions import Api
from state_machines.model.types import LogDirectory, ReplicaLog

T = TypeVar("T")

REPLICAS_MAX: Final = 500_000
"""Most replicas that one response may list, its topics and directories counted as well."""

_API: Final = Api.DESCRIBE_LOG_DIRS
_HEAD: Final = Pack(">hhi").pack
_FLEXIBLE_SINCE: Final = 2
_TOP_LEVEL_ERROR_SINCE: Final = 3
_VOLUME_SINCE: Final = 4
_VOLUME_BYTES: Final = 16
"""Total and usable bytes of the volume with the directory."""
_REPLICA: Final = Pack(">iqq?")
_FLEXIBLE_REPLICA: Final = Pack(">iqq?x")
"""A replica with an empty section of tags."""
_DIRECTORY_BYTES_MIN: Final = 5
_TOPIC_BYTES_MIN: Final = 3


class LogDirectories(NamedTuple):
    """A response. ``error`` is its top-level error, which brokers send from v3 on; they list no directory then."""

    error: int
    directories: tuple[LogDirectory, ...]


def newest_version(offered: tuple[int, int]) -> int | None:
    """Returns the newest version that both sides have; None where the broker's range has none of them."""
    known = MESSAGES[_API]
    version = min(offered[1], known.last)
    return version if version >= max(offered[0], known.first) else None


def encode_log_dirs(
    version: int, correlation: int, client_id: str, partitions: Mapping[str, Collection[int]] | None
) -> bytes:
    """Returns a framed request for partitions by topic; None: all, an empty mapping: directories without replicas."""
    codec = request_codec(_API, version)
    topics = None
    if partitions is not None:
        topics = tuple(DescribableTopic(topic, tuple(numbers)) for topic, numbers in partitions.items())
    header = _HEAD(_API, version, correlation) + legacy_string(client_id) + (NO_TAGS if codec.flexible else b"")
    frame = header + codec.write(DescribeLogDirsRequest(topics))
    return len(frame).to_bytes(4, "big") + frame


def read_log_dirs(version: int, frame: bytes, correlation: int, replicas_max: int = REPLICAS_MAX) -> LogDirectories:
    """Reads the response to request ``correlation``; raises :class:`BadMessage`, also above ``replicas_max``."""
    reader = Reader(frame, replicas_max)
    if (found := reader.i32()) != correlation:
        raise BadMessage(f"response to request {found} instead of request {correlation}")
    if version >= _FLEXIBLE_SINCE:
        reader.skip_tags()
    reader.i32()
    error = reader.i16() if version >= _TOP_LEVEL_ERROR_SINCE else Error.NONE
    directories = _items(reader, version, lambda: _directory(reader, version), _DIRECTORY_BYTES_MIN)
    _end(reader, version)
    reader.end()
    return LogDirectories(error, tuple(directories))


def _directory(reader: Reader, version: int) -> LogDirectory:
    error, path = reader.i16(), _string(reader, version)
    topics = _items(reader, version, lambda: _logs(reader, version), _TOPIC_BYTES_MIN)
    if version >= _VOLUME_SINCE:
        reader.skip(_VOLUME_BYTES)
    _end(reader, version)
    return LogDirectory(path, error, tuple(chain.from_iterable(topics)))


def _logs(reader: Reader, version: int) -> list[ReplicaLog]:
    topic, count = _string(reader, version), _length(reader, version)
    layout = _FLEXIBLE_REPLICA if version >= _FLEXIBLE_SINCE else _REPLICA
    first_tags, end = reader.position + _REPLICA.size, reader.position + count * layout.size
    if layout is _FLEXIBLE_REPLICA and any(reader.data[first_tags : end : layout.size]):
        logs = reader.items(count, lambda _: _tagged_log(reader, topic), layout.size)
    else:
        logs = [ReplicaLog(topic, *fields) for fields in reader.records(count, layout)]
    _end(reader, version)
    return logs


def _tagged_log(reader: Reader, topic: str) -> ReplicaLog:
    """Reads a replica that may have tagged fields, which no Kafka release sends so far."""
    log = ReplicaLog(topic, reader.i32(), reader.i64(), reader.i64(), reader.i8() != 0)
    reader.skip_tags()
    return log


def _items(reader: Reader, version: int, item: Callable[[], T], item_bytes_min: int) -> list[T]:
    return reader.items(_length(reader, version), lambda _: item(), item_bytes_min)


def _length(reader: Reader, version: int) -> int:
    return reader.varint() - 1 if version >= _FLEXIBLE_SINCE else reader.i32()


def _string(reader: Reader, version: int) -> str:
    return reader.compact_string() if version >= _FLEXIBLE_SINCE else reader.legacy_string()


def _end(reader: Reader, version: int) -> None:
    if version >= _FLEXIBLE_SINCE:
        reader.skip_tags()
