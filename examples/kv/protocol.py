"""Declares the protocol between clients and servers: frames of msgpack, one response for each request in turn.

A frame is a big-endian unsigned 32-bit length and as many bytes: a msgpack array of the message's tag and its fields in
the order below. Each request names a region and its fence token, as the route from regent has them. A server that does
not own the region with this token refuses, so that a client with an old route never reads or writes at a former owner.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, TypeAlias

import msgspec

FRAME_BYTES_MAX: Final = 1024 * 1024
KEY_BYTES_MAX: Final = 1024
VALUE_BYTES_MAX: Final = 256 * 1024
PUT_COUNT_MAX: Final = 5_000
"""Keys of one request that sets many."""
PUT_BYTES_MAX: Final = 512 * 1024
"""Keys and values of such a request, as clients make them; the first entry is sent in any case."""
SCAN_BYTES_MAX: Final = 512 * 1024
"""Keys and values of one response to a scan; the first entry is sent in any case."""
SCAN_COUNT_MAX: Final = 1_000
LENGTH: Final = struct.Struct(">I")


class Malformed(Exception):
    """Bytes that are no message of this protocol."""


class _Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of everything that is sent."""


class Get(_Message, frozen=True, tag="get"):
    """Reads a key. Response: :class:`Found` or :class:`Absent`."""

    region: int
    token: int
    key: bytes


class Put(_Message, frozen=True, tag="put"):
    """Sets a key. Response: :class:`Written`, once it is durable."""

    region: int
    token: int
    key: bytes
    value: bytes


class PutMany(_Message, frozen=True, tag="put_many"):
    """Sets many keys of a region in this order, each with a version one higher than the key before.

    Response: :class:`Written` with the last version, once all are durable. Without a response some may be set.
    """

    region: int
    token: int
    entries: list[tuple[bytes, bytes]]


class CompareAndPut(_Message, frozen=True, tag="compare_and_put"):
    """Sets a key only where its version is ``version``, 0 for a key that does not exist.

    Response: :class:`Written`, or :class:`Found` or :class:`Absent` where it has another version.
    """

    region: int
    token: int
    key: bytes
    value: bytes
    version: int


class Scan(_Message, frozen=True, tag="scan"):
    """Lists entries of a region in order of keys, from the key ``start`` on. Response: :class:`Entries`."""

    region: int
    token: int
    start: bytes = b""
    count_max: int = SCAN_COUNT_MAX


class Found(_Message, frozen=True, tag="found"):
    """Has the value of a key. ``version``: sequence number of the edit that set it."""

    value: bytes
    version: int


class Absent(_Message, frozen=True, tag="absent"):
    """Says that a key does not exist."""


class Written(_Message, frozen=True, tag="written"):
    """Says that a key is set, durably. ``version``: its new version."""

    version: int


class Entries(_Message, frozen=True, tag="entries"):
    """Lists keys, values and versions. ``more``: the region may have others behind them."""

    entries: list[tuple[bytes, bytes, int]]
    more: bool


class Refused(_Message, frozen=True, tag="refused"):
    """Refuses a request. ``code``: a member of :data:`CODES`; ``text``: the cause, and what would make it succeed."""

    code: str
    text: str


NOT_OWNER: Final = "not_owner"
"""The server does not own the region with this token; nothing was done. The client looks up the route again."""
SUSPENDED: Final = "suspended"
"""The server lost its lease and waits for a new one; nothing was done."""
ENDING: Final = "ending"
"""The process may not answer any more. A put may take effect nevertheless."""
INVALID: Final = "invalid"
"""A field has a value that is not accepted; the text names both."""
CODES: Final = frozenset({NOT_OWNER, SUSPENDED, ENDING, INVALID})

Request: TypeAlias = Get | Put | PutMany | CompareAndPut | Scan
Response: TypeAlias = Found | Absent | Written | Entries | Refused

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_responses: msgspec.msgpack.Decoder[Response] = msgspec.msgpack.Decoder(Response)


def encode(message: Request | Response) -> bytes:
    """Returns a message as a frame."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decode_request(body: bytes) -> Request:
    """Decodes a request; raises :class:`Malformed`."""
    try:
        return _requests.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"no request: {error}") from error


def decode_response(body: bytes) -> Response:
    """Decodes a response; raises :class:`Malformed`."""
    try:
        return _responses.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"no response: {error}") from error


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Reads the bytes of one frame; raises :class:`Malformed`, and EOFError at the end of the connection."""
    [length] = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise Malformed(f"a frame of {length} bytes, at most {FRAME_BYTES_MAX} are read")
    return await reader.readexactly(length)
