"""The changes of one turn, which are written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from controller.procedures.requests import Pending
from state_machines.procedures.demand import Demand
from state_machines.procedures.entity_queue import Entry
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Transition

RECORDS_MAX: Final = 400
"""Records that one turn writes, before the last change is added; a ZooKeeper multi has room for 500."""
BYTES_MAX: Final = 128 * 1024
"""Bytes of messages, results and reasons that one turn writes, before the last change is added."""

CHANGE_BYTES_MAX: Final = 384 * 1024
"""Bytes of messages and results that one change writes. With a full group, and as base64, they fit into a request."""


Weigh = Callable[[Sequence[object]], int]
"""Returns about how many bytes rows add to a transaction, 0 where that has no bound."""


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A change. ``entry``: the procedure whose step led to it; ``until_ms``: end of a wait that is not stored.

    ``again``: the procedure is queued again. ``pending``: the request that led to it, ``pid``: its response.
    ``rows`` are written in the same transaction; ``entered`` is called once it is durable. ``demands``: of new
    children, as they were checked. ``removes``: records that cannot be used; ``ends``: of those that are gone.
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

    def respond(self) -> None:
        """Sends the response to the request."""
        if self.pending is not None:
            self.pending.respond(self.pid)

    def refuse(self, why: Exception) -> None:
        """Refuses the request."""
        if self.pending is not None:
            self.pending.refuse(why)


class Group:
    """Collects changes; of several writes of a record the last one counts."""

    def __init__(self, weigh: Weigh | None = None) -> None:
        self._weigh = weigh
        self._weighed = 0
        self._decided: list[Decided] = []
        self._puts: dict[int, Record] = {}
        self._deletes: dict[int, None] = {}
        self.rows: list[object] = []
        self._bytes = 0

    @property
    def puts(self) -> list[Record]:
        """Returns the records to write."""
        return list(self._puts.values())

    @property
    def deletes(self) -> list[int]:
        """Returns the pids of the records to delete."""
        return list(self._deletes)

    @property
    def is_full(self) -> bool:
        """Checks whether the next change goes into another transaction."""
        records = len(self._puts) + len(self._deletes) + self._weighed
        return max(len(self._decided), records) >= RECORDS_MAX or self._bytes >= BYTES_MAX

    def has_room(self, decided: Decided) -> bool:
        """Checks whether a change with rows goes into the same transaction as those before it."""
        if self._weigh is None or not decided.rows or not self._decided:
            return True
        size = self._weigh(decided.rows)
        size += sum(len(put.data) + len(put.result) for put in decided.change.puts) if size else 0
        return not size or self._bytes + size <= CHANGE_BYTES_MAX

    def add(self, decided: Decided) -> None:
        """Adds a change."""
        self._decided.append(decided)
        if decided.rows:
            self._add_rows(decided.rows)
        for record in decided.change.puts:
            self._puts[record.pid] = record
            self._bytes += len(record.data) + len(record.result) + len(record.ending.reason)
        for pid in decided.change.deletes:
            self._puts.pop(pid, None)
            self._deletes[pid] = None
        self._deletes.update(dict.fromkeys(decided.removes))

    def _add_rows(self, rows: Sequence[object]) -> None:
        """Adds rows; those that weigh something count as records, too."""
        self.rows += rows
        if self._weigh is not None and (size := self._weigh(rows)):
            self._weighed += len(rows)
            self._bytes += size

    def take(self) -> list[Decided]:
        """Removes and returns the changes, whose records are written."""
        found = self._decided
        self._decided, self._puts, self._deletes, self.rows, self._bytes = [], {}, {}, [], 0
        self._weighed = 0
        return found

    def refuse(self, why: Exception) -> None:
        """Refuses the requests of changes that were not written."""
        for one in self._decided:
            one.refuse(why)
