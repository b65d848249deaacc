"""Reads and writes any message by its layout, into and from structs that are the same for all versions.

A struct declares the fields that the program needs, by the names of the layout. A field that a version lacks keeps the
struct's default; a field that a struct lacks is skipped, or written as the layout's default. The frame bounds all reads
of :class:`brokers.wire.primitives.Reader`, so these codecs are safe for untrusted input.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Pack
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args

import msgspec

from brokers.wire.layout import IMPLICIT_DEFAULTS, Field, Layout
from brokers.wire.primitives import Malformed, Reader, varint

T = TypeVar("T", bound=msgspec.Struct)
Read = Callable[[Reader], Any]
Write = Callable[[Any], bytes]

_I16, _I32 = Pack(">h").pack, Pack(">i").pack
_FIXED_BYTES: Final = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uuid": 16}
_FIXED_READ: Final[dict[str, Read]] = {
    "bool": lambda reader: reader.i8() != 0,
    "int8": Reader.i8,
    "int16": Reader.i16,
    "int32": Reader.i32,
    "int64": Reader.i64,
    "uuid": Reader.uuid,
}
_FIXED_WRITE: Final[dict[str, Write]] = {
    "bool": Pack(">?").pack,
    "int8": Pack(">b").pack,
    "int16": _I16,
    "int32": _I32,
    "int64": Pack(">q").pack,
    "uuid": Pack("16s").pack,
}


class Codec(NamedTuple, Generic[T]):
    """The codec of one message's body in one version, without the header."""

    flexible: bool
    read: Callable[[Reader], T]
    write: Callable[[T], bytes]


def codec(layout: Layout, target: type[T]) -> Codec[T]:
    """Builds the codec between ``layout`` and ``target``; raises TypeError for unsupported kinds of fields."""
    return Codec(layout.flexible, _reading(layout, target), _writing(layout, target))


# -- reading


def _reading(layout: Layout, target: type[msgspec.Struct] | None) -> Read:
    wanted = _wanted(target)
    plain: list[tuple[str, Read]] = []
    passed: set[str] = set()
    tagged: dict[int, tuple[str, Read]] = {}
    for field in layout.fields:
        if field.tag is None:
            plain.append((field.name, _field_reading(field, layout.flexible, wanted.get(field.name))))
        elif field.name in wanted:
            tagged[field.tag] = field.name, _field_reading(field, layout.flexible, wanted[field.name])
        if field.name not in wanted:
            passed.add(field.name)

    def read(reader: Reader) -> Any:
        values = {name: take(reader) for name, take in plain}
        if layout.tags:
            _read_tags(reader, tagged, values)
        for name in passed:
            values.pop(name, None)
        return target(**values) if target is not None else None

    return read


def _read_tags(reader: Reader, known: dict[int, tuple[str, Read]], values: dict[str, Any]) -> None:
    for _ in range(reader.tags()):
        tag, size = reader.varint(), reader.varint()
        start = reader.position
        if tag in known:
            name, take = known[tag]
            values[name] = take(reader)
            size -= reader.position - start
            if size:
                raise Malformed(f"tagged field {tag} at {start} does not have the length that it claims")
        reader.skip(size)


def _field_reading(field: Field, flexible: bool, target: type[msgspec.Struct] | None) -> Read:
    if isinstance(field.kind, Layout):
        if not field.array:
            raise TypeError(f"{field.name} is a structure outside of an array")
        return _array_reading(field, flexible, _reading(field.kind, target), _bytes_min(field.kind))
    item = _FIXED_READ.get(_primitive(field.kind)) or _sized_reading(field, flexible)
    if not field.array:
        return item
    return _array_reading(field, flexible, item, _primitive_bytes_min(field.kind, flexible))


def _array_reading(field: Field, flexible: bool, item: Read, item_bytes_min: int) -> Read:
    name, nullable = field.name, field.nullable

    def read(reader: Reader) -> Any:
        count = reader.varint() - 1 if flexible else reader.i32()
        if count < 0:
            return _null(name, nullable)
        return tuple(reader.items(count, item, item_bytes_min))

    return read


