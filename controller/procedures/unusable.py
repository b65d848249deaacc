"""Records that cannot be run: why, what their callers' nonces are, and what goes where an operator removes one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from controller.procedures.removed import Removed
from controller.procedures.requests import Unusable
from controller.procedures.results import Nonce
from metadata_store.records.port import Stored
from state_machines.procedures.record import NO_CALLER, Caller, Ending, Record, family
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


class _Going:
    """A family that is removed, the oldest first; how many of its first are deleted, and of its last ones told.

    ``named``: its pids, and those of gone relatives by which it was named.
    """

    def __init__(self, family: list[int]) -> None:
        self.family = family
        self.named = set(family)
        self.deleted = self.told = 0


class UnusableRecords:
    """Holds the records that a load could not use. ``why``: the cause of each, by pid; ``nonces``: of their callers.

    ``records``: those that can be read. ``removed``: families that are gone, of earlier terms, too.
    """

    def __init__(self, removed: Removed | None = None) -> None:
        self.why: dict[int, str] = {}
        self.nonces: dict[Nonce, int] = {}
        self.records: dict[int, Record] = {}
        self.removed = removed or Removed()
        self._callers: dict[int, Caller] = {}
        self._near: dict[int, set[int]] = {}
        self._going: dict[int, _Going] = {}

    def fill(self, stored: Stored, why: Mapping[int, str]) -> None:
        """Takes what a load found."""
        self.why = dict(why)
        self.records = {one.pid: one for one in family(stored.records) if one.pid in self.why}
        usable = {one.pid for one in stored.records} - self.why.keys()
        self._near = _neighbours(self.records.values(), usable)
        self._callers = {one.pid: one.caller for one in stored.damaged}
        self._callers |= {pid: one.caller for pid, one in self.records.items() if not one.parent}
        self.nonces = {(one.principal, one.nonce): pid for pid, one in self._callers.items() if one.nonce}

    def check(self, pid: int) -> None:
        """Raises :class:`Unusable` for a pid whose record cannot be used."""
        if pid in self.why:
            raise Unusable(pid, f"pid {pid}: {self.why[pid]}")

    def check_nonce(self, nonce: Nonce) -> None:
        """Raises :class:`Unusable` where a call with this nonce has a record that cannot be used."""
        if (pid := self.nonces.get(nonce)) is not None:
            raise Unusable(pid, f"this call has pid {pid} already, and that cannot go on: {self.why[pid]}")

    def family(self, pid: int) -> list[int]:
        """Returns the pids that go together, the oldest first: no part outlives what it belongs to.

        ``pid`` itself may be gone already, where a removal of the family did not come to its end. Empty: none is left.
        """
        if (going := self._going.get(pid)) is not None:
            return going.family
        found, left = {pid}, [pid]
        while left:
            new = self._near.get(left.pop(), set()) - found
            found |= new
            left += new
        return sorted(found & self.why.keys())

    def removal(self, pid: int, ending: Ending, now_ms: int) -> Removal:
        """Returns the next part of the removal of a record's family.

        The oldest go first: where the daemon dies meanwhile, the others have no parent, and do not go on. Their ends
        are told the other way round, because a part ends before what it belongs to.
        """
        going = self._begun(pid)
        family = going.family
        deletes = family[going.deleted : going.deleted + TOGETHER]
        going.deleted += len(deletes)
        if going.deleted < len(family):
            return Removal(tuple(deletes), (), is_last=False)
        untold = len(family) - going.told
        told = family[max(0, untold - TOGETHER) : untold][::-1]
        going.told += len(told)
        ends = tuple(self._ended(one, replace(ending, at_ms=now_ms), now_ms) for one in told)
        return Removal(tuple(deletes), ends, is_last=going.told == len(family))

    def forget(self, pids: Iterable[int]) -> None:
        """Forgets records whose removal is durable."""
        for pid in pids:
            caller = self._callers.pop(pid, NO_CALLER)
            if self.nonces.get((caller.principal, caller.nonce)) == pid:
                del self.nonces[caller.principal, caller.nonce]
            self.why.pop(pid, None)
            self.records.pop(pid, None)

    def over(self, pid: int) -> None:
        """Notes that a record's whole family is gone."""
        if (going := self._going.get(pid)) is not None:
            self.removed.note(going.named, going.family)
            for one in going.named:
                del self._going[one]
                self._near.pop(one, None)

    def _begun(self, pid: int) -> _Going:
        """Returns how far the removal of a record's family is."""
        if (known := self._going.get(pid)) is not None:
            return known
        family = self.family(pid)
        going = self._going.get(family[0]) or _Going(family)
        going.named.add(pid)
        self._going.update(dict.fromkeys(going.named, going))
        return going

    def _ended(self, pid: int, ending: Ending, now_ms: int) -> Transition:
        before = self.records.get(pid) or Record(pid, UNKNOWN, State.RUNNABLE, 0, now_ms, now_ms)
        state = State.ROLLEDBACK if before.state in (State.FAILED, State.ROLLEDBACK) else State.SUCCESS
        return Transition(
            before,
            replace(before, state=state, bypassed=True, ending=ending, updated_ms=now_ms, error=self.why[pid]),
        )


def _neighbours(records: Iterable[Record], usable: Container[int]) -> dict[int, set[int]]:
    """Returns parents and children by pid, as far as they cannot be used either, or are gone: they go together."""
    near: dict[int, set[int]] = defaultdict(set)
    for record in records:
        for other in (record.parent, *record.ancestors, *record.born):
            if other and other not in usable and other != record.pid:
                near[record.pid].add(other)
                near[other].add(record.pid)
    return dict(near)
