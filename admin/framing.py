"""Writes the heads of requests and responses, and changes the beginning of a response."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import Struct

from admin.ports import Node
from admin.rewriting import rewrite
from brokers.wire.message_codec import Codec
from brokers.wire.primitives import NO_TAGS, Reader, legacy_string
from brokers.wire.versions import Api

NO_STRING: Final = b"\xff\xff"
"""A null string with a 16-bit length."""


class Header(NamedTuple):
    """The first fields of every request."""

    api: int
    version: int
    correlation: bytes


def i16(data: bytes) -> int:
    """Returns two bytes as a signed number."""
    return int.from_bytes(data, "big", signed=True)


def head(header: Header, size: int) -> bytes:
    """Returns length and correlation id of a response with ``size`` bytes behind them."""
    return (size + len(header.correlation)).to_bytes(4, "big") + header.correlation


def request_frame(header: Header, client_id: str | None, codec: Codec[Any], body: Struct) -> bytes:
    """Returns a request without its length, with another body than the one that came under ``header``."""
    name = NO_STRING if client_id is None else legacy_string(client_id)
    tags = NO_TAGS if codec.flexible else b""
    numbers = header.api.to_bytes(2, "big") + header.version.to_bytes(2, "big")
    return numbers + header.correlation + name + tags + codec.write(body)


def body_of(api: Api, codec: Codec[Struct], held: bytes) -> Reader:
    """Returns a reader at the body of a response, behind the tags of its header."""
    reader = Reader(held)
    if codec.flexible and api is not Api.API_VERSIONS:  # ApiVersions responses have header v0 in every version
        reader.skip_tags()
    return reader


def rewritten(api: Api, codec: Codec[Struct], held: bytes, node: Node | None, *, shared: bool) -> bytes:
    """Returns the replacement of ``held``: header tags, the changed beginning and the unchanged rest."""
    reader = body_of(api, codec, held)
    start = reader.position
    response = codec.read(reader)
    return held[:start] + codec.write(rewrite(response, node, shared=shared)) + held[reader.position :]
