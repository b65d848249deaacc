"""Encodes Envelope v0 (KIP-590): a client's request on its way from an admin endpoint to the active daemon.

The frame is that of Kafka's brokers, which forward requests to a controller in it, with Kafka's serialised principal.
One tagged field is added, the seal (:mod:`brokers.security.shared_secret`). It proves that the sender has the secret of
daemon and endpoint, and that the envelope is no replay. Its key (:func:`envelope_key`) binds the envelope to this
daemon of this cluster. The response has a seal, too.

An endpoint that connects first requests a challenge, with an empty envelope; the seals of that connection are bound to
the challenge and numbered. Seals do not encrypt: without TLS others can read an envelope, but cannot forge one.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from struct import Struct as Layout
from typing import Final, NamedTuple

from msgspec import Struct

from brokers.wire.primitives import NO_TAGS, BadMessage, Reader, compact_string, legacy_string, varint
from brokers.wire.versions import Api

SEAL_TAG: Final = 7_290
CALL_ID_BYTES: Final = 16
CHALLENGE_BYTES: Final = 16
OVERHEAD_BYTES_MAX: Final = 65_536
"""Upper bound of an envelope's size beside the request in it: the principal is a string of a message."""

_CLIENT_ID: Final = "regent-admin-endpoint"
_DOMAIN: Final = b"regent envelope 2"
_KEY_DOMAIN: Final = b"regent envelope key 1"
_ANSWER_DOMAIN: Final = b"regent answer 1"
_PRINCIPAL_VERSION: Final = bytes(2)
_HEAD = Layout(">hhi").pack
_NUMBERS = Layout(">16siq")
_SEAL = Layout(">16siq32s")
_MAC_BYTES: Final = 32
_I32, _I16 = Layout(">i").pack, Layout(">h").pack
_ADDRESS_BYTES: Final = (4, 16)


class Seal(NamedTuple):
    """An HMAC with its counters: ``call_id`` is the same in all attempts, ``number`` counts per connection."""

    call_id: bytes
    attempt: int
    number: int
    mac: bytes


class Envelope(Struct, frozen=True):
    """A client's request: header and body, empty to request a challenge. ``principal`` reads ``User:name``."""

    request: bytes
    principal: str = ""
    client_host: str = ""
    seal: Seal | None = None

    def sealed(self, key: bytes, challenge: bytes, call_id: bytes, attempt: int, number: int) -> Envelope:
        """Returns the envelope with its seal."""
        mac = self._mac(key, challenge, _NUMBERS.pack(call_id, attempt, number))
        return Envelope(self.request, self.principal, self.client_host, Seal(call_id, attempt, number, mac))

    def genuine(self, key: bytes, challenge: bytes) -> bool:
        """Returns whether the seal was made with ``key`` for ``challenge``; the caller checks its number."""
        if self.seal is None:
            return False
        return hmac.compare_digest(self._mac(key, challenge, _NUMBERS.pack(*self.seal[:3])), self.seal.mac)

    def _mac(self, key: bytes, challenge: bytes, numbers: bytes) -> bytes:
        parts = _principal(self.principal), _address(self.client_host), self.request
        return _mac(key, _DOMAIN, challenge, numbers, *parts)


def envelope_key(secret: bytes, cluster_id: str, daemon: int) -> bytes:
    """Returns the key of the seals of envelopes to one daemon of one cluster, and of its responses."""
    return _mac(secret, _KEY_DOMAIN, cluster_id.encode(), str(daemon).encode())


def _mac(key: bytes, *parts: bytes) -> bytes:
    made = hmac.new(key, digestmod="sha256")
    for part in parts:
        made.update(_I32(len(part)))
        made.update(part)
    return made.digest()


def encode_envelope(correlation: int, envelope: Envelope) -> bytes:
    """Returns one framed request."""
    seal = envelope.seal
    header = _HEAD(Api.ENVELOPE, 0, correlation) + legacy_string(_CLIENT_ID) + NO_TAGS
    parts = (envelope.request, _principal(envelope.principal), _address(envelope.client_host))
    return _framed([header, *(_sized(part) for part in parts), NO_TAGS if seal is None else _tag(_SEAL.pack(*seal))])


