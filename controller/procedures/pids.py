"""Pids for new procedures: reserved in the store in blocks, so that most of them cost no write."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from metadata_store.records.port import RecordStore
from state_machines.procedures.record import Record

BLOCK: Final = 1_000
"""Pids that are reserved together."""


class Pids:
    """Gives out reserved pids. Those that a daemon leaves over are never given again."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._next = self._end = 0

    def begin_after(self, last_pid: int) -> None:
        """Begins behind the highest pid that was ever reserved."""
        self._next = self._end = last_pid + 1

    @property
    def last(self) -> int:
        """Returns the highest pid that was ever reserved."""
        return self._end - 1

    async def go_above(self, number: int) -> None:
        """Leaves out all pids up to a number, durably; those that are reserved and above it stay."""
        if number > self.last:
            await self._store.reserve(number - self.last)
            self.begin_after(number)
        self._next = max(self._next, number + 1)

    async def reserve(self, count: int) -> None:
        """Reserves pids where fewer than ``count`` are left."""
        if self._end - self._next < count:
            first = await self._store.reserve(max(count, BLOCK))
            if first != self._end:
                self._next = first
            self._end = first + max(count, BLOCK)

    async def take(self) -> int:
        """Returns the next pid, for something else than a procedure."""
        await self.reserve(1)
        return self.next()

    def next(self) -> int:
        """Returns the next pid, which was reserved."""
        pid, self._next = self._next, self._next + 1
        return pid

    def named(self, record: Record) -> Record:
        """Returns a new record with the next pid, which was reserved."""
        return replace(record, pid=self.next())
