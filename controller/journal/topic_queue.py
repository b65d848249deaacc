"""Holds the encoded rows that wait for the journal's topic, within a bound of bytes."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple, Protocol


class Slice(NamedTuple):
    """Lines of consecutive rows of one term; ``seq`` is the number of the first one."""

    epoch: int
    seq: int
    rows: int
    data: bytes


class QueueCounters(Protocol):
    """What a queue counts."""

    journal_topic_rows_lost: int
    journal_topic_bytes_waiting: int


class TopicQueue:
    """Takes slices from the journal's thread and gives them to the topic's; rows without room are counted.

    Slices are staged until the files have them, so that the topic has no row that the files lack.
    """

    def __init__(self, bytes_max: int, counters: QueueCounters) -> None:
        self._bytes_max = bytes_max
        self._counters = counters
        self._lock = threading.Lock()
        self._staged: list[Slice] = []
        self._waiting: deque[Slice] = deque()
        self._bytes = 0

    def stage(self, found: Slice) -> None:
        """Keeps a slice until :meth:`commit`; without room its rows are lost to the topic. Never waits."""
        with self._lock:
            if self._bytes + len(found.data) <= self._bytes_max:
                self._staged.append(found)
                self._count(len(found.data))
            else:
                self._counters.journal_topic_rows_lost += found.rows

    def lose(self, rows: int) -> None:
        """Counts rows that the topic will never have."""
        with self._lock:
            self._counters.journal_topic_rows_lost += rows

    def commit(self) -> bool:
        """Hands the staged slices on; returns whether there are some."""
        with self._lock:
            staged, self._staged = self._staged, []
            self._waiting += staged
        return bool(staged)

    def discard(self) -> None:
        """Forgets the staged slices: the files do not have them."""
        with self._lock:
            self._count(-sum(len(one.data) for one in self._staged))
            self._staged = []

    def take(self) -> Slice | None:
        """Returns the oldest slice, whose bytes count until :meth:`release`; None where none waits."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def release(self, size: int) -> None:
        """Frees the bytes of rows that the topic has, or will never have."""
        with self._lock:
            self._count(-size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._counters.journal_topic_bytes_waiting = self._bytes
