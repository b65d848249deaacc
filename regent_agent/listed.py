"""Lists of regions that stay bytes until they are needed: objects of hundreds of thousands of regions never exist."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from regent_agent.protocol import Owned

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
