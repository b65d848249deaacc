"""Encodes and decodes frames of the protocol; checks each bound before a value is made."""

from __future__ import annotations

import re
from struct import Struct as Layout
from typing import Annotated, Final, get_args

import msgspec
from msgspec import Meta

from regent_agent.protocol import PARTS_MAX, RESULTS_MAX, Message, Name, Request, Response

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
LENGTH: Final = Layout(">i")
"""Length of a frame, before its bytes."""


class Malformed(Exception):
    """Bytes that are no message of this protocol; the text says why."""


class TooMany(Malformed):
    """A message with more values in a list or a map, or a longer name, than its bound; no value of it was made."""


_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_responses: msgspec.msgpack.Decoder[Response] = msgspec.msgpack.Decoder(Response)


class _Uncounted(Message, frozen=True):
    """A :class:`Result` whose parts are not made."""

    pid: int
    outcome: Name
    sequence: int = 0
    text: str = ""
    parts: msgspec.Raw = msgspec.Raw(b"\x90")


class _Unmade(Message, frozen=True, tag="report"):
    """A :class:`Report` whose parts are not made."""

    server: Name
    incarnation: int
    epoch: int
    results: Annotated[list[_Uncounted], Meta(max_length=RESULTS_MAX)]


_unmade: msgspec.msgpack.Decoder[_Unmade] = msgspec.msgpack.Decoder(_Unmade)
_BEYOND: Final = re.compile(r"Expected `\w+` of length <= (\d+) - at `\$\[(\d+)\].*`")
_KINDS: Final = {kind.__struct_config__.tag: kind for kind in get_args(Request)}


def _too_many(body: bytes, most: int, at: int, why: str) -> str:
    """Names the field of a request whose bound is exceeded."""
    kind = kind_of(body)
    if kind is None or not 0 < at <= len(kind.__struct_fields__):
        return why
    return f"{kind.__struct_fields__[at - 1]}: more than the {most} that a {kind.__name__} may have there"


def _check_parts(body: bytes) -> None:
    """Raises :class:`TooMany` for a report of too many parts in all; each one has a byte at least."""
    if len(body) <= PARTS_MAX:
        return
    try:
        results = _unmade.decode(body).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # it is another request, or malformed
    if sum(_length(bytes(memoryview(one.parts)[:5])) for one in results) > PARTS_MAX:
        raise TooMany(f"results: more than the {PARTS_MAX} parts of logs that a Report may have there")


def _length(head: bytes) -> int:
    """Returns the length of the array that begins with these bytes; 0 for any other value."""
    match head[0]:
        case short if short & 0xF0 == 0x90:
            return short & 0x0F
        case 0xDC:
            return int.from_bytes(head[1:3], "big")
        case 0xDD:
            return int.from_bytes(head[1:5], "big")
        case _:
            return 0


def encode(message: Request | Response) -> bytes:
    """Returns a message as a frame; raises ValueError where it is longer than :data:`FRAME_BYTES_MAX`."""
    body = _encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a message of {len(body)} bytes, at most {FRAME_BYTES_MAX} are sent")
    return LENGTH.pack(len(body)) + body


def kind_of(body: bytes) -> type[Request] | None:
    """Returns the kind that a request names by the short string behind its first byte, None where it names none."""
    return _KINDS.get(body[2 : 2 + (body[1] & 0x1F)].decode(errors="replace")) if len(body) > 1 else None


def decode_request(body: bytes) -> Request:
    """Decodes the bytes of a frame at the daemon; raises :class:`Malformed`, and :class:`TooMany` beyond a bound."""
    _check_parts(body)
    try:
        return _requests.decode(body)
    except msgspec.ValidationError as error:
        if found := _BEYOND.match(str(error)):
            raise TooMany(_too_many(body, int(found[1]), int(found[2]), found[0])) from error
        raise Malformed(f"no request: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"no request: {error}") from error


def decode_response(body: bytes) -> Response:
    """Decodes the bytes of a frame at the side that connected; raises :class:`Malformed`."""
    try:
        return _responses.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"no response: {error}") from error
