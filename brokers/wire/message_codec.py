"""Reads messages into structs and writes structs as messages, by layout. One struct serves all versions of a message.

A struct declares the fields that the program needs, by the names of the layout. A field that a version lacks keeps the
struct's default; a field that a struct lacks is skipped, or written as the layout's default. The frame bounds all reads
of :class:`brokers.wire.primitives.Reader`, so these codecs are safe for untrusted input.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Pack
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args

import msgspec

from brokers.wire.primitives import ZERO_ID, BadMessage, Reader, varint

IMPLICIT_DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "bytes": b"",
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "uuid": ZERO_ID,
}
"""The kinds of primitive fields, with the value of an omitted field of each."""


class Field(NamedTuple):
    """One field. ``kind`` is a key of :data:`IMPLICIT_DEFAULTS` or the layout of a nested structure.

    ``tag`` is None for a field that is always present. ``default`` is the value of a field that no struct sets, and of
    an absent tagged field.
    """

    name: str
    kind: str | Layout
    array: bool
    nullable: bool
    tag: int | None
    default: object


class Layout(NamedTuple):
    """A structure. ``flexible``: its lengths are compact (KIP-482). ``tags``: a section of tagged fields ends it."""

    name: str
    flexible: bool
    tags: bool
    fields: tuple[Field, ...]

    def head(self, until: str) -> Layout:
        """Returns the part before the field ``until``, for messages whose large rest is forwarded unread."""
        names = [field.name for field in self.fields]
        return self._replace(fields=self.fields[: names.index(until)], tags=False)


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


def codec(layout: Layout, struct_type: type[T]) -> Codec[T]:
    """Builds the codec of ``layout`` for ``struct_type``; raises TypeError for unsupported kinds of fields."""
    return Codec(layout.flexible, _reader_of(layout, struct_type), _writer_of(layout, struct_type))


# -- reading


def _reader_of(layout: Layout, struct_type: type[msgspec.Struct] | None) -> Read:
    """Builds the reader of a structure; without ``struct_type`` it reads past the structure."""
    wanted = _wanted(struct_type)
    untagged: list[tuple[str, Read]] = []
    skipped: set[str] = set()
    tagged: dict[int, tuple[str, Read]] = {}
    for field in layout.fields:
        if field.tag is None:
            untagged.append((field.name, _field_reader_of(field, layout.flexible, wanted.get(field.name))))
        elif field.name in wanted:
            tagged[field.tag] = field.name, _field_reader_of(field, layout.flexible, wanted[field.name])
        if field.name not in wanted:
            skipped.add(field.name)

    def read(reader: Reader) -> Any:
        values = {name: take(reader) for name, take in untagged}
        if layout.tags:
            _read_tags(reader, tagged, values)
        for name in skipped:
            values.pop(name, None)
        return struct_type(**values) if struct_type is not None else None

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
                raise BadMessage(f"tagged field {tag} at {start} does not have the length that it claims")
        reader.skip(size)


def _field_reader_of(field: Field, flexible: bool, struct_type: type[msgspec.Struct] | None) -> Read:
    if isinstance(field.kind, Layout):
        if not field.array:
            raise TypeError(f"{field.name} is a structure outside of an array")
        return _array_reader_of(field, flexible, _reader_of(field.kind, struct_type), _bytes_min(field.kind))
    item = _FIXED_READ.get(_require_primitive(field.kind)) or _sized_reader_of(field, flexible)
    if not field.array:
        return item
    return _array_reader_of(field, flexible, item, _primitive_bytes_min(field.kind, flexible))


def _array_reader_of(field: Field, flexible: bool, item: Read, item_bytes_min: int) -> Read:
    name, nullable = field.name, field.nullable

    def read(reader: Reader) -> Any:
        count = reader.varint() - 1 if flexible else reader.i32()
        if count < 0:
            return _require_nullable(name, nullable)
        return tuple(reader.items(count, item, item_bytes_min))

    return read


def _sized_reader_of(field: Field, flexible: bool) -> Read:
    """Builds the reader of a string or of bytes, whose length precedes them."""
    name, nullable = field.name, field.nullable and not field.array
    take = Reader.text if field.kind == "string" else Reader.bytes_
    size_legacy = Reader.i16 if field.kind == "string" else Reader.i32

    def read(reader: Reader) -> Any:
        size = reader.varint() - 1 if flexible else size_legacy(reader)
        return take(reader, size) if size >= 0 else _require_nullable(name, nullable)

    return read


def _require_nullable(name: str, nullable: bool) -> None:
    """Returns None, the value of a null field; raises :class:`BadMessage` where the field may not be null."""
    if not nullable:
        raise BadMessage(f"{name} is null, which its version does not allow")


# -- writing


def _writer_of(layout: Layout, struct_type: type[msgspec.Struct]) -> Write:
    """Builds the writer of a structure; it writes defaults in fields that ``struct_type`` lacks."""
    wanted = _wanted(struct_type)
    untagged: list[tuple[str | None, Write | bytes]] = []
    tagged: list[tuple[int, str, object, Write]] = []
    for field in layout.fields:
        if field.name in wanted:
            write_field = _field_writer_of(field, layout.flexible, wanted[field.name])
            if field.tag is None:
                untagged.append((field.name, write_field))
            else:
                tagged.append((field.tag, field.name, field.default, write_field))
        elif field.tag is None:
            untagged.append((None, _field_writer_of(field, layout.flexible, None)(field.default)))
    tagged.sort(key=lambda item: item[0])

    def write(value: Any) -> bytes:
        parts = [part if isinstance(part, bytes) else part(getattr(value, name or "")) for name, part in untagged]
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


def _field_writer_of(field: Field, flexible: bool, struct_type: type[msgspec.Struct] | None) -> Write:
    if isinstance(field.kind, Layout):
        if not field.array:
            raise TypeError(f"{field.name} is a structure outside of an array")
        item = _writer_of(field.kind, struct_type or msgspec.Struct)
    else:
        item = _FIXED_WRITE.get(_require_primitive(field.kind)) or _sized_writer_of(field, flexible)
    if field.array:
        return _array_writer_of(field, flexible, item)
    return item


def _array_writer_of(field: Field, flexible: bool, item: Write) -> Write:
    def write(values: Any) -> bytes:
        if values is None:
            if not field.nullable:
                raise TypeError(f"{field.name} may not be null in this version")
            return b"\0" if flexible else _I32(-1)
        size = varint(len(values) + 1) if flexible else _I32(len(values))
        return size + b"".join([item(value) for value in values])

    return write


def _sized_writer_of(field: Field, flexible: bool) -> Write:
    """Builds the writer of a string or of bytes, with their length before them."""
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


def _require_primitive(kind: str) -> str:
    """Returns ``kind``; raises TypeError where it is no primitive kind that the codecs support."""
    if kind not in IMPLICIT_DEFAULTS:
        raise TypeError(f"fields of kind {kind} are not supported")
    return kind


def _wanted(struct_type: type[msgspec.Struct] | None) -> dict[str, type[msgspec.Struct] | None]:
    """Returns the fields of a struct, with the struct that is nested in each."""
    if struct_type is None or struct_type is msgspec.Struct:
        return {}
    return {info.name: _nested(info.type) for info in msgspec.structs.fields(struct_type)}


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
