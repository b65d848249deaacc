"""Requests to an admin endpoint, as the fields that kio writes."""

from __future__ import annotations

import datetime
from typing import Any

from kio.index import load_request_schema

from tests.kit.wire_kit import part

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
PASSED = b"\x00\x0a\x00\x00" + b"\0\0\0\7" + b"\xff\xff"
"""A FindCoordinator v0 without a client id; a real broker would refuse it, because the group is missing."""


def bare(api: int, version: int, size: int = 0) -> bytes:
    """Writes a request of any API with a null client id and ``size`` zeros as its body."""
    head = api.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return head + b"\0\0\0\1" + b"\xff\xff" + bytes(size)


def passed(correlation: int) -> bytes:
    """Writes a request that the endpoint passes to a broker."""
    return PASSED[:4] + correlation.to_bytes(4, "big") + PASSED[8:]


def create(version: int) -> dict[str, Any]:
    """Returns the fields of a CreateTopics of one topic."""
    fields: dict[str, Any] = {"name": "t", "num_partitions": 3, "replication_factor": 2}
    topic = part(CREATE_TOPICS, version, "CreatableTopic", assignments=(), configs=(), **fields)
    return _of_version(
        CREATE_TOPICS, version, topics=(topic,), timeout=datetime.timedelta(seconds=9), validate_only=True
    )


def produce(version: int, acks: int) -> dict[str, Any]:
    """Returns the fields of a Produce of one partition."""
    data = part(PRODUCE, version, "PartitionProduceData", index=4, records=bytes(1_000))
    topic = part(PRODUCE, version, "TopicProduceData", name="t", partition_data=(data,))
    fields: dict[str, Any] = {"acks": acks, "timeout": datetime.timedelta(seconds=1), "transactional_id": None}
    return _of_version(PRODUCE, version, topic_data=(topic,), **fields)


def fetch(version: int, session_id: int = 0) -> dict[str, Any]:
    """Returns the fields of a Fetch of one partition."""
    position: dict[str, Any] = {"partition": 4, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    at = part(FETCH, version, "FetchPartition", log_start_offset=-1, partition_max_bytes=1, **position)
    topic = part(FETCH, version, "FetchTopic", topic="t", topic_id=None, partitions=(at,))
    fields: dict[str, Any] = {"max_wait": datetime.timedelta(0), "min_bytes": 1, "session_epoch": 0, "rack_id": ""}
    return _of_version(FETCH, version, topics=(topic,), session_id=session_id, forgotten_topics_data=(), **fields)


def resource(key: int, version: int, kind: int, name: str) -> Any:
    """Returns a resource of a configuration request."""
    what = "DescribeConfigsResource" if key == DESCRIBE_CONFIGS else "AlterConfigsResource"
    fields: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configs": (), "configuration_keys": None}
    return part(key, version, what, **fields)


def about(key: int, version: int, *resources: tuple[int, str]) -> dict[str, Any]:
    """Returns the fields of a configuration request about some resources."""
    fields: dict[str, Any] = {"validate_only": False, "include_synonyms": False, "include_documentation": False}
    named = tuple(resource(key, version, *one) for one in resources)
    return _of_version(key, version, resources=named, **fields)


def _of_version(key: int, version: int, **fields: Any) -> dict[str, Any]:
    """Leaves out the fields that a version does not have."""
    known = load_request_schema(key, version).__dataclass_fields__
    return {name: value for name, value in fields.items() if name in known}
