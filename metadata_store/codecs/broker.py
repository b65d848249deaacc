"""Encodes and decodes ``/brokers/ids/N``: a broker's registration, versions 2 to 5."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from metadata_store.codecs.base import Int32, Malformed, guarded, require_version, strict, to_json
from state_machines.model.types import Broker, Endpoint

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


def decode_broker(path: str, broker: int, data: bytes | None, czxid: int, version: int) -> Broker | Malformed:
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
