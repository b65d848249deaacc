"""Reads and writes primitive types of Kafka's protocol: varints, strings and arrays, safe against hostile input.

The reader checks each size against the remaining bytes before it builds a value. So a hostile frame cannot cause reads
past its end, and costs no more than its own length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, TypeVar

T = TypeVar("T")

NO_TAGS: Final = b"\0"
"""An empty section of tagged fields."""
EMPTY_ARRAY: Final = b"\1"
"""A compact array of length 0."""
ZERO_ID: Final = bytes(16)
"""The topic id on the wire of a topic without an id."""
VARINT_BYTES_MAX: Final = 5
STRING_BYTES_MAX: Final = 32_767
"""Longest string in a message, in bytes of UTF-8, in either form (Kafka's generated readers)."""
ITEMS_MAX: Final = 500_000
"""Most array items in one received message."""
TAGS_MAX: Final = 1_000
"""Most tagged fields in one received message, nested structures included; real ones have a handful."""

_SHORT: Final = tuple(bytes((value,)) for value in range(0x80))
_I8, _I16, _I32, _I64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")


class BadMessage(ValueError):
    """Raised for bytes that violate the protocol; the text names the error and its position."""


def varint(value: int) -> bytes:
    """Encodes an unsigned varint (lengths and tags)."""
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str) -> bytes:
    """Encodes a compact string: length + 1 as a varint, then UTF-8."""
    data = text.encode()
    return varint(len(data) + 1) + data


def compact_nullable_string(text: str | None) -> bytes:
    """Encodes a compact nullable string; null is length 0."""
    return b"\0" if text is None else compact_string(text)


def legacy_string(text: str) -> bytes:
    """Encodes a string with a 16-bit length, as in request headers and versions that are not flexible."""
    data = text.encode()
    return _I16.pack(len(data)) + data


class Reader:
    """A cursor over one message; every method raises :class:`BadMessage` instead of reading past the end."""

    __slots__ = ("_items_max", "_tags_left", "data", "items_read", "position")

    def __init__(self, data: bytes, items_max: int = ITEMS_MAX) -> None:
        self.data = data
        self.position = 0
        self._items_max = items_max
        self._tags_left = TAGS_MAX
        self.items_read = 0
        """Array items of this message so far, nested ones included."""

    def _take(self, size: int, what: str) -> int:
        start = self.position
        if size < 0 or start + size > len(self.data):
            raise BadMessage(f"{what} of {size} bytes at {start} does not fit into {len(self.data)} bytes")
        self.position = start + size
        return start

    def i8(self) -> int:
        """Reads a signed 8-bit integer."""
        value: int = _I8.unpack_from(self.data, self._take(1, "int8"))[0]
        return value

    def i16(self) -> int:
        """Reads a signed 16-bit integer."""
        value: int = _I16.unpack_from(self.data, self._take(2, "int16"))[0]
        return value

    def i32(self) -> int:
        """Reads a signed 32-bit integer."""
        value: int = _I32.unpack_from(self.data, self._take(4, "int32"))[0]
        return value

    def i64(self) -> int:
        """Reads a signed 64-bit integer."""
        value: int = _I64.unpack_from(self.data, self._take(8, "int64"))[0]
        return value

    def uuid(self) -> bytes:
        """Reads the 16 bytes of a uuid."""
        return self._slice(16, "uuid")

    def varint(self) -> int:
        """Reads an unsigned varint of at most 32 bits."""
        value = 0
        for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
            byte = self.data[self._take(1, "varint")]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BadMessage(f"varint at {self.position} is longer than {VARINT_BYTES_MAX} bytes")

    def compact_string(self) -> str:
        """Reads a compact string; refuses null."""
        return self._text(self.varint() - 1)

    def legacy_string(self) -> str:
        """Reads a string with a 16-bit length; refuses null."""
        return self._text(self.i16())

    def legacy_nullable_string(self) -> str | None:
        """Reads a nullable string with a 16-bit length."""
        length = self.i16()
        return None if length == -1 else self._text(length)

    def compact_array(self, item: Callable[[Reader], T], item_bytes_min: int) -> list[T]:
        """Reads a compact array whose items have at least ``item_bytes_min`` bytes; refuses null."""
        return self.items(self.varint() - 1, item, item_bytes_min)

    def items(self, count: int, item: Callable[[Reader], T], item_bytes_min: int) -> list[T]:
        """Reads ``count`` items of at least ``item_bytes_min`` bytes each; refuses a count that cannot fit."""
        self._count(count, item_bytes_min)
        return [item(self) for _ in range(count)]

    def records(self, count: int, layout: Struct) -> Iterator[tuple[Any, ...]]:
        """Reads ``count`` items of one fixed layout, at a fraction of the cost; the caller checks their tags."""
        self._count(count, layout.size)
        return layout.iter_unpack(self._slice(count * layout.size, "records"))

    def _count(self, count: int, item_bytes_min: int) -> None:
        if count < 0 or count * item_bytes_min > len(self.data) - self.position:
            raise BadMessage(f"array of {count} items at {self.position} does not fit into {len(self.data)} bytes")
        self.items_read += count
        if self.items_read > self._items_max:
            raise BadMessage("more array items than any real message has")

    def text(self, size: int) -> str:
        """Reads a string of ``size`` bytes behind its length."""
        if size > STRING_BYTES_MAX:
            raise BadMessage(f"string of {size} bytes at {self.position}: at most {STRING_BYTES_MAX} are allowed")
        return self._text(size)

    def bytes_(self, size: int) -> bytes:
        """Reads ``size`` bytes behind their length."""
        return self._slice(size, "bytes")

    def skip(self, size: int) -> None:
        """Skips ``size`` bytes."""
        self._take(size, "field")

    def skip_tags(self) -> None:
        """Skips a section of tagged fields, known or not."""
        for _ in range(self.tags()):
            self.varint()
            self._take(self.varint(), "tagged field")

    def tags(self) -> int:
        """Reads the number of tagged fields, each a tag, a size and as many bytes; at most :data:`TAGS_MAX`."""
        count = self.varint()
        if count > len(self.data) - self.position:
            raise BadMessage(f"{count} tagged fields at {self.position} do not fit into {len(self.data)} bytes")
        self._tags_left -= count
        if self._tags_left < 0:
            raise BadMessage(f"more than {TAGS_MAX} tagged fields, which no real message has")
        return count

    def end(self) -> None:
        """Refuses bytes after the message."""
        if self.position != len(self.data):
            raise BadMessage(f"{len(self.data) - self.position} bytes follow the message")

    def _slice(self, size: int, what: str) -> bytes:
        start = self._take(size, what)
        return self.data[start : start + size]

    def _text(self, size: int) -> str:
        try:
            return self._slice(size, "string").decode()
        except UnicodeDecodeError as error:
            raise BadMessage(f"string before {self.position} is not UTF-8: {error.reason}") from None
