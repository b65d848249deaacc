"""Procedure records in memory: a disk that outlives the daemons that open it, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from metadata_store.records import codec
from metadata_store.records.port import Damaged, Fenced, Stored
from state_machines.procedures.record import Record


class Disk:
    """Holds encoded records; the daemon that opened it last may write."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.last_pid = 0
        self.opened = 0


class MemoryRecords:
    """Implements :class:`metadata_store.records.port.RecordStore` on a disk."""

    def __init__(self, disk: Disk, above: int = 0) -> None:
        disk.opened = max(disk.opened, above) + 1
        self._disk = disk
        self._epoch = disk.opened

    bytes_max = 0

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Returns 0: a write may have any size."""
        return 0

    async def load(self) -> Stored:
        """Reads everything, ordered by pid."""
        records: list[Record] = []
        damaged: list[Damaged] = []
        for pid, body in sorted(self._disk.bodies.items()):
            try:
                records.append(codec.unsealed(pid, body))
            except codec.Unreadable as error:
                damaged.append(Damaged(pid, str(error), error.fault, error.caller))
        self._disk.last_pid = max(self._disk.last_pid, *self._disk.bodies, 0)
        return Stored(records, damaged, self._disk.last_pid)

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes all or nothing. No domain has rows of its own here."""
        assert not tuple(rows)
        self._check()
        self._disk.bodies.update((record.pid, codec.sealed(record)) for record in puts)
        for pid in deletes:
            self._disk.bodies.pop(pid, None)

    async def reserve(self, count: int) -> int:
        """Reserves pids; returns the first of them."""
        self._check()
        self._disk.last_pid += count
        return self._disk.last_pid - count + 1

    async def close(self) -> None:
        """Does nothing: all is written."""

    def _check(self) -> None:
        if self._epoch != self._disk.opened:
            raise Fenced(f"another daemon opened the store (epoch {self._disk.opened}, ours {self._epoch})")
