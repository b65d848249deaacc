"""Encodes and decodes frames of the protocol; checks each bound before a value is made."""

from __future__ import annotations

import re
from collections.abc import Collection
from struct import Struct as Layout
from typing import Annotated, Final, NamedTuple, get_args

import msgspec
from msgspec import Meta

from regent_agent.head import length_of, listed, scalars
from regent_agent.protocol import (
    OWNED_MAX,
    PARTS_MAX,
    RESULTS_MAX,
    Message,
    Name,
    Owned,
    Regions,
    Register,
    Request,
    Response,
)

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
LENGTH: Final = Layout(">i")
"""Length of a frame, before its bytes."""


class BadFrame(Exception):
    """Bytes that are no message of this protocol; the text says why."""


class Unfit(BadFrame):
    """A message whose kind this version does not know, or with a field that its kind has not so; the text names it."""


class TooMany(Unfit):
    """A message with more values in a list or a map, or a longer name, than its bound; no value of it was made."""


_encoder = msgspec.msgpack.Encoder()
_fields: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
_owned: msgspec.msgpack.Decoder[list[Owned]] = msgspec.msgpack.Decoder(list[Owned])
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
_PLACE: Final = re.compile(r"at `\$\[(\d+)\]")
UNFIT_BYTES: Final = 300
"""First bytes of a message in which its kind stands."""
NAMED_CHARS: Final = 80
_KINDS: Final = {kind.__struct_config__.tag: kind for kind in get_args(Request)}
_TAGS: Final[dict[bytes, type[Request]]] = {str(tag).encode(): kind for tag, kind in _KINDS.items()}
LISTING: Final = (Register, Regions)
"""Requests that list the regions of a server, in their field ``owned``."""
FIELDS_MAX: Final = 64
"""Fields of a request that lists regions; those that this version does not know are ignored."""


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
    if sum(length_of(bytes(memoryview(one.parts)[:5])) for one in results) > PARTS_MAX:
        raise TooMany(f"results: more than the {PARTS_MAX} parts of logs that a Report may have there")


def encode(message: Request | Response) -> bytes:
    """Returns a message as a frame; raises ValueError where it is longer than :data:`FRAME_BYTES_MAX`."""
    body = _encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a message of {len(body)} bytes, at most {FRAME_BYTES_MAX} are sent")
    return LENGTH.pack(len(body)) + body


_FIELDS: Final[dict[str, type]] = {"server": str, "incarnation": int, "epoch": int}
"""Kinds of the values by which a process is known."""


class Head(NamedTuple):
    """The first fields of a request. ``entries``: of the list that follows them, 0 without one.

    ``whole``: whether all fields before the list were there.
    """

    kind: type[Request]
    fields: dict[str, str | int]
    entries: int
    whole: bool


def head_of(body: bytes) -> Head | None:
    """Reads the first fields of a request from its first bytes; None where these are not the first bytes of one."""
    found = scalars(body, FIELDS_MAX)
    kind = _KINDS.get(found.values[0]) if found is not None and found.values else None
    if found is None or kind is None:
        return None
    fields = dict(zip(kind.__struct_fields__, found.values[1:], strict=False))
    if not all(isinstance(value, _FIELDS.get(name, (str, int))) for name, value in fields.items()):
        return None
    return Head(kind, fields, found.entries, found.whole)


def kind_of(body: bytes) -> type[Request] | None:
    """Returns the kind that a request names in its first field, None where it names none."""
    if (kind := _TAGS.get(body[2 : 2 + (body[1] & 0x1F)] if len(body) > 1 else b"")) is not None:
        return kind  # a short name, or bytes that are no request
    found = scalars(body, 1)
    return _KINDS.get(found.values[0]) if found is not None and found.values else None


def decode_request(body: bytes) -> Request:
    """Decodes the bytes of a frame at the daemon; raises :class:`BadFrame`, and :class:`TooMany` beyond a bound."""
    _check_parts(body)
    try:
        return _requests.decode(body)
    except msgspec.ValidationError as error:
        if found := _BEYOND.match(str(error)):
            raise TooMany(_too_many(body, int(found[1]), int(found[2]), found[0])) from error
        if (why := unfit(body, str(error))) is not None:
            raise Unfit(why) from error
        raise BadFrame(f"no request: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"no request: {error}") from error


def unfit(body: bytes, error: str = "") -> str | None:
    """Names the kind or the field for which a message is no request; None for bytes that begin like no message."""
    found = scalars(body[:UNFIT_BYTES], 1)
    if found is None or not found.values or not isinstance(found.values[0], str):
        return None
    kind = _KINDS.get(name := found.values[0])
    if kind is None:
        return f"request: {name[:NAMED_CHARS]!r} is not known to this version: update it, or send one of its protocol"
    at = int(place[1]) if (place := _PLACE.search(error)) else 0
    fields = kind.__struct_fields__
    field = f"{fields[at - 1]}: " if 0 < at <= len(fields) else ""
    return f"{field}a {kind.__name__} is not as in the protocol: {error}"


def decode_in_portions(body: bytes) -> Request:
    """Decodes a request like :func:`decode_request`, but leaves a list of regions as bytes until it is iterated."""
    kind = kind_of(body)
    if kind not in LISTING:
        return decode_request(body)
    fields = _raw_fields(body)
    at = kind.__struct_fields__.index("owned") + 1
    if at >= len(fields):
        return decode_request(body)
    owned = fields[at]
    if length_of(bytes(owned[:5])) > OWNED_MAX:
        raise TooMany(f"owned: more than the {OWNED_MAX} that a {kind.__name__} may have there")
    short = b"".join((b"\xdc", len(fields).to_bytes(2, "big"), *fields[:at], b"\x90", *fields[at + 1 :]))
    request = decode_request(short)
    assert isinstance(request, LISTING)
    return msgspec.structs.replace(request, owned=_listed(owned))


def _raw_fields(body: bytes) -> list[memoryview]:
    """Returns the bytes of each field of a message."""
    if length_of(body[:5]) > FIELDS_MAX:
        raise BadFrame(f"no request: more than {FIELDS_MAX} fields")
    try:
        return [memoryview(one) for one in _fields.decode(body)]
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadFrame(f"no request: {error}") from error


def _listed(owned: memoryview) -> Collection[Owned]:
    found = listed(owned)
    if found is not None:
        return found
    try:
        return _owned.decode(owned)  # entries with fields that this version does not know, or no entries
    except msgspec.DecodeError as error:
        raise BadFrame(f"no request: owned: {error}") from error


def decode_response(body: bytes) -> Response:
    """Decodes the bytes of a frame at the side that connected; raises :class:`BadFrame`."""
    try:
        return _responses.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"no response: {error}") from error
