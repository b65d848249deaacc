"""SaslHandshake v1 and SaslAuthenticate v0, v1 (KIP-43, KIP-152, KIP-368): both directions, none of them flexible."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from brokers.wire.primitives import Malformed, Reader, legacy_string
from brokers.wire.versions import Api

SASL_SERVED: Final = {Api.SASL_HANDSHAKE: (1, 1), Api.SASL_AUTHENTICATE: (0, 1)}
"""Versions that the controller listener offers; brokers since 1.0 (2.2) have the highest of them."""
MECHANISMS_MAX: Final = 100
_HEADER = Layout(">hhi").pack
_I16, _I32, _I64 = Layout(">h").pack, Layout(">i").pack, Layout(">q").pack
_CLIENT: Final = legacy_string("regent")
_NOTHING: Final = b"\xff\xff"


class HandshakeResponse(Struct, frozen=True):
    """The answer to SaslHandshake."""

    error: int
    mechanisms: tuple[str, ...]


class AuthenticateResponse(Struct, frozen=True):
    """The answer to SaslAuthenticate. ``lifetime_ms`` 0: for as long as the connection lives."""

    error: int
    message: str | None
    data: bytes
    lifetime_ms: int


def encode_handshake(correlation: int, mechanism: str) -> bytes:
    """One framed request."""
    return _framed(_HEADER(Api.SASL_HANDSHAKE, 1, correlation) + _CLIENT + legacy_string(mechanism))


def encode_authenticate(correlation: int, said: bytes) -> bytes:
    """One framed request."""
    return _framed(_HEADER(Api.SASL_AUTHENTICATE, 1, correlation) + _CLIENT + _I32(len(said)) + said)


def read_handshake_response(frame: bytes, correlation: int) -> HandshakeResponse:
    """Raises :class:`Malformed`."""
    reader = _answer(frame, correlation)
    return HandshakeResponse(reader.i16(), tuple(reader.items(_few(reader.i32()), Reader.legacy_string, 2)))


def read_authenticate_response(frame: bytes, correlation: int) -> AuthenticateResponse:
    """Raises :class:`Malformed`."""
    reader = _answer(frame, correlation)
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


def encode_handshake_response(correlation: int, answer: HandshakeResponse) -> bytes:
    """One framed response."""
    names = b"".join(map(legacy_string, answer.mechanisms))
    return _framed(_I32(correlation) + _I16(answer.error) + _I32(len(answer.mechanisms)) + names)


def encode_authenticate_response(correlation: int, version: int, answer: AuthenticateResponse) -> bytes:
    """One framed response."""
    message = _NOTHING if answer.message is None else legacy_string(answer.message)
    lifetime = _I64(answer.lifetime_ms) if version >= 1 else b""
    return _framed(_I32(correlation) + _I16(answer.error) + message + _I32(len(answer.data)) + answer.data + lifetime)


def _answer(frame: bytes, correlation: int) -> Reader:
    reader = Reader(frame)
    if reader.i32() != correlation:
        raise Malformed("an answer to a request that was not sent")
    return reader


def _few(count: int) -> int:
    if count > MECHANISMS_MAX:
        raise Malformed(f"{count} mechanisms")
    return count


def _framed(rest: bytes) -> bytes:
    return _I32(len(rest)) + rest
