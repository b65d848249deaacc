"""Encodes and decodes ``/config/{topics,clients,users,brokers,ips}/NAME``: dynamic configuration of an entity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import Malformed, guarded, require_version, split_unknown, strict, to_json

DEFAULT_ENTITY: Final = "<default>"
"""Name of the znode that holds the cluster-wide default of its kind."""


class Config(Struct, frozen=True):
    """Keys and values as text; ``unknown`` holds further fields of the znode."""

    entries: dict[str, str]
    unknown: dict[str, object] = {}


class _Config(Struct):
    version: int
    config: dict[str, str]


_decode = strict(_Config)


def decode_config(path: str, data: bytes | None) -> Config | Malformed:
    """Decodes the configuration of an entity; a znode without data is an empty one, as for brokers."""
    return guarded(path, lambda: _config(data)) if data else Config({})


def _config(data: bytes) -> Config:
    found = _decode(data)
    require_version(found.version, (1,))
    return Config(found.config, split_unknown(data, ("version", "config")))


def encode_config(entries: Mapping[str, str], unknown: Mapping[str, object] | None = None) -> bytes:
    """Encodes the configuration of an entity."""
    return to_json({"version": 1, "config": entries}, unknown)
