"""Records that cannot be run: why, what their callers' nonces are, and what goes where an operator removes one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from controller.procedures.requests import Unusable
from controller.procedures.results import Nonce
from metadata_store.records.port import Stored
from state_machines.procedures.record import Caller, Ending, Record, family
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition

TOGETHER: Final = 100
"""Records of a family that one transaction removes, and ends that are told together: a family may be large."""
UNKNOWN: Final = "unknown"
"""Kind of a record that cannot be read."""


class Removal(NamedTuple):
    """A part of a removal. ``ends``: of records that are gone, to be told; ``is_last``: nothing is left to do."""

    deletes: tuple[int, ...]
    ends: tuple[Transition, ...]
    is_last: bool


class UnusableRecords:
    """Holds the records that a load could not use. ``why``: the cause of each, by pid; ``nonces``: of their callers.

    ``records``: those that can be read.
    """

    def __init__(self) -> None:
        self.why: dict[int, str] = {}
        self.nonces: dict[Nonce, int] = {}
        self.records: dict[int, Record] = {}
        self._near: dict[int, set[int]] = {}
        self._deleted: set[int] = set()
        self._told: set[int] = set()

    def fill(self, stored: Stored, why: Mapping[int, str]) -> None:
        """Takes what a load found."""
        self.why = dict(why)
        self.records = {one.pid: one for one in family(stored.records) if one.pid in self.why}
        self._near = _neighbours(self.records.values(), self.why)
        callers: dict[int, Caller] = {one.pid: one.caller for one in stored.damaged}
        callers |= {pid: one.caller for pid, one in self.records.items() if not one.parent}
        self.nonces = {(one.principal, one.nonce): pid for pid, one in callers.items() if one.nonce}

    def check(self, pid: int) -> None:
        """Raises :class:`Unusable` for a pid whose record cannot be used."""
        if pid in self.why:
            raise Unusable(pid, f"pid {pid}: {self.why[pid]}")

    def check_nonce(self, nonce: Nonce) -> None:
        """Raises :class:`Unusable` where a call with this nonce has a record that cannot be used."""
        if (pid := self.nonces.get(nonce)) is not None:
            raise Unusable(pid, f"this call has pid {pid} already, and that cannot go on: {self.why[pid]}")

    def family(self, pid: int) -> list[int]:
        """Returns the pids that go together, the oldest first: no part outlives what it belongs to."""
        found, left = {pid}, [pid]
        while left:
            new = self._near.get(left.pop(), set()) - found
            found |= new
            left += new
        return sorted(found)

    def removal(self, pid: int, ending: Ending, now_ms: int) -> Removal:
        """Returns the next part of the removal of a record and its family.

        The oldest go first: where the daemon dies meanwhile, the others have no parent, and do not go on. Their ends
        are told the other way round, because a part ends before what it belongs to.
        """
        family = self.family(pid)
        left = [one for one in family if one not in self._deleted]
        deletes = left[:TOGETHER]
        self._deleted.update(deletes)
        if len(left) > TOGETHER:
            return Removal(tuple(deletes), (), is_last=False)
        untold = [one for one in family if one not in self._told]
        told = untold[-TOGETHER:][::-1]
        self._told.update(told)
        ends = tuple(self._ended(one, replace(ending, at_ms=now_ms), now_ms) for one in told)
        return Removal(tuple(deletes), ends, is_last=len(told) == len(untold))

    def forget(self, pids: Iterable[int]) -> None:
        """Forgets records whose removal is durable."""
        gone = set(pids)
        self.nonces = {nonce: pid for nonce, pid in self.nonces.items() if pid not in gone}
        for pid in gone:
            self.why.pop(pid, None)
            self.records.pop(pid, None)
            for other in self._near.pop(pid, ()):
                self._near.get(other, set()).discard(pid)
        self._deleted -= gone
        self._told -= gone

    def _ended(self, pid: int, ending: Ending, now_ms: int) -> Transition:
        before = self.records.get(pid) or Record(pid, UNKNOWN, State.RUNNABLE, 0, now_ms, now_ms)
        state = State.ROLLEDBACK if before.state in (State.FAILED, State.ROLLEDBACK) else State.SUCCESS
        return Transition(
            before,
            replace(before, state=state, bypassed=True, ending=ending, updated_ms=now_ms, error=self.why[pid]),
        )


def _neighbours(records: Iterable[Record], why: Mapping[int, str]) -> dict[int, set[int]]:
    """Returns parents and children by pid, as far as they cannot be used either: they were left alone together."""
    near: dict[int, set[int]] = defaultdict(set)
    for record in records:
        for other in (record.parent, *record.ancestors, *record.born):
            if other in why and other != record.pid:
                near[record.pid].add(other)
                near[other].add(record.pid)
    return dict(near)
