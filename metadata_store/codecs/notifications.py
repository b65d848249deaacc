"""Encodes and decodes sequential znodes that notify the controller, or the brokers, of a change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from metadata_store.codecs.base import (
    BAD_DATA,
    MalformedNode,
    NonNegative,
    guarded,
    reason,
    require_version,
    strict,
    to_json,
)
from state_machines.model.types import TopicPartition

T = TypeVar("T", bound=Struct)

UNUSABLE_MAX: Final = 50_000
"""Unusable entries of one znode. Entries with a topic and a partition reach ZooKeeper's megabyte before."""
TOLD_MAX: Final = 3
"""Unusable entries that are reported with their position and fault; the others are counted."""
_DIGITS_MAX: Final = 20
_FIELDS: Final = ("version", "partitions")


class Unusable(Struct, frozen=True):
    """The number of entries that cannot be used, of how many, with position and fault of the first ones."""

    count: int = 0
    entries: int = 0
    told: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        more = self.count - len(self.told)
        first = "; ".join(self.told) + (f"; {more} more" if more else "")
        return f"{self.count} of {self.entries} entries cannot be used ({first})"


class Entries(Struct, Generic[T], frozen=True):
    """Usable entries in order, the unusable ones, and further fields of the znode."""

    usable: list[T]
    unusable: Unusable
    unknown: dict[str, object]


def each_alone(data: bytes | None, kind: type[T]) -> Entries[T]:
    """Decodes entries one by one; raises one of ``BAD_DATA`` where there is no list of entries in a known version.

    JSON is read tolerantly: text that is not Unicode or a number of any size spoils its own entry, not the znode.
    """
    if data is None:
        raise ValueError("holds no data")
    text = data.decode("utf-8", "surrogateescape")
    found = json.loads(text, strict=False, parse_int=_number, parse_constant=str)
    if not isinstance(found, dict):
        raise ValueError("holds no JSON object")
    require_version(found.get("version"), (1,))
    entries = found.get("partitions")
    if not isinstance(entries, list):
        raise ValueError("its partitions are no list")
    usable: list[T] = []
    told: list[str] = []
    count = 0
    for at, entry in enumerate(entries):
        try:
            usable.append(_writable(msgspec.convert(entry, kind)))
        except BAD_DATA as error:
            count += 1
            if count <= TOLD_MAX:
                told.append(f"partitions[{at}]: {reason(error)}")
            elif count > UNUSABLE_MAX:
                raise ValueError(f"more than {UNUSABLE_MAX} of its {len(entries)} entries cannot be used") from error
    unusable = Unusable(count, len(entries), tuple(told)) if count else Unusable()
    return Entries(usable, unusable, _unknown(found))


def _number(digits: str) -> int | str:
    """Parses an integer; one that no field holds stays text, because Python refuses to parse very long ones."""
    return int(digits) if len(digits) <= _DIGITS_MAX else digits


def _writable(entry: T) -> T:
    """Returns an entry; raises ValueError for text that is not Unicode, which cannot be written back."""
    msgspec.json.encode(entry)
    return entry


def _unknown(found: dict[str, object]) -> dict[str, object]:
    """Returns the further fields that can be written back."""
    kept: dict[str, object] = {}
    for name, value in found.items():
        try:
            msgspec.json.encode((name, value))
        except BAD_DATA:
            continue
        if name not in _FIELDS:
            kept[name] = value
    return kept


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


def decode_partitions(path: str, data: bytes | None) -> Partitions | MalformedNode:
    """Decodes ``/isr_change_notification/*`` and ``/admin/preferred_replica_election``: a list of partitions."""
    return guarded(path, lambda: _partitions(data))


def _partitions(data: bytes | None) -> Partitions:
    found = each_alone(data, _Named)
    return Partitions([TopicPartition(one.topic, one.partition) for one in found.usable], found.unusable)


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encodes the same list."""
    return to_json({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


def decode_log_dir_event(path: str, data: bytes | None) -> int | MalformedNode:
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


def decode_config_change(path: str, data: bytes | None) -> str | MalformedNode:
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
