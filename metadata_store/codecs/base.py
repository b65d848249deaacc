"""Helps the codecs of all znodes: the value for bad data, strict JSON with known versions, unknown fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

T = TypeVar("T")

INT32_MAX: Final = 2**31 - 1
Int32 = Annotated[int, Meta(ge=-(2**31), le=INT32_MAX)]
NonNegative = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

BAD_DATA: Final = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""Exceptions that decoding foreign bytes may raise."""


class MalformedNode(Struct, frozen=True):
    """A znode whose data cannot be used, and why: a value, so that one bad znode never stops the rest."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def guarded(path: str, decode: Callable[[], T]) -> T | MalformedNode:
    """Returns the result of ``decode``, or :class:`MalformedNode` with the error that it raised."""
    try:
        return decode()
    except BAD_DATA as error:
        return MalformedNode(path, reason(error))


def strict(kind: type[T]) -> Callable[[bytes | None], T]:
    """Returns a decoder of JSON into ``kind`` that refuses a znode without data."""
    decode = msgspec.json.Decoder(kind).decode

    def decoded(data: bytes | None) -> T:
        if data is None:
            raise ValueError("holds no data")
        return decode(data)

    return decoded


def reason(error: BaseException) -> str:
    """Formats an error for operators."""
    return "holds no data" if isinstance(error, TypeError) else str(error) or type(error).__name__


def require_version(version: object, known: Collection[object]) -> None:
    """Raises ValueError for a version that this program does not know."""
    if version not in known:
        names = ", ".join(map(str, known))
        raise ValueError(f"version {version!r} is unknown, this program knows {names}")


def split_unknown(data: bytes | None, known: Collection[str]) -> dict[str, object]:
    """Returns the fields of a JSON object that are not ``known``, so that a rewrite can keep them."""
    fields: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any]) if data is not None else {}
    return {name: value for name, value in fields.items() if name not in known}


def to_json(fields: Mapping[str, object], unknown: Mapping[str, object] | None = None) -> bytes:
    """Encodes a JSON object of ``fields`` followed by the ``unknown`` ones."""
    return msgspec.json.encode({**fields, **unknown} if unknown else fields)


def decoded(data: bytes, kind: type[T]) -> T:
    """Decodes a value of ``kind``; raises ``msgspec.DecodeError`` for any other bytes, however deep or broken."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
