"""Encodes and decodes ``/controller``, ``/controller_epoch`` and ``/migration``: the role's holder and epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import (
    INT32_MAX,
    Int32,
    Int64,
    MalformedNode,
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
    """Content of ``/controller``. ``timestamp_ms`` is when the role was taken; ``unknown`` holds further fields.

    A daemon adds three fields: the ``nonce`` of its process, host:port of its controller ``listener``, where admin
    endpoints find it, and a ``seal`` that proves to them that a daemon wrote both
    (:mod:`brokers.security.shared_secret`).
    """

    broker: int
    timestamp_ms: int = 0
    kraft_epoch: int = NO_KRAFT_EPOCH
    unknown: dict[str, object] = {}
    nonce: str | None = None
    listener: str | None = None
    seal: str | None = None


_DAEMON_FIELDS: Final = {"nonce": "regent", "listener": "regentListener", "seal": "regentSeal"}


class _Controller(Struct, rename={"kraft_epoch": "kraftControllerEpoch"}):
    brokerid: Int32
    timestamp: str | int | None = None
    kraft_epoch: Int32 | None = None
    version: object = None


_decode = strict(_Controller)
_FIELDS: Final = _Controller.__struct_encode_fields__


def decode_controller(path: str, data: bytes | None) -> ControllerZnode | MalformedNode:
    """Reads the controller: only ``brokerid`` is mandatory, whatever the version, as for brokers."""
    return guarded(path, lambda: _controller(data))


def _controller(data: bytes | None) -> ControllerZnode:
    found = _decode(data)
    timestamp = str(found.timestamp)
    unknown = split_unknown(data, _FIELDS)
    daemon: dict[str, str | None] = {}
    for name, field in _DAEMON_FIELDS.items():
        value = unknown.get(field)
        if isinstance(value, str | None):  # no daemon writes another type: that stays unknown
            daemon[name] = value
            unknown.pop(field, None)
    return ControllerZnode(
        found.brokerid,
        int(timestamp) if timestamp.isascii() and timestamp.isdigit() else 0,
        NO_KRAFT_EPOCH if found.kraft_epoch is None else found.kraft_epoch,
        unknown,
        **daemon,
    )


def controller_fields(controller: ControllerZnode) -> dict[str, object]:
    """Returns the JSON fields of ``/controller``; those of daemons only where a daemon wrote it."""
    fields: dict[str, object] = {
        "version": VERSION,
        "brokerid": controller.broker,
        "timestamp": str(controller.timestamp_ms),
        "kraftControllerEpoch": controller.kraft_epoch,
    }
    daemon = {field: getattr(controller, name) for name, field in _DAEMON_FIELDS.items()}
    by_daemon = any(value is not None for value in daemon.values())
    return fields | (daemon if by_daemon else {}) | controller.unknown


def encode_controller(controller: ControllerZnode) -> bytes:
    """Returns the data of ``/controller``."""
    return to_json(controller_fields(controller))


def decode_epoch(path: str, data: bytes | None) -> int | MalformedNode:
    """Reads the controller epoch: decimal text, no JSON."""
    if data is None or not _DIGITS.fullmatch(data) or int(data) > INT32_MAX:
        return MalformedNode(path, f"{(data or b'')[:40]!r} is not a controller epoch (decimal text)")
    return int(data)


def encode_epoch(epoch: int) -> bytes:
    """Returns the data of ``/controller_epoch``."""
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


def decode_migration(path: str, data: bytes | None) -> Migration | MalformedNode:
    """Reads the state of a migration to KRaft."""
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
    """Returns the data of ``/migration``; for tests, regent never writes it."""
    fields: Mapping[str, object] = {"version": 0, **{f: getattr(migration, f) for f in migration.__struct_fields__}}
    return to_json(fields)
