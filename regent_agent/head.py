"""Reads the first fields of a message from its first bytes: texts and numbers, up to the first other field."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from regent_agent.protocol import Owned

_NUMBERS: Final = {
    0xCC: Struct(">B"), 0xCD: Struct(">H"), 0xCE: Struct(">I"), 0xCF: Struct(">Q"),
    0xD0: Struct(">b"), 0xD1: Struct(">h"), 0xD2: Struct(">i"), 0xD3: Struct(">q"),
}  # fmt: skip
_LENGTHS: Final = {0xD9: Struct(">B"), 0xDA: Struct(">H"), 0xDB: Struct(">I")}
"""Lengths of texts."""
_COUNTS: Final = {0xDC: Struct(">H"), 0xDD: Struct(">I")}
"""Lengths of lists."""


class Scalars(NamedTuple):
    """The first fields. ``entries``: of the list behind them, 0 without one. ``whole``: nothing is cut off."""

    values: list[Any]
    entries: int
    whole: bool


def scalars(data: bytes, most: int) -> Scalars | None:
    """Returns up to ``most`` first fields of the message that begins with ``data``; None where none begins there."""
    fields, at = _count(data, 0)
    if fields is None:
        return None
    values: list[Any] = []
    for _ in range(min(fields, most)):
        try:
            value, after = _scalar(data, at)
        except (IndexError, ValueError):
            return Scalars(values, 0, False)
        if value is None:
            entries, _ = _count(data, at)
            return Scalars(values, entries or 0, True)
        values.append(value)
        at = after
    return Scalars(values, 0, True)


def length_of(data: bytes) -> int:
    """Returns the length of the list that begins with these bytes; 0 for any other value."""
    return _count(data, 0)[0] or 0


def _scalar(data: bytes, at: int) -> tuple[str | int | None, int]:
    """Returns a text or a number, and where it ends; None for others. Raises IndexError, ValueError."""
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 0x100, at
    if (number := _NUMBERS.get(first)) is not None:
        return _unpacked(number, data, at), at + number.size
    if first & 0xE0 == 0xA0:
        return _text(data, at, first & 0x1F)
    if (length := _LENGTHS.get(first)) is not None:
        return _text(data, at + length.size, _unpacked(length, data, at))
    return None, at


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    if at + size > len(data):
        raise IndexError
    return data[at : at + size].decode(), at + size


def _count(data: bytes, at: int) -> tuple[int | None, int]:
    """Returns the length of the list that begins there, and where its first value does; None for other values."""
    if at < len(data) and data[at] & 0xF0 == 0x90:
        return data[at] & 0x0F, at + 1
    layout = _COUNTS.get(data[at]) if at < len(data) else None
    if layout is None or len(data) < at + 1 + layout.size:
        return None, at
    return _unpacked(layout, data, at + 1), at + 1 + layout.size


def _unpacked(layout: Struct, data: bytes, at: int) -> int:
    if at + layout.size > len(data):
        raise IndexError
    return int(layout.unpack_from(data, at)[0])


PORTION: Final = 512
"""Regions that are decoded at a time."""
_NUMBER: Final = rb"(?:[\x00-\x7f\xe0-\xff]|[\xcc\xd0].|[\xcd\xd1]..|[\xce\xd2].{4}|[\xcf\xd3].{8})"
_ENTRIES: Final = [
    (size, re.compile(rb"(?:\x92" + _NUMBER * 2 + rb"){%d}" % size, re.DOTALL))
    for size in (PORTION >> step for step in range(PORTION.bit_length()))
]
"""Patterns of so many entries of two numbers: they find the end of a portion many times faster than a decoder."""

_decoder: msgspec.msgpack.Decoder[list[Owned]] = msgspec.msgpack.Decoder(list[Owned])


class Listed(Collection[Owned]):
    """A list of regions. ``ends``: numbers of entries of each portion, and where its bytes end."""

    def __init__(self, data: memoryview, begin: int, ends: list[tuple[int, int]]) -> None:
        self._data, self._begin, self._ends = data, begin, ends
        self._count = sum(count for count, _ in ends)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Owned]:
        at = self._begin
        for count, end in self._ends:
            yield from _decoder.decode(b"\xdc" + count.to_bytes(2, "big") + self._data[at:end])
            at = end

    def __contains__(self, region: object) -> bool:
        return any(one == region for one in self)


def listed(data: memoryview) -> Listed | None:
    """Returns a list in msgpack; None where it is none, or an entry is not of two numbers alone."""
    head = {0xDC: 3, 0xDD: 5}.get(data[0], 1)
    if data[0] & 0xF0 != 0x90 and head == 1:
        return None
    left = data[0] & 0x0F if head == 1 else int.from_bytes(data[1:head], "big")
    at, ends = head, list[tuple[int, int]]()
    for size, pattern in _ENTRIES:
        while left >= size:
            found = pattern.match(data, at)
            if found is None:
                return None
            left, at = left - size, found.end()
            ends.append((size, at))
    return Listed(data, head, ends) if at == len(data) else None
