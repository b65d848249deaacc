"""Gathers what the engine writes: the changes of one turn in one transaction, weighed as the store will have them.

Pids of new procedures are reserved in the store in blocks, so that most of them cost no write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.procedures.requests import Pending
from metadata_store.records.port import RecordStore
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Entry
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Transition

RECORDS_MAX: Final = 400
"""Records that one turn writes, before the last change is added; a ZooKeeper multi has room for 500."""
BYTES_MAX: Final = 128 * 1024
"""Bytes of messages, results and reasons that one turn writes, before the last change is added."""
WEIGHT_MAX: Final = 256 * 1024
"""Bytes of records and rows as a store with a bound has them, before the last change is added."""
CHANGE_BYTES_MAX: Final = 384 * 1024
"""Bytes of messages and results that one change writes: any daemon holds and shows them."""
SPARE: Final = 50
"""Part of a write that a split leaves over: the message for the rest may be longer than the one for all."""
BLOCK: Final = 1_000
"""Pids that are reserved together."""


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A change. ``entry``: the procedure whose step led to it; ``until_ms``: end of a wait that is not stored.

    ``again``: the procedure is queued again. ``pending``: the request that led to it, ``pid``: its response.
    ``rows`` are written in the same transaction; ``entered`` is called once it is durable. ``demands``: of new
    children, as they were checked. ``removes``: records that cannot be used; ``ends``: of those that are gone.
    ``weight``: bytes of a write of it alone, 0 where they are not known yet.
    """

    change: Change
    entry: Entry | None = None
    until_ms: int = 0
    again: bool = False
    pending: Pending | None = None
    pid: int = 0
    rows: tuple[object, ...] = ()
    entered: Callable[[Change], None] | None = None
    demands: Mapping[int, Demand] = {}
    removes: tuple[int, ...] = ()
    ends: tuple[Transition, ...] = ()
    weight: int = 0

    def respond(self) -> None:
        """Sends the response to the request."""
        if self.pending is not None:
            self.pending.respond(self.pid)

    def refuse(self, why: Exception) -> None:
        """Refuses the request."""
        if self.pending is not None:
            self.pending.refuse(why)


