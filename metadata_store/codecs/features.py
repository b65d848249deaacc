"""Encodes and decodes ``/feature``: finalised features (KIP-584), version 1 below IBP 3.3, version 2 from it on."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import Int32, Malformed, guarded, require_version, split_unknown, strict, to_json

DISABLED: Final = 0
ENABLED: Final = 1


class FeatureRange(Struct, frozen=True):
    """Levels of a feature; ``min_level`` exists in version 1 only."""

    max_level: int
    min_level: int | None = None


class Features(Struct, frozen=True):
    """Content of ``/feature``. ``enabled``: whether features are in use (IBP 2.7-IV0 and newer)."""

    version: int
    enabled: bool
    features: dict[str, FeatureRange] = {}
    unknown: dict[str, object] = {}


class _Range(Struct):
    max_version_level: Int32
    min_version_level: Int32 | None = None


class _Features(Struct):
    version: int
    status: int
    features: dict[str, _Range] = {}


_decode = strict(_Features)


def decode_features(path: str, data: bytes | None) -> Features | Malformed:
    """Decodes finalised features."""
    return guarded(path, lambda: _features(data))


def _features(data: bytes | None) -> Features:
    found = _decode(data)
    require_version(found.version, (1, 2))
    if found.status not in (DISABLED, ENABLED):
        raise ValueError(f"status {found.status} is neither 0 (disabled) nor 1 (enabled)")
    ranges = {name: FeatureRange(r.max_version_level, r.min_version_level) for name, r in found.features.items()}
    return Features(found.version, found.status == ENABLED, ranges, split_unknown(data, _Features.__struct_fields__))


def encode_features(features: Features) -> bytes:
    """Encodes the znode in the version of ``features``."""
    ranges = {name: _levels(levels, features.version) for name, levels in features.features.items()}
    fields = {"version": features.version, "status": ENABLED if features.enabled else DISABLED, "features": ranges}
    return to_json(fields, features.unknown)


def _levels(levels: FeatureRange, version: int) -> dict[str, int]:
    fields = {"max_version_level": levels.max_level}
    if version == 1 and levels.min_level is not None:
        fields["min_version_level"] = levels.min_level
    return fields
