"""Messages with as much work as their bytes can make, and readers that count the work."""

from __future__ import annotations

from random import Random

from brokers.wire.message_codec import Field, Layout
from brokers.wire.primitives import ITEMS_MAX, TAGS_MAX, Reader, varint

WORK_PER_ITEM = 40
"""Reads for one counted item or tagged field at most: its fields, a byte of a varint being one read."""
WORK_PER_MESSAGE = 100
ZEROS = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uuid": 16}


class CountingReader(Reader):
    """Counts the reads: the cost of a message."""

    def __init__(self, data: bytes, items_max: int = ITEMS_MAX) -> None:
        super().__init__(data, items_max)
        self.work = 0
        self.tags_read = 0

    def _take(self, size: int, what: str) -> int:
        self.work += 1
        return super()._take(size, what)

    def tags(self) -> int:
        count = super().tags()
        self.tags_read += count
        return count

    def bounded(self) -> bool:
        """Returns whether counted items and tagged fields, which are bounded, account for all reads."""
        counted = self.items_read + self.tags_read
        return self.tags_read <= TAGS_MAX and self.work <= WORK_PER_MESSAGE + WORK_PER_ITEM * counted


class Hostile:
    """Fills arrays and sections of tagged fields until ``size`` bytes are used up."""

    def __init__(self, random: Random, size: int) -> None:
        self._random = random
        self._left = size

    def message(self, layout: Layout) -> bytes:
        """Returns a message, or the beginning of one."""
        parts = [self._field(field, layout) for field in layout.fields if field.tag is None]
        return b"".join(parts) + (self._tags() if layout.tags else b"")

    def _field(self, field: Field, layout: Layout) -> bytes:
        if not field.array:
            assert not isinstance(field.kind, Layout)
            return smallest(field.kind, flexible=layout.flexible)
        flexible = layout.flexible
        if self._random.random() < 0.5:
            return _count(0, flexible=flexible)
        item = self._item(field, flexible=flexible)
        count = self._random.choice((1, 3, max(1, self._left // max(1, len(item)))))
        self._left = max(0, self._left - count * len(item))
        return _count(count, flexible=flexible) + item * count

    def _item(self, field: Field, *, flexible: bool) -> bytes:
        if isinstance(field.kind, Layout):
            return self.message(field.kind)
        return smallest(field.kind, flexible=flexible)

    def _tags(self) -> bytes:
        if self._random.random() < 0.6:
            return b"\0"
        count = self._random.choice((1, 10, max(1, self._left // 2)))
        self._left = max(0, self._left - 2 * count)
        return varint(count) + b"\x63\0" * count


def smallest(kind: str, *, flexible: bool) -> bytes:
    """Returns the shortest value of a primitive field."""
    return bytes(ZEROS[kind]) if kind in ZEROS else b"\1" if flexible else bytes(2 if kind == "string" else 4)


def _count(count: int, *, flexible: bool) -> bytes:
    return varint(count + 1) if flexible else count.to_bytes(4, "big")
