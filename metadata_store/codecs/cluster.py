"""Encodes and decodes brokers' registrations and znodes of a whole cluster: ids, features, configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from metadata_store.codecs.base import Int32, MalformedNode, guarded, require_version, split_unknown, strict, to_json
from state_machines.model.types import Broker, Endpoint

BLOCK_SIZE: Final = 1_000
"""Producer ids of a block (``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``)."""

_INT64_MAX: Final = 2**63 - 1


class ProducerIdBlock(Struct, frozen=True):
    """Producer ids ``start`` to ``end`` (both included) that ``broker`` may hand out."""

    broker: int
    start: int
    end: int


class _Block(Struct):
    version: int
    broker: Int32
    block_start: str
    block_end: str


class _ClusterId(Struct):
    id: str
    version: object = None


_decode_block = strict(_Block)
_decode_cluster_id = strict(_ClusterId)


def decode_producer_ids(path: str, data: bytes | None) -> ProducerIdBlock | MalformedNode | None:
    """Decodes the last allocated block; None where there was none yet (the znode holds NULL)."""
    return guarded(path, lambda: _block(data)) if data is not None else None


def _block(data: bytes) -> ProducerIdBlock:
    found = _decode_block(data)
    require_version(found.version, (1,))
    start, end = int(found.block_start), int(found.block_end)
    if not 0 <= start <= end <= _INT64_MAX:
        raise ValueError(f"the block {start} to {end} is no range of ids")
    return ProducerIdBlock(found.broker, start, end)


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Encodes the last allocated block."""
    fields = {"version": 1, "broker": block.broker, "block_start": str(block.start), "block_end": str(block.end)}
    return to_json(fields)


def decode_cluster_id(path: str, data: bytes | None) -> str | MalformedNode:
    """Decodes the id of the cluster."""
    return guarded(path, lambda: _cluster_id(data))


def _cluster_id(data: bytes | None) -> str:
    found = _decode_cluster_id(data)
    require_version(str(found.version), ("1",))
    return found.id


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encodes the id of the cluster; the znode's version is a string."""
    return to_json({"version": "1", "id": cluster_id})


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


_decode_features = strict(_Features)


def decode_features(path: str, data: bytes | None) -> Features | MalformedNode:
    """Decodes finalised features."""
    return guarded(path, lambda: _features(data))


def _features(data: bytes | None) -> Features:
    found = _decode_features(data)
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


DEFAULT_ENTITY: Final = "<default>"
"""Name of the znode that holds the cluster-wide default of its kind."""


class Config(Struct, frozen=True):
    """Keys and values as text; ``unknown`` holds further fields of the znode."""

    entries: dict[str, str]
    unknown: dict[str, object] = {}


class _Config(Struct):
    version: int
    config: dict[str, str]


_decode_config = strict(_Config)


def decode_config(path: str, data: bytes | None) -> Config | MalformedNode:
    """Decodes the configuration of an entity; a znode without data is an empty one, as for brokers."""
    return guarded(path, lambda: _config(data)) if data else Config({})


def _config(data: bytes) -> Config:
    found = _decode_config(data)
    require_version(found.version, (1,))
    return Config(found.config, split_unknown(data, ("version", "config")))


def encode_config(entries: Mapping[str, str], unknown: Mapping[str, object] | None = None) -> bytes:
    """Encodes the configuration of an entity."""
    return to_json({"version": 1, "config": entries}, unknown)


VERSIONS: Final = (2, 3, 4, 5)
PROTOCOLS: Final[Mapping[str, int]] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_PROTOCOL_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}
_ENDPOINT: Final = re.compile(r"(?P<listener>[^:/]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*?)\]?:(?P<port>\d+)")


class _Broker(Struct):
    version: int
    endpoints: Sequence[str] = ()
    rack: str | None = None
    listener_security_protocol_map: dict[str, str] | None = None


_decode = strict(_Broker)


def decode_broker(path: str, broker: int, data: bytes | None, czxid: int, version: int) -> Broker | MalformedNode:
    """Decodes a registration; ``czxid`` is its broker epoch, ``version`` the znode's version."""
    return guarded(path, lambda: _broker(broker, data, czxid, version))


def _broker(broker: int, data: bytes | None, czxid: int, version: int) -> Broker:
    found = _decode(data)
    require_version(found.version, VERSIONS)
    protocols = found.listener_security_protocol_map
    endpoints = tuple(_endpoint(text, protocols) for text in found.endpoints)
    if not endpoints:
        raise ValueError("it has no endpoints")
    return Broker(broker, czxid, endpoints, found.rack, version)


def _endpoint(text: str, protocols: Mapping[str, str] | None) -> Endpoint:
    """Decodes ``NAME://host:port``; without a map (versions 2 and 3) the listener's name is its protocol."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise ValueError(f"endpoint {text!r} is not of the form NAME://host:port")
    listener = match["listener"]
    protocol = listener if protocols is None else protocols.get(listener, "")
    if protocol not in PROTOCOLS:
        raise ValueError(f"listener {listener} has the security protocol {protocol!r}, not one of {list(PROTOCOLS)}")
    return Endpoint(listener, match["host"], int(match["port"]), PROTOCOLS[protocol])


def encode_broker(
    broker: Broker, *, timestamp_ms: int, jmx_port: Int32 = -1, features: Mapping[str, object] | None = None
) -> bytes:
    """Encodes a registration in version 5, as a broker writes it; for simulated brokers."""
    plain = next((e for e in broker.endpoints if e.security_protocol == PROTOCOLS["PLAINTEXT"]), None)
    fields: dict[str, Any] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": jmx_port,
        "timestamp": str(timestamp_ms),
        "endpoints": [_endpoint_text(e) for e in broker.endpoints],
        "listener_security_protocol_map": {e.listener: _PROTOCOL_NAMES[e.security_protocol] for e in broker.endpoints},
        "features": features or {},
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    return to_json(fields)


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"
