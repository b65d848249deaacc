"""Responds to other requests to a broker's port: ApiVersions, DescribeConfigs v4, DescribeLogDirs."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Final

from brokers.wire.errors import Error
from brokers.wire.messages import read_request, response_codec
from brokers.wire.messages.nodes import DescribedReplica, DescribedTopic, DescribeLogDirsResponse, LogDir
from brokers.wire.primitives import EMPTY_ARRAY, NO_TAGS, BadMessage, Reader, compact_string, varint
from brokers.wire.versions import Api
from state_machines.model.types import LogDirectory
from testing.simulated.hosting import Hosting
from testing.simulated.replies import api_versions_response
from testing.simulated.requests import VERSIONS

IBP_SETTING: Final = "inter.broker.protocol.version"
DESCRIBE_CONFIGS_VERSION: Final = 4
_OFFERED: Final = {**VERSIONS, Api.API_VERSIONS: (0, 3), Api.DESCRIBE_CONFIGS: (4, 4)}
_FLEXIBLE_SINCE: Final = 3
_STATIC, _STRING = b"\4", b"\2"
"""Source of a setting, and its type."""


def respond_to_query(frame: bytes, settings: dict[str, str]) -> bytes:
    """Returns the response, without length, as frames come; ``settings`` are the broker's. Raises BadMessage."""
    reader = Reader(frame)
    api, version, correlation = reader.i16(), reader.i16(), reader.i32()
    if api == Api.API_VERSIONS:
        if version == _FLEXIBLE_SINCE:
            return api_versions_response(correlation, _OFFERED)
        return _unsupported(correlation)
    if (api, version) != (Api.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION):
        raise BadMessage(f"API key {api} v{version}, which simulated brokers do not serve")
    reader.legacy_nullable_string()
    reader.skip_tags()
    resources = reader.compact_array(_resource, 4)
    results = [_result(kind, name, settings) for kind, name in resources]
    return correlation.to_bytes(4, "big") + NO_TAGS + bytes(4) + _array(results) + NO_TAGS


def _unsupported(correlation: int) -> bytes:
    """Encodes ApiVersions in a version that is not served: error 35 and a v0 body, as Kafka does."""
    ranges = [b"".join(n.to_bytes(2, "big") for n in (api, *versions)) for api, versions in _OFFERED.items()]
    error = Error.UNSUPPORTED_VERSION.to_bytes(2, "big")
    return correlation.to_bytes(4, "big") + error + len(ranges).to_bytes(4, "big") + b"".join(ranges)


def _resource(reader: Reader) -> tuple[int, str]:
    kind, name = reader.i8(), reader.compact_string()
    if reader.data[reader.position : reader.position + 1] == b"\0":
        reader.i8()
    else:
        reader.compact_array(Reader.compact_string, 1)
    reader.skip_tags()
    return kind, name


def _result(kind: int, name: str, settings: dict[str, str]) -> bytes:
    configs = [
        compact_string(key) + compact_string(value) + b"\0" + _STATIC + b"\0" + EMPTY_ARRAY + _STRING + b"\0" + NO_TAGS
        for key, value in settings.items()
    ]
    head = b"\0\0" + compact_string("") + bytes((kind,)) + compact_string(name)
    return head + _array(configs) + NO_TAGS


def _array(items: list[bytes]) -> bytes:
    return varint(len(items) + 1) + b"".join(items)


def respond_to_log_dirs(frame: bytes, hosting: Hosting) -> bytes:
    """Returns the response to a request, both without their lengths; raises :class:`BadMessage`."""
    topics = read_request(frame).body.topics
    wanted = None if topics is None else [(topic.topic, number) for topic in topics for number in topic.partitions]
    codec = response_codec(Api.DESCRIBE_LOG_DIRS, int.from_bytes(frame[2:4], "big"))
    body = codec.write(DescribeLogDirsResponse(tuple(map(_listed, hosting.directories(wanted)))))
    return frame[4:8] + (NO_TAGS if codec.flexible else b"") + body


def _listed(directory: LogDirectory) -> LogDir:
    by_topic = groupby(directory.logs, key=attrgetter("topic"))
    topics = tuple(
        DescribedTopic(
            topic,
            tuple(DescribedReplica(log.partition, log.size_bytes, log.offset_lag, log.is_future) for log in logs),
        )
        for topic, logs in by_topic
    )
    return LogDir(directory.path, directory.error, topics=topics)
