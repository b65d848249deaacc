"""The changes of one turn, which are written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from controller.procedures.requests import Pending
from metadata_store.records.port import RecordStore
from state_machines.procedures.demand import Demand
from state_machines.procedures.entity_queue import Entry
from state_machines.procedures.kernel import Change
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

    def take(self) -> list[Decided]:
        """Removes and returns the changes, whose records are written."""
        found = self._decided
        self._decided, self._puts, self._deletes, self.rows = [], {}, {}, []
        self._bytes = self._stored_bytes = 0
        self.is_full = False
        return found

    def refuse(self, why: Exception) -> None:
        """Refuses the requests of changes that were not written."""
        for one in self._decided:
            one.refuse(why)
