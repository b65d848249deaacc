"""``/controller``, ``/controller_epoch`` and ``/migration``: who holds the role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import (
    INT32_MAX,
    Int32,
    Int64,
    Malformed,
    guarded,
    require_version,
    split_unknown,
    strict,
    to_json,
)

VERSION: Final = 2
NO_KRAFT_EPOCH: Final = -1
"""``kraftControllerEpoch`` outside of a KRaft migration. Above 0 brokers refuse configuration writes."""

_DIGITS: Final = re.compile(rb"\d{1,10}")


class ControllerZnode(Struct, frozen=True):
    """Content of ``/controller``. ``timestamp_ms`` is when the role was taken; ``unknown`` holds further fields."""

    broker: int
    timestamp_ms: int = 0
    kraft_epoch: int = NO_KRAFT_EPOCH
    unknown: dict[str, object] = {}


class _Controller(Struct, rename={"kraft_epoch": "kraftControllerEpoch"}):
    brokerid: Int32
    timestamp: str | int | None = None
    kraft_epoch: Int32 | None = None
    version: object = None


_decode = strict(_Controller)
_FIELDS: Final = _Controller.__struct_encode_fields__


def decode_controller(path: str, data: bytes | None) -> ControllerZnode | Malformed:
    """Who is the controller: only ``brokerid`` is mandatory, whatever the version, as for brokers."""
    return guarded(path, lambda: _controller(data))


def _controller(data: bytes | None) -> ControllerZnode:
    found = _decode(data)
    timestamp = str(found.timestamp)
    return ControllerZnode(
        found.brokerid,
        int(timestamp) if timestamp.isascii() and timestamp.isdigit() else 0,
        NO_KRAFT_EPOCH if found.kraft_epoch is None else found.kraft_epoch,
        split_unknown(data, _FIELDS),
    )


def encode_controller(controller: ControllerZnode) -> bytes:
    """Data of ``/controller``."""
    fields = {
        "version": VERSION,
        "brokerid": controller.broker,
        "timestamp": str(controller.timestamp_ms),
        "kraftControllerEpoch": controller.kraft_epoch,
    }
    return to_json(fields, controller.unknown)


def decode_epoch(path: str, data: bytes | None) -> int | Malformed:
    """The controller epoch: decimal text, no JSON."""
    if data is None or not _DIGITS.fullmatch(data) or int(data) > INT32_MAX:
        return Malformed(path, f"{(data or b'')[:40]!r} is not a controller epoch (decimal text)")
    return int(data)


def encode_epoch(epoch: int) -> bytes:
    """Data of ``/controller_epoch``."""
    return b"%d" % epoch


class Migration(Struct, frozen=True):
    """Content of ``/migration``: how far a migration to KRaft is. A controller id means that KRaft has the role."""

    kraft_controller_id: Int32
    kraft_controller_epoch: Int32
    kraft_metadata_offset: Int64
    kraft_metadata_epoch: Int32


class _Migration(Struct):
    version: int
    kraft_controller_id: Int32
    kraft_controller_epoch: Int32
    kraft_metadata_offset: Int64
    kraft_metadata_epoch: Int32


_decode_migration = strict(_Migration)


def decode_migration(path: str, data: bytes | None) -> Migration | Malformed:
    """State of a migration to KRaft."""
    return guarded(path, lambda: _migration(data))


def _migration(data: bytes | None) -> Migration:
    found = _decode_migration(data)
    require_version(found.version, (0,))
    return Migration(
        found.kraft_controller_id,
        found.kraft_controller_epoch,
        found.kraft_metadata_offset,
        found.kraft_metadata_epoch,
    )


def encode_migration(migration: Migration) -> bytes:
    """Data of ``/migration``; for tests, regent never writes it."""
    fields: Mapping[str, object] = {"version": 0, **{f: getattr(migration, f) for f in migration.__struct_fields__}}
    return to_json(fields)