def _sized_reading(field: Field, flexible: bool) -> Read:
    name, nullable = field.name, field.nullable and not field.array
    take = Reader.text if field.kind == "string" else Reader.bytes_
    size_legacy = Reader.i16 if field.kind == "string" else Reader.i32

    def read(reader: Reader) -> Any:
        size = reader.varint() - 1 if flexible else size_legacy(reader)
        return take(reader, size) if size >= 0 else _null(name, nullable)

    return read


def _null(name: str, nullable: bool) -> None:
    if not nullable:
        raise Malformed(f"{name} is null, which its version does not allow")


# -- writing


def _writing(layout: Layout, source: type[msgspec.Struct]) -> Write:
    wanted = _wanted(source)
    plain: list[tuple[str | None, Write | bytes]] = []
    tagged: list[tuple[int, str, object, Write]] = []
    for field in layout.fields:
        if field.name in wanted:
            write_field = _field_writing(field, layout.flexible, wanted[field.name])
            if field.tag is None:
                plain.append((field.name, write_field))
            else:
                tagged.append((field.tag, field.name, field.default, write_field))
        elif field.tag is None:
            plain.append((None, _field_writing(field, layout.flexible, None)(field.default)))
    tagged.sort(key=lambda item: item[0])

    def write(value: Any) -> bytes:
        parts = [part if isinstance(part, bytes) else part(getattr(value, name or "")) for name, part in plain]
        if layout.tags:
            parts.append(_write_tags(value, tagged))
        return b"".join(parts)

    return write


def _write_tags(value: Any, tagged: list[tuple[int, str, object, Write]]) -> bytes:
    parts = []
    for tag, name, default, write in tagged:
        if (found := getattr(value, name)) != default:
            data = write(found)
            parts.append(varint(tag) + varint(len(data)) + data)
    return varint(len(parts)) + b"".join(parts)


def _field_writing(field: Field, flexible: bool, source: type[msgspec.Struct] | None) -> Write:
    if isinstance(field.kind, Layout):
        if not field.array:
            raise TypeError(f"{field.name} is a structure outside of an array")
        item = _writing(field.kind, source or msgspec.Struct)
    else:
        item = _FIXED_WRITE.get(_primitive(field.kind)) or _sized_writing(field, flexible)
    if field.array:
        return _array_writing(field, flexible, item)
    return item


def _array_writing(field: Field, flexible: bool, item: Write) -> Write:
    def write(values: Any) -> bytes:
        if values is None:
            if not field.nullable:
                raise TypeError(f"{field.name} may not be null in this version")
            return b"\0" if flexible else _I32(-1)
        size = varint(len(values) + 1) if flexible else _I32(len(values))
        return size + b"".join([item(value) for value in values])

    return write


def _sized_writing(field: Field, flexible: bool) -> Write:
    text, nullable = field.kind == "string", field.nullable and not field.array
    legacy = _I16 if text else _I32

    def write(value: Any) -> bytes:
        if value is None:
            if not nullable:
                raise TypeError(f"{field.name} may not be null in this version")
            return b"\0" if flexible else legacy(-1)
        data: bytes = value.encode() if text else value
        return (varint(len(data) + 1) if flexible else legacy(len(data))) + data

    return write


# -- fitting structs to layouts


def _primitive(kind: str) -> str:
    if kind not in IMPLICIT_DEFAULTS:
        raise TypeError(f"fields of kind {kind} are not supported")
    return kind


def _wanted(target: type[msgspec.Struct] | None) -> dict[str, type[msgspec.Struct] | None]:
    """Returns the fields of a struct, with the struct that is nested in each."""
    if target is None or target is msgspec.Struct:
        return {}
    return {info.name: _nested(info.type) for info in msgspec.structs.fields(target)}


def _nested(hint: Any) -> type[msgspec.Struct] | None:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for part in get_args(hint) if (found := _nested(part)) is not None), None)


def _bytes_min(layout: Layout) -> int:
    """Returns the least size of a structure in bytes."""
    total = int(layout.tags)
    for field in layout.fields:
        if field.tag is None:
            if field.array or isinstance(field.kind, Layout):
                total += 1 if layout.flexible else 4
            else:
                total += _primitive_bytes_min(field.kind, layout.flexible)
    return max(1, total)


def _primitive_bytes_min(kind: str, flexible: bool) -> int:
    if kind in _FIXED_BYTES:
        return _FIXED_BYTES[kind]
    return 1 if flexible else 2 if kind == "string" else 4
