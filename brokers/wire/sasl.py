"""Encodes SaslHandshake v1 and SaslAuthenticate v0, v1 (KIP-43, KIP-152, KIP-368), none of them flexible."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from brokers.wire.primitives import BadMessage, Reader, legacy_string
from brokers.wire.versions import Api

SASL_SERVED: Final = {Api.SASL_HANDSHAKE: (1, 1), Api.SASL_AUTHENTICATE: (0, 1)}
"""Versions that the controller listener offers; brokers since 1.0 (2.2) know the highest of them."""
MECHANISMS_MAX: Final = 100
_HEADER = Layout(">hhi").pack
_I16, _I32, _I64 = Layout(">h").pack, Layout(">i").pack, Layout(">q").pack
_CLIENT: Final = legacy_string("regent")
_NOTHING: Final = b"\xff\xff"


class HandshakeResponse(Struct, frozen=True):
    """The response to SaslHandshake."""

    error: int
    mechanisms: tuple[str, ...]


class AuthenticateResponse(Struct, frozen=True):
    """The response to SaslAuthenticate. ``lifetime_ms`` 0 means the connection's whole life."""

    error: int
    message: str | None
    data: bytes
    lifetime_ms: int


def encode_handshake(correlation: int, mechanism: str) -> bytes:
    """Returns a framed SaslHandshake request."""
    return _framed(_HEADER(Api.SASL_HANDSHAKE, 1, correlation) + _CLIENT + legacy_string(mechanism))


def encode_authenticate(correlation: int, auth_bytes: bytes) -> bytes:
    """Returns a framed SaslAuthenticate request."""
    return _framed(_HEADER(Api.SASL_AUTHENTICATE, 1, correlation) + _CLIENT + _I32(len(auth_bytes)) + auth_bytes)


def read_handshake_response(frame: bytes, correlation: int) -> HandshakeResponse:
    """Reads a SaslHandshake response; raises :class:`BadMessage`."""
    reader = _response(frame, correlation)
    return HandshakeResponse(reader.i16(), tuple(reader.items(_few(reader.i32()), Reader.legacy_string, 2)))


def read_authenticate_response(frame: bytes, correlation: int) -> AuthenticateResponse:
    """Reads a SaslAuthenticate response; raises :class:`BadMessage`."""
    reader = _response(frame, correlation)
    return AuthenticateResponse(
        reader.i16(), reader.legacy_nullable_string(), reader.bytes_(max(reader.i32(), 0)), reader.i64()
    )


def read_mechanism(reader: Reader) -> str:
    """Reads the rest of a SaslHandshake request behind the correlation id; bytes behind the request are ignored."""
    reader.legacy_nullable_string()
    return reader.legacy_string()


def read_auth_bytes(reader: Reader) -> bytes:
    """Reads the rest of a SaslAuthenticate request behind the correlation id; bytes behind the request are ignored."""
    reader.legacy_nullable_string()
    return reader.bytes_(reader.i32())


def encode_handshake_response(correlation: int, response: HandshakeResponse) -> bytes:
    """Returns a framed SaslHandshake response."""
    names = b"".join(map(legacy_string, response.mechanisms))
    return _framed(_I32(correlation) + _I16(response.error) + _I32(len(response.mechanisms)) + names)


def encode_authenticate_response(correlation: int, version: int, response: AuthenticateResponse) -> bytes:
    """Returns a framed SaslAuthenticate response."""
    message = _NOTHING if response.message is None else legacy_string(response.message)
    lifetime = _I64(response.lifetime_ms) if version >= 1 else b""
    head = _I32(correlation) + _I16(response.error) + message
    return _framed(head + _I32(len(response.data)) + response.data + lifetime)


def _response(frame: bytes, correlation: int) -> Reader:
    reader = Reader(frame)
    if reader.i32() != correlation:
        raise BadMessage("a response to a request that was not sent")
    return reader


def _few(count: int) -> int:
    if count > MECHANISMS_MAX:
        raise BadMessage(f"{count} mechanisms")
    return count


def _framed(rest: bytes) -> bytes:
    return _I32(len(rest)) + rest
