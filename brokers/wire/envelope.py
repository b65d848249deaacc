"""Envelope v0 (KIP-590): a client's request on its way from an admin endpoint to the active daemon.

The frame is that of Kafka's brokers, which forward to a controller in it, with Kafka's serialised principal. One tagged
field is added, the seal: it proves that the sender has the secret that daemon and endpoint share, that the envelope is
for this daemon of this cluster (:func:`envelope_key`), and that nobody sent the same before. The answer has one, too.
Who connects asks for a challenge first, with an envelope that is empty; the seals of that connection are bound to it
and numbered. What is not encrypted can be read on its way; it cannot be made up.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from struct import Struct as Layout
from typing import Final, NamedTuple

from msgspec import Struct

from brokers.wire.primitives import NO_TAGS, Malformed, Reader, compact_string, legacy_string, varint
from brokers.wire.versions import Api

SEAL_TAG: Final = 7_290
CALL_ID_BYTES: Final = 16
CHALLENGE_BYTES: Final = 16
OVERHEAD_BYTES_MAX: Final = 65_536
"""More than an envelope takes beside the request in it: the principal is a string of a message."""

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
    """``call_id`` is the same in every attempt of a call; ``attempt`` counts from 0, ``number`` per connection."""

    call_id: bytes
    attempt: int
    number: int
    mac: bytes


class Envelope(Struct, frozen=True):
    """``request``: the client's header and body; empty to ask for a challenge. ``principal``: as ``User:name``."""

    request: bytes
    principal: str = ""
    client_host: str = ""
    seal: Seal | None = None

    def sealed(self, key: bytes, challenge: bytes, call_id: bytes, attempt: int, number: int) -> Envelope:
        """The same with its seal."""
        mac = self._mac(key, challenge, _NUMBERS.pack(call_id, attempt, number))
        return Envelope(self.request, self.principal, self.client_host, Seal(call_id, attempt, number, mac))

    def genuine(self, key: bytes, challenge: bytes) -> bool:
        """Whether the seal was made with ``key`` for ``challenge``; its number is the caller's to judge."""
        if self.seal is None:
            return False
        return hmac.compare_digest(self._mac(key, challenge, _NUMBERS.pack(*self.seal[:3])), self.seal.mac)

    def _mac(self, key: bytes, challenge: bytes, numbers: bytes) -> bytes:
        said = _principal(self.principal), _address(self.client_host), self.request
        return _mac(key, _DOMAIN, challenge, numbers, *said)


def envelope_key(secret: bytes, cluster_id: str, daemon: int) -> bytes:
    """What envelopes to one daemon of one cluster, and its answers, are sealed with."""
    return _mac(secret, _KEY_DOMAIN, cluster_id.encode(), str(daemon).encode())


def _mac(key: bytes, *parts: bytes) -> bytes:
    made = hmac.new(key, digestmod="sha256")
    for part in parts:
        made.update(_I32(len(part)))
        made.update(part)
    return made.digest()


def encode_envelope(correlation: int, envelope: Envelope) -> bytes:
    """One framed request."""
    seal = envelope.seal
    header = _HEAD(Api.ENVELOPE, 0, correlation) + legacy_string(_CLIENT_ID) + NO_TAGS
    parts = (envelope.request, _principal(envelope.principal), _address(envelope.client_host))
    return _framed([header, *(_sized(part) for part in parts), NO_TAGS if seal is None else _tag(_SEAL.pack(*seal))])


def read_envelope(reader: Reader) -> Envelope:
    """An envelope behind API key, version and correlation id; raises :class:`Malformed`."""
    reader.legacy_nullable_string()
    reader.skip_tags()
    request, principal, address = (_bytes(reader) for _ in range(3))
    sealed = _read_tag(reader, _SEAL.size)
    reader.end()
    host = str(ipaddress.ip_address(address)) if len(address) in _ADDRESS_BYTES else ""
    seal = Seal._make(_SEAL.unpack(sealed)) if sealed is not None else None
    return Envelope(request, _read_principal(principal), host, seal)


class Answer(NamedTuple):
    """``data``: the answer's body, or a challenge; None where there is an error. ``mac``: its seal, empty without."""

    error: int
    data: bytes | None
    mac: bytes = b""

    def sealed(self, key: bytes, challenge: bytes, asked: Seal) -> Answer:
        """The same, sealed as the answer to the envelope with the seal ``asked``."""
        return self._replace(mac=self._mac(key, challenge, asked))

    def genuine(self, key: bytes, challenge: bytes, asked: Seal) -> bool:
        """Whether the daemon that was asked answers this."""
        return hmac.compare_digest(self._mac(key, challenge, asked), self.mac)

    def _mac(self, key: bytes, challenge: bytes, asked: Seal) -> bytes:
        said = b"" if self.data is None else b"\1" + self.data
        return _mac(key, _ANSWER_DOMAIN, challenge, asked.mac, _I16(self.error), said)


def encode_envelope_response(correlation: int, answer: Answer) -> bytes:
    """One framed response."""
    data = b"\0" if answer.data is None else _sized(answer.data)
    return _framed([_I32(correlation), NO_TAGS, data, _I16(answer.error), _tag(answer.mac) if answer.mac else NO_TAGS])


def read_envelope_response(frame: bytes, correlation: int) -> Answer:
    """The response to request ``correlation``; raises :class:`Malformed`."""
    reader = Reader(frame)
    if (answered := reader.i32()) != correlation:
        raise Malformed(f"answer to request {answered} where {correlation} was asked")
    reader.skip_tags()
    size = reader.varint() - 1
    data = reader.bytes_(size) if size >= 0 else None
    error = reader.i16()
    mac = _read_tag(reader, _MAC_BYTES)
    reader.end()
    return Answer(error, data, mac or b"")


# -- parts


def _framed(parts: Iterable[bytes]) -> bytes:
    frame = b"".join(parts)
    return _I32(len(frame)) + frame


def _sized(data: bytes) -> bytes:
    return varint(len(data) + 1) + data


def _bytes(reader: Reader) -> bytes:
    """Bytes; null is read as none."""
    size = reader.varint() - 1
    return reader.bytes_(size) if size > 0 else b""


def _principal(principal: str) -> bytes:
    """``KafkaPrincipal`` as Kafka's default serde writes it (``DefaultPrincipalData`` v0); not of a token."""
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION + compact_string(kind) + compact_string(name) + b"\0" + NO_TAGS if principal else b""


def _read_principal(data: bytes) -> str:
    if not data:
        return ""
    reader = Reader(data)
    if (version := reader.i16()) != 0:
        raise Malformed(f"principal of version {version} where 0 is known")
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
    """The seal among the tagged fields; others are passed over."""
    found = None
    for _ in range(reader.tags()):
        tag, length = reader.varint(), reader.varint()
        data = reader.bytes_(length)
        if tag == SEAL_TAG and length == size:
            found = data
    return found
