"""Requests to an admin endpoint, as the fields that kio wants."""

from __future__ import annotations

import datetime
from typing import Any

from kio.index import load_request_schema

from tests.core.wire_kit import part

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
PASSED = b"\x00\x0a\x00\x00" + b"\0\0\0\7" + b"\xff\xff"
"""A FindCoordinator v0 without a client id; a broker would miss the group."""


def passed(correlation: int) -> bytes:
    return PASSED[:4] + correlation.to_bytes(4, "big") + PASSED[8:]


def create(version: int) -> dict[str, Any]:
    """Fields of a CreateTopics of one topic."""
    topic = part(
        CREATE_TOPICS,
        version,
        "CreatableTopic",
        name="t",
        num_partitions=3,
        replication_factor=2,
        assignments=(),
        configs=(),
    )
    fields: dict[str, Any] = {"topics": (topic,), "timeout": datetime.timedelta(seconds=9)}
    return fields | ({"validate_only": True} if version >= 1 else {})


def produce(version: int, acks: int) -> dict[str, Any]:
    data = part(PRODUCE, version, "PartitionProduceData", index=4, records=bytes(1_000))
    topic = part(PRODUCE, version, "TopicProduceData", name="t", partition_data=(data,))
    fields: dict[str, Any] = {"acks": acks, "timeout": datetime.timedelta(seconds=1), "topic_data": (topic,)}
    return fields | ({"transactional_id": None} if version >= 3 else {})


def fetch(version: int, session_id: int = 0) -> dict[str, Any]:
    at = part(
        FETCH,
        version,
        "FetchPartition",
        partition=4,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    topic = part(FETCH, version, "FetchTopic", topic="t", topic_id=None, partitions=(at,))
    fields: dict[str, Any] = {
        "max_wait": datetime.timedelta(0),
        "min_bytes": 1,
        "topics": (topic,),
        "session_id": session_id,
        "session_epoch": 0,
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    known = load_request_schema(FETCH, version).__dataclass_fields__
    return {name: value for name, value in fields.items() if name in known}


def resource(key: int, version: int, kind: int, name: str) -> Any:
    what = "DescribeConfigsResource" if key == DESCRIBE_CONFIGS else "AlterConfigsResource"
    fields: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configs": (), "configuration_keys": None}
    return part(key, version, what, **fields)


def about(key: int, version: int, *resources: tuple[int, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"validate_only": False, "include_synonyms": False, "include_documentation": False}
    known = load_request_schema(key, version).__dataclass_fields__
    given = {name: value for name, value in fields.items() if name in known}
    return {**given, "resources": tuple(resource(key, version, *named) for named in resources)}