def read_envelope(reader: Reader) -> Envelope:
    """Reads an envelope behind API key, version and correlation id; raises :class:`BadMessage`."""
    reader.legacy_nullable_string()
    reader.skip_tags()
    request, principal, address = (_bytes(reader) for _ in range(3))
    sealed = _read_tag(reader, _SEAL.size)
    reader.end()
    host = str(ipaddress.ip_address(address)) if len(address) in _ADDRESS_BYTES else ""
    seal = Seal._make(_SEAL.unpack(sealed)) if sealed is not None else None
    return Envelope(request, _read_principal(principal), host, seal)


class EnvelopeResponse(NamedTuple):
    """``data``: the response's body, or a challenge; None with an error. ``mac``: its seal, empty without one."""

    error: int
    data: bytes | None
    mac: bytes = b""

    def sealed(self, key: bytes, challenge: bytes, requested: Seal) -> EnvelopeResponse:
        """Returns the response, sealed for the envelope with the seal ``requested``."""
        return self._replace(mac=self._mac(key, challenge, requested))

    def genuine(self, key: bytes, challenge: bytes, requested: Seal) -> bool:
        """Returns whether the addressed daemon sent this response to the envelope with the seal ``requested``."""
        return hmac.compare_digest(self._mac(key, challenge, requested), self.mac)

    def _mac(self, key: bytes, challenge: bytes, requested: Seal) -> bytes:
        body = b"" if self.data is None else b"\1" + self.data
        return _mac(key, _ANSWER_DOMAIN, challenge, requested.mac, _I16(self.error), body)


def encode_envelope_response(correlation: int, response: EnvelopeResponse) -> bytes:
    """Returns one framed response."""
    data = b"\0" if response.data is None else _sized(response.data)
    tags = _tag(response.mac) if response.mac else NO_TAGS
    return _framed([_I32(correlation), NO_TAGS, data, _I16(response.error), tags])


def read_envelope_response(frame: bytes, correlation: int) -> EnvelopeResponse:
    """Reads the response to request ``correlation``; raises :class:`BadMessage`."""
    reader = Reader(frame)
    if (found := reader.i32()) != correlation:
        raise BadMessage(f"response to request {found} instead of request {correlation}")
    reader.skip_tags()
    size = reader.varint() - 1
    data = reader.bytes_(size) if size >= 0 else None
    error = reader.i16()
    mac = _read_tag(reader, _MAC_BYTES)
    reader.end()
    return EnvelopeResponse(error, data, mac or b"")


# -- parts


def _framed(parts: Iterable[bytes]) -> bytes:
    frame = b"".join(parts)
    return _I32(len(frame)) + frame


def _sized(data: bytes) -> bytes:
    return varint(len(data) + 1) + data


def _bytes(reader: Reader) -> bytes:
    """Reads bytes; null becomes empty bytes."""
    size = reader.varint() - 1
    return reader.bytes_(size) if size > 0 else b""


def _principal(principal: str) -> bytes:
    """Encodes ``KafkaPrincipal`` in Kafka's default serde (``DefaultPrincipalData`` v0), not of a token."""
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION + compact_string(kind) + compact_string(name) + b"\0" + NO_TAGS if principal else b""


def _read_principal(data: bytes) -> str:
    if not data:
        return ""
    reader = Reader(data)
    if (version := reader.i16()) != 0:
        raise BadMessage(f"principal of version {version}, only 0 is known")
    kind, name = reader.compact_string(), reader.compact_string()
    reader.i8()
    reader.skip_tags()
    reader.end()
    return f"{kind}:{name}"


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


def _tag(data: bytes) -> bytes:
    return varint(1) + varint(SEAL_TAG) + varint(len(data)) + data


def _read_tag(reader: Reader, size: int) -> bytes | None:
    """Returns the seal among the tagged fields, and skips all others."""
    found = None
    for _ in range(reader.tags()):
        tag, length = reader.varint(), reader.varint()
        data = reader.bytes_(length)
        if tag == SEAL_TAG and length == size:
            found = data
    return found
