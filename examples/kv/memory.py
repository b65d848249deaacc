"""Holds an open region in memory: all its entries, and what of them is not in its file yet."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator

from examples.kv.records import Edit
from examples.kv.regions import Content, Entry


class Region:
    """Holds the entries of a region that this process owns. ``closing``: it takes no requests any more."""

    def __init__(self, number: int, token: int, start: bytes, end: bytes, content: Content) -> None:
        self.number = number
        self.token = token
        self.closing = False
        self.flushing = asyncio.Lock()
        self.unflushed_bytes = 0
        self.unflushed_from = 0
        """First segment of the log that may have edits which the file does not have; 0 without any."""
        self._start = start
        self._end = end
        self._sequence = content.sequence
        self._entries = content.entries
        self._keys = list(content.entries)
        self._in_order = False

    def has(self, key: bytes) -> bool:
        """Says whether a key is within the region's range."""
        return self._start <= key and (not self._end or key < self._end)

    def get(self, key: bytes) -> Entry | None:
        """Returns the entry of a key."""
        return self._entries.get(key)

    def put(self, key: bytes, value: bytes, segment: int) -> Edit:
        """Sets a key, and returns the edit for the log, whose next segment is ``segment`` or a later one."""
        self._sequence += 1
        if key not in self._entries:
            self._keys.append(key)
            self._in_order = False
        self._entries[key] = Entry(value, self._sequence)
        self.unflushed_bytes += len(key) + len(value)
        self.unflushed_from = self.unflushed_from or segment
        return Edit(self.number, self.token, self._sequence, key, value)

    def scan(self, start: bytes) -> Iterator[tuple[bytes, Entry]]:
        """Yields keys with their entries in order, from the key ``start`` on."""
        if not self._in_order:
            self._keys.sort()
            self._in_order = True
        for at in range(bisect_left(self._keys, start), len(self._keys)):
            yield self._keys[at], self._entries[self._keys[at]]

    def begin_flush(self, segment: int) -> Content:
        """Returns a copy of the region for its file; edits from now on are in ``segment`` or later ones."""
        self._flush_segment = segment
        self._flush_bytes = self.unflushed_bytes
        return Content(self._sequence, dict(self._entries))

    def end_flush(self, flushed: Content) -> None:
        """Notes that a copy is durable in the file."""
        self.unflushed_bytes -= self._flush_bytes
        self.unflushed_from = 0 if flushed.sequence == self._sequence else self._flush_segment
