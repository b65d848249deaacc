"""Encodes and decodes sequential znodes that notify the controller, or the brokers, of a change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import Malformed, NonNegative, guarded, require_version, strict, to_json
from metadata_store.codecs.entries import Unusable, each_alone
from state_machines.model.types import TopicPartition

LOG_DIR_FAILURE: Final = 1
"""The only event of ``/log_dir_event_notification``."""


class Partitions(Struct, frozen=True):
    """Partitions in order; ``unusable`` holds the entries that name none."""

    named: list[TopicPartition]
    unusable: Unusable = Unusable()


class _Named(Struct):
    topic: str
    partition: NonNegative


class _LogDirEvent(Struct):
    version: int
    broker: NonNegative
    event: int


class _ConfigChange(Struct):
    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


_decode_log_dir = strict(_LogDirEvent)
_decode_config = strict(_ConfigChange)


def decode_partitions(path: str, data: bytes | None) -> Partitions | Malformed:
    """Decodes ``/isr_change_notification/*`` and ``/admin/preferred_replica_election``: a list of partitions."""
    return guarded(path, lambda: _partitions(data))


def _partitions(data: bytes | None) -> Partitions:
    found = each_alone(data, _Named)
    return Partitions([TopicPartition(one.topic, one.partition) for one in found.usable], found.unusable)


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encodes the same list."""
    return to_json({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


def decode_log_dir_event(path: str, data: bytes | None) -> int | Malformed:
    """Decodes ``/log_dir_event_notification/*``: the broker that lost a log directory."""
    return guarded(path, lambda: _log_dir_event(data))


def _log_dir_event(data: bytes | None) -> int:
    found = _decode_log_dir(data)
    require_version(found.version, (1,))
    if found.event != LOG_DIR_FAILURE:
        raise ValueError(f"event {found.event} is unknown, this program knows {LOG_DIR_FAILURE}")
    return found.broker


def encode_log_dir_event(broker: int) -> bytes:
    """Encodes the same, as brokers write it."""
    return to_json({"version": 1, "broker": broker, "event": LOG_DIR_FAILURE})


def decode_config_change(path: str, data: bytes | None) -> str | Malformed:
    """Decodes ``/config/changes/*``: the path of the changed entity below ``/config``, such as ``topics/orders``."""
    return guarded(path, lambda: _config_change(data))


def _config_change(data: bytes | None) -> str:
    found = _decode_config(data)
    require_version(found.version, (1, 2))
    if found.version == 1 and found.entity_type and found.entity_name:
        return f"{found.entity_type}/{found.entity_name}"
    if found.version == 1 or not found.entity_path:
        raise ValueError("it names no entity")
    return found.entity_path


def encode_config_change(entity_path: str) -> bytes:
    """Encodes the same in version 2."""
    return to_json({"version": 2, "entity_path": entity_path})
