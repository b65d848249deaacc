"""Requests of callers, from their arrival to the decision on each: they wait in a bounded queue for the next turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final, Generic

from controller.procedures.kinds import Env, misordered
from controller.procedures.parking import UnusableRecords
from controller.procedures.requests import (
    Abort,
    Bypass,
    Command,
    Pending,
    ProcedureRefused,
    Remove,
    Request,
    Submit,
    Unknown,
)
from controller.procedures.running import Running
from controller.procedures.writes import Decided, Pids, Scale
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record

REQUESTS_MAX: Final = 1_000
"""Requests that wait for a turn; further ones are refused."""


class Intake(Generic[Env]):
    """Holds requests until a turn decides on them."""

    def __init__(self, running: Running[Env], pids: Pids, scale: Scale) -> None:
        self.unusable = UnusableRecords(running.parking.removed)
        self._running = running
        self._kinds = running.kinds
        self._procedures = running.procedures
        self._pids = pids
        self._scale = scale
        self._waiting: deque[Pending] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> asyncio.Future[int]:
        """Adds a request; returns the future of its response. Raises :class:`ProcedureRefused` where too many wait."""
        if len(self._waiting) >= REQUESTS_MAX:
            raise ProcedureRefused(f"{len(self._waiting)} requests wait: try again")
        pending = Pending(request, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        return pending.response

    def take_early(self, requests: Iterable[Pending]) -> None:
        """Adds requests that came before this term: they are the first ones."""
        self._waiting.extendleft(reversed(list(requests)))

    def take(self) -> Pending:
        """Removes and returns the first request."""
        return self._waiting.popleft()

    def refuse_all(self, why: Exception) -> None:
        """Refuses all requests that wait."""
        while self._waiting:
            self._waiting.popleft().refuse(why)

    def decide(self, pending: Pending) -> Decided:
        """Decides on a request; returns what to write, with the response. Raises :class:`ProcedureRefused`."""
        if isinstance(pending.request, Remove):
            return self._removed(pending, pending.request)
        return self._changed(pending, pending.request)

    def _changed(self, pending: Pending, request: Submit | Abort | Bypass | Command) -> Decided:
        now_ms = self._running.now_ms()
        if isinstance(request, Submit):
            change, pid = self._submitted(request, now_ms)
            weight = self._weighed(change, request.kind)
            for record in change.puts:  # a refused one leaves its nonce free
                self._running.results.begun(record)
            return Decided(change, pending=pending, pid=pid, weight=weight)
        pid = self.known(request.pid).pid
        found = self._requested(pid, request, now_ms)
        if found is None:
            return Decided(Change(), pending=pending)
        weight = self._weighed(found, f"pid {pid}")
        released = None if isinstance(request, Bypass) else self._released
        return Decided(found, pending=pending, pid=pid, entered=released and partial(released, pid), weight=weight)

    def _released(self, pid: int, _: Change) -> None:
        """Lets the parked procedures of a family run again, once the request that ends or changes one is durable."""
        root = self._root_of(pid)
        family = [one for one in self._running.parking.parked if one == pid or self._root_of(one) == root]
        self._running.parking.release(family)
        self._running.wake(family)

    def _requested(self, pid: int, request: Abort | Bypass | Command, now_ms: int) -> Change | None:
        if isinstance(request, Abort):
            return self._procedures.aborted(pid, now_ms, request.ending)
        if isinstance(request, Bypass):
            return self._procedures.bypassed(pid, now_ms, request.ending)
        record = self._procedures.latest(pid)
        kind = self._kinds[record.kind]
        data, undoing = kind.changed(record, request.command), kind.changes_while_undone
        return self._procedures.commanded(pid, data, now_ms, request.ending, undoing=undoing)

    def _weighed(self, change: Change, what: str) -> int:
        """Returns the weight of records; raises :class:`ProcedureRefused` where the store cannot take them."""
        weight, why = self._scale.problem(change)
        if why is not None:
            raise ProcedureRefused(f"{what}: {why}: send a smaller request")
        return weight

    def _root_of(self, pid: int) -> int:
        record = self._procedures.records.get(pid)
        return 0 if record is None else record.root

    def known(self, pid: int) -> Record:
        """Returns the durable record of a procedure; raises :class:`ProcedureRefused` where none can be used."""
        record = self._procedures.records.get(pid)
        if record is None:
            self.unusable.check(pid)
            raise Unknown(pid)
        return record

    def _removed(self, pending: Pending, request: Remove) -> Decided:
        """Removes a record that cannot be used, and its family; the rest of a large one goes in later turns."""
        if request.pid < 1:
            raise ProcedureRefused("an entry whose name is no pid belongs to another client: delete its znode by hand")
        family = self.unusable.family(request.pid)
        if not family and self.unusable.removed.family(request.pid):
            return Decided(Change(), pending=pending, pid=request.pid)
        if not family:
            state = self.known(request.pid).state.name
            raise ProcedureRefused(f"pid {request.pid}: its record can be used ({state}): abort or bypass it, or wait")
        deletes, ends, is_last = self.unusable.removal(request.pid, request.ending, self._running.now_ms())
        gone = [after.pid for _, after in ends]

        def entered(_: Change) -> None:
            self.unusable.forget(gone)
            if is_last:
                self.unusable.over(request.pid)

        if not is_last:
            self._waiting.append(pending)
            return Decided(Change(), entered=entered, removes=deletes, ends=ends)
        return Decided(Change(), pending=pending, pid=request.pid, entered=entered, removes=deletes, ends=ends)

    def _submitted(self, request: Submit, now_ms: int) -> tuple[Change, int]:
        earlier = self._running.results.pid_of(request.caller)
        if earlier is not None:
            return Change(), earlier
        self.unusable.check_nonce((request.caller.principal, request.caller.nonce))
        record = self._pids.named(request.record(now_ms))
        demand = self._kinds.demand(record)
        why = demand if isinstance(demand, str) else misordered(record.pid, demand, self._running.scheduler, ())
        if why:
            raise ProcedureRefused(why)
        admit = self._kinds[record.kind].admit
        if admit is not None and (why := admit(record, self._procedures.live_of(record.kind))) is not None:
            raise ProcedureRefused(why)
        return self._procedures.submitted(record), record.pid