class Group:
    """Collects changes that one write of the store can hold; of several writes of a record the last one counts."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._bytes_max = store.bytes_max
        self._decided: list[Decided] = []
        self._puts: dict[int, Record] = {}
        self._deletes: dict[int, None] = {}
        self.rows: list[object] = []
        self.is_full = False
        """Whether the next change goes into another transaction."""
        self._bytes = self._stored_bytes = 0

    @property
    def puts(self) -> list[Record]:
        """Returns the records to write."""
        return list(self._puts.values())

    @property
    def deletes(self) -> list[int]:
        """Returns the pids of the records to delete."""
        return list(self._deletes)

    @property
    def pids(self) -> set[int]:
        """Returns the procedures whose steps led to the changes."""
        return {one.entry.pid for one in self._decided if one.entry is not None}

    def has_room(self, decided: Decided) -> bool:
        """Checks whether a change goes into the same transaction as those before it."""
        if not (self._decided and self._bytes_max):
            return True
        return self._stored_bytes + self._weight(decided) <= self._bytes_max

    def add(self, decided: Decided) -> None:
        """Adds a change."""
        self._decided.append(decided)
        if decided.rows:
            self.rows += decided.rows
        for record in decided.change.puts:
            self._puts[record.pid] = record
            self._bytes += len(record.data) + len(record.result) + len(record.ending.reason)
        for pid in decided.change.deletes:
            self._puts.pop(pid, None)
            self._deletes[pid] = None
        if decided.removes:
            self._deletes.update(dict.fromkeys(decided.removes))
        if self._bytes_max:
            self._stored_bytes += self._weight(decided)
        records = len(self._puts) + len(self._deletes) + (len(self.rows) if self._bytes_max else 0)
        is_heavy = self._bytes >= BYTES_MAX or self._stored_bytes >= WEIGHT_MAX
        self.is_full = is_heavy or records >= RECORDS_MAX or len(self._decided) >= RECORDS_MAX

    def _weight(self, decided: Decided) -> int:
        change = decided.change
        deletes = (*change.deletes, *decided.removes)
        return decided.weight or self._store.weigh(change.puts, deletes, decided.rows)

    @property
    def decided(self) -> Sequence[Decided]:
        """Returns the changes."""
        return self._decided

    def clear(self) -> None:
        """Removes the changes, which are written and entered."""
        self._decided, self._puts, self._deletes, self.rows = [], {}, {}, []
        self._bytes = self._stored_bytes = 0
        self.is_full = False

    def refuse(self, why: Exception) -> None:
        """Refuses the requests of changes that were not written, or not entered; those with a response keep it."""
        for one in self._decided:
            one.refuse(why)


class Scale:
    """Weighs changes for a store: splits the large ones, and fails those that no split makes small enough.

    ``before``: returns the record that a write replaces, None where there is none.
    """

    def __init__(self, store: RecordStore, before: Callable[[int], Record | None]) -> None:
        self._store = store
        self._before = before
        self._has_bound = store.bytes_max > 0

    def problem(self, change: Change, rows: Sequence[object] = ()) -> tuple[int, str | None]:
        """Returns the weight of a change, and why it cannot be stored; None where it can."""
        raw = sum([len(put.data) + len(put.result) for put in change.puts]) if change.puts else 0
        if raw > CHANGE_BYTES_MAX:
            raw = sum(len(put.data) + len(put.result) for put in change.puts if self._is_other(put))
        if raw > CHANGE_BYTES_MAX:
            return raw, f"its records have {raw} bytes, one step may write {CHANGE_BYTES_MAX}"
        if not self._has_bound:
            return 0, None
        bytes_max = self._store.bytes_max
        try:
            weight = self._store.weigh(change.puts, change.deletes, rows)
        except Exception as error:
            return 0, f"its records cannot be encoded: {type(error).__name__}: {error}"
        if weight > bytes_max:
            return weight, f"its write has {weight} bytes, the store takes {bytes_max}"
        return weight, None

    def _is_other(self, put: Record) -> bool:
        """Checks whether a record gets another message or result: those that stay are held by daemons already."""
        before = self._before(put.pid)
        return before is None or (put.data, put.result) != (before.data, before.result)

    def fitting(self, parent: Record, children: Sequence[Record], rows: Sequence[object]) -> int:
        """Returns how many of the first children fit into one write with their parent, and with rows."""
        raw_max, bytes_max = CHANGE_BYTES_MAX, self._store.bytes_max
        raw = len(parent.data) + raw_max // SPARE
        weight = self._store.weigh((parent,), (), rows) + bytes_max // SPARE
        for count, one in enumerate(children):
            raw += len(one.data)
            weight += self._store.weigh((one,))
            if raw > raw_max or weight > bytes_max > 0:
                return count
        return len(children)


class Pids:
    """Gives out reserved pids. Those that a daemon leaves over are never given again."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._next = self._end = 0
        self._above = 0
        self._row = range(0)
        """Numbers for :meth:`row`: those for procedures are promised to the turn that has reserved them."""
        self._reserving = asyncio.Lock()

    def begin_after(self, last_pid: int) -> None:
        """Begins behind the highest pid that was ever reserved."""
        self._next = self._end = last_pid + 1

    @property
    def last(self) -> int:
        """Returns the highest pid that was ever reserved."""
        return self._end - 1

    def is_given(self, number: int) -> bool:
        """Checks whether a number was given out, or left over for good."""
        reserved = 0 < number < max(self._end, self._row.stop)
        return reserved and number not in self._row and not self._next <= number < self._end

    async def go_above(self, number: int) -> None:
        """Leaves out all pids up to a number, durably; those that are reserved and above it stay."""
        if number > self.last:
            await self._store.reserve(number - self.last)
            self.begin_after(number)
        self._next = max(self._next, number + 1)
        self._above = max(self._above, number)

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

    async def row(self, count: int) -> int:
        """Reserves ``count`` consecutive numbers that no procedure gets, and returns the first; calls may overlap.

        Raises ``StoreFailed``.
        """
        async with self._reserving:
            while len(self._row) < count or self._row[0] <= self._above:
                first = await self._store.reserve(max(count, BLOCK))
                self._row = range(first, first + max(count, BLOCK))
            first, self._row = self._row[0], self._row[count:]
        return first

    def next(self) -> int:
        """Returns the next pid, which was reserved."""
        pid, self._next = self._next, self._next + 1
        return pid

    def named(self, record: Record) -> Record:
        """Returns a new record with the next pid, which was reserved."""
        return replace(record, pid=self.next())
