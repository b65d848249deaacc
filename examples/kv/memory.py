"""Holds an open region in memory: all its entries, and what of them is not in its file yet."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator

from examples.kv.content import Content, Entry, in_range
from examples.kv.records import Edit
from regent_agent.service import OpenedRegion


class Region:
    """Holds the entries of a region that this process owns. ``closing``: it takes no requests any more."""

    def __init__(self, opened: OpenedRegion, content: Content) -> None:
        self.opened = opened
        self.number = opened.region
        self.token = opened.token
        self.closing = False
        self.flushing = asyncio.Lock()
        self.unflushed_bytes = 0
        self.unflushed_from = 0
        """First segment of the log that may have edits which the file does not have; 0 without any."""
        self.sources = content.sources
        """What the file refers to."""
        self.dependent = bool(opened.sources)
        """Whether the daemon is to know once the file refers to nothing."""
        self.reads = self.writes = 0
        self.size_bytes = sum(len(key) + len(entry.value) for key, entry in content.entries.items())
        self._sequence = content.sequence
        self._inherited = content.inherited
        self._entries = content.entries
        self._keys = list(content.entries)
        self._in_order = False

    def has(self, key: bytes) -> bool:
        """Says whether a key is within the region's range."""
        return in_range(key, self.opened.start, self.opened.end)

    def get(self, key: bytes) -> Entry | None:
        """Returns the entry of a key."""
        return self._entries.get(key)

    def put(self, key: bytes, value: bytes, segment: int) -> Edit:
        """Sets a key, and returns the edit for the log, whose next segment is ``segment`` or a later one."""
        self._sequence += 1
        former = self._entries.get(key)
        if former is None:
            self._keys.append(key)
            self._in_order = False
        self._entries[key] = Entry(value, self._sequence)
        self.size_bytes += len(value) + (len(key) if former is None else -len(former.value))
        self.unflushed_bytes += len(key) + len(value)
        self.unflushed_from = self.unflushed_from or segment
        return Edit(self.number, self.token, self._sequence, key, value)

    def scan(self, start: bytes) -> Iterator[tuple[bytes, Entry]]:
        """Yields keys with their entries in order, from the key ``start`` on."""
        keys = self._sorted_keys()
        for at in range(bisect_left(keys, start), len(keys)):
            yield keys[at], self._entries[keys[at]]

    def median(self) -> bytes:
        """Returns the key that halves the region, empty where it has too few for that."""
        keys = self._sorted_keys()
        return keys[len(keys) // 2] if len(keys) > 1 else b""

    def _sorted_keys(self) -> list[bytes]:
        if not self._in_order:
            self._keys.sort()
            self._in_order = True
        return self._keys

    def begin_flush(self, segment: int, *, whole: bool = False) -> Content:
        """Returns a copy of the region for its file; edits from now on are in ``segment`` or later ones.

        ``whole``: the file is to refer to nothing.
        """
        self._flush_segment = segment
        self._flush_bytes = self.unflushed_bytes
        return Content(self._sequence, dict(self._entries), () if whole else self.sources, self._inherited)

    def end_flush(self, flushed: Content) -> None:
        """Notes that a copy is durable in the file."""
        self.unflushed_bytes -= self._flush_bytes
        self.unflushed_from = 0 if flushed.sequence == self._sequence else self._flush_segment
        self.sources = flushed.sources
