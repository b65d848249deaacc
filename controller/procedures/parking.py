"""Holds procedures that are not run: those that end terms are parked, unusable records are left alone.

One daemon remembers the former from term to term, with requests that came before a term. Of the latter it holds why,
what their callers' nonces are, and what goes where an operator removes one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from controller.procedures.requests import Nonce, Pending, ProcedureRefused, Request, Unusable
from metadata_store.records.port import Stored
from state_machines.procedures.record import NO_CALLER, Caller, Ending, Record, family
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition

log = logging.getLogger("regent.procedures")

TERMS_MAX: Final = 3
"""Terms in a row that end by a step of one procedure; then it is parked."""
WHY_CHARS_MAX: Final = 500
"""Characters of the cause that is shown: its begin."""
EARLY_MAX: Final = 100
"""Requests that wait for the next term."""
EARLY_S: Final = 10.0
"""Time that such a request waits for a term."""
REMOVED_MAX: Final = 10_000
"""Pids of removed records that are remembered, beside those of the latest family; the oldest go first."""
TOGETHER: Final = 100
"""Records of a family that one transaction removes, and ends that are reported together: a family may be large."""
UNKNOWN: Final = "unknown"
"""Kind of a record that cannot be read."""


# -- parked procedures


class Parking:
    """Holds parked procedures with the cause, suspects, and early requests, from term to term.

    A step that the store, a codec or the model refuses ends the term, and the next term runs the same step. A procedure
    whose step did that some terms in a row is parked. It is not run, and keeps its locks; all others go on. A restart
    of the daemon tries it again; so does an abort, which undoes it instead. A bypass ends it as it is.

    ``suspects``: procedures that may have ended a term, and the number of terms that each ended for certain. Each is
    written by itself, so that the culprit is found.
    """

    def __init__(self) -> None:
        self.parked: dict[int, str] = {}
        self.suspects: dict[int, int] = {}
        self.removed = Removed()
        self._early: list[Pending] = []

    def blame(self, pids: Collection[int], error: Exception) -> None:
        """Notes that a term ended while these procedures were under way together."""
        for pid in pids:
            count = self.suspects.get(pid, 0) + (len(pids) == 1)
            self.suspects[pid] = count
            if count >= TERMS_MAX:
                self.park(pid, f"its step ended {count} terms in a row: {type(error).__name__}: {error}")

    def park(self, pid: int, why: str) -> None:
        """Parks a procedure."""
        self.suspects.pop(pid, None)
        self.parked[pid] = why[:WHY_CHARS_MAX]
        log.error(
            "pid=%d is parked, all else goes on: %s; remove the cause and restart the daemon, which tries it again, "
            "or bypass it",
            pid,
            self.parked[pid],
        )

    def went_on(self, pid: int) -> None:
        """Notes that a suspect's change is durable and entered."""
        self.suspects.pop(pid, None)

    def ended(self, pid: int) -> None:
        """Forgets a procedure whose end is durable."""
        self.suspects.pop(pid, None)
        self.parked.pop(pid, None)

    def release(self, pids: Iterable[int]) -> None:
        """Lets parked procedures run again."""
        for pid in pids:
            self.parked.pop(pid, None)

    def keep(self, live: Container[int]) -> None:
        """Forgets procedures that have ended."""
        self.parked = {pid: why for pid, why in self.parked.items() if pid in live}
        self.suspects = {pid: count for pid, count in self.suspects.items() if pid in live}

    # -- requests before a term

    def ask(self, request: Request) -> asyncio.Future[int]:
        """Keeps a request for the next term, which carries it out before it runs a step; returns its response.

        Raises :class:`ProcedureRefused` where too many wait.
        """
        self._early = [one for one in self._early if not one.response.done()]
        if len(self._early) >= EARLY_MAX:
            raise ProcedureRefused(f"{len(self._early)} requests wait for the next term: try again")
        pending = Pending(request, asyncio.get_running_loop().create_future())
        self._early.append(pending)
        return pending.response

    async def asked(self, request: Request, why: Callable[[], str]) -> bool:
        """Waits until the next term has carried out a request; returns whether it did anything.

        Raises :class:`ProcedureRefused`, also where no term takes it in time, with the cause, ``why``, and its remedy.
        """
        response = self.ask(request)
        try:
            await asyncio.wait({response}, timeout=EARLY_S)
            if self._withdrawn(response):
                raise ProcedureRefused(f"no term of this daemon began in {EARLY_S:.0f} s ({why()}): try again")
            return bool(await response)
        finally:
            response.cancel()

    def _withdrawn(self, response: asyncio.Future[int]) -> bool:
        """Removes a request that no term has taken; False where one has, or it has its response."""
        left = [one for one in self._early if one.response is not response]
        waited = len(left) < len(self._early) and not response.done()
        self._early = left
        return waited

    def take_early(self) -> list[Pending]:
        """Removes and returns the requests whose callers still wait."""
        found, self._early = [one for one in self._early if not one.response.done()], []
        return found

    def refuse_early(self, why: str) -> None:
        """Refuses the requests that wait: the next term is not one of this daemon."""
        for one in self.take_early():
            one.refuse(ProcedureRefused(why))


# -- records that cannot be used


class Removed:
    """Holds families of records that are gone, by pid, so that a repeated request to remove one has the same success.

    Numbers are never given again, so it outlives a term.
    """

    def __init__(self) -> None:
        self._families: OrderedDict[int, list[int]] = OrderedDict()

    def note(self, named: Collection[int], family: list[int]) -> None:
        """Takes a family whose removal is durable. ``named``: the pids that stand for it."""
        while self._families and len(self._families) + len(named) > REMOVED_MAX:
            self._families.popitem(last=False)
        self._families.update(dict.fromkeys(named, family))

    def family(self, pid: int) -> list[int]:
        """Returns the pids that were removed together with this one; empty where it was not, or long ago."""
        return self._families.get(pid, [])


class Removal(NamedTuple):
    """A part of a removal. ``ends``: of records that are gone, to be reported; ``is_last``: nothing is left to do."""

    deletes: tuple[int, ...]
    ends: tuple[Transition, ...]
    is_last: bool


class _Going:
    """A family that is removed, the oldest first; how many of its first are deleted, and of its last ones reported.

    ``named``: its pids, and those of gone relatives by which it was named.
    """

    def __init__(self, family: list[int]) -> None:
        self.family = family
        self.named = set(family)
        self.deleted = self.reported = 0


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
        kept = family(stored.records) if self.why else []
        self.records = {one.pid: one for one in kept if one.pid in self.why}
        usable = {one.pid for one in kept} - self.why.keys()
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
        are reported the other way round, because a part ends before what it belongs to.
        """
        going = self._begun(pid)
        family = going.family
        deletes = family[going.deleted : going.deleted + TOGETHER]
        going.deleted += len(deletes)
        if going.deleted < len(family):
            return Removal(tuple(deletes), (), is_last=False)
        unreported = len(family) - going.reported
        reported = family[max(0, unreported - TOGETHER) : unreported][::-1]
        going.reported += len(reported)
        ends = tuple(self._ended(one, replace(ending, at_ms=now_ms), now_ms) for one in reported)
        return Removal(tuple(deletes), ends, is_last=going.reported == len(family))

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
