"""Requests of callers, from their arrival to the decision on each: they wait in a bounded queue for the next turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic

from controller.procedures.group import CHANGE_BYTES_MAX, Decided
from controller.procedures.kinds import Env, Kinds, misordered
from controller.procedures.pids import Pids
from controller.procedures.requests import Abort, Bypass, Command, Pending, Refused, Remove, Request, Submit
from controller.procedures.running import Running
from controller.procedures.unusable import UnusableRecords
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record

REQUESTS_MAX: Final = 1_000
"""Requests that wait for a turn; further ones are refused."""


class Intake(Generic[Env]):
    """Holds requests until a turn decides on them."""

    def __init__(self, kinds: Kinds[Env], running: Running[Env], pids: Pids, now_ms: Callable[[], int]) -> None:
        self.unusable = UnusableRecords()
        self._kinds = kinds
        self._running = running
        self._procedures = running.procedures
        self._results = running.results
        self._pids = pids
        self._now_ms = now_ms
        self._waiting: deque[Pending] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> asyncio.Future[int]:
        """Adds a request; returns the future of its response. Raises :class:`Refused` where too many wait."""
        if len(self._waiting) >= REQUESTS_MAX:
            raise Refused(f"{len(self._waiting)} requests wait: try again")
        pending = Pending(request, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        return pending.response

    def take(self) -> Pending:
        """Removes and returns the first request."""
        return self._waiting.popleft()

    def refuse_all(self, why: Exception) -> None:
        """Refuses all requests that wait."""
        while self._waiting:
            self._waiting.popleft().refuse(why)

    def decide(self, pending: Pending) -> Decided:
        """Decides on a request; returns what to write, with the response. Raises :class:`Refused`."""
        if isinstance(pending.request, Remove):
            return self._removed(pending, pending.request)
        change, pid = self._changed(pending.request)
        return Decided(change, pending=pending, pid=pid)

    def _changed(self, request: Submit | Abort | Bypass | Command) -> tuple[Change, int]:
        now_ms = self._now_ms()
        if isinstance(request, Submit):
            return self._submitted(request, now_ms)
        pid = self.known(request.pid).pid
        if isinstance(request, Abort):
            change = self._procedures.aborted(pid, now_ms, request.ending)
        elif isinstance(request, Bypass):
            change = self._procedures.bypassed(pid, now_ms, request.ending)
        else:
            kind, data = self._kinds[self.known(pid).kind], self._commanded(pid, request.command)
            undoing = kind.changes_while_undone
            change = self._procedures.commanded(pid, data, now_ms, request.ending, undoing=undoing)
        return (Change(), 0) if change is None else (change, pid)

    def known(self, pid: int) -> Record:
        """Returns the durable record of a procedure; raises :class:`Refused` where there is none that can be used."""
        record = self._procedures.records.get(pid)
        if record is None:
            self.unusable.check(pid)
            raise Refused(f"pid {pid}: it is not known: it never was, or its result was removed")
        return record

    def _removed(self, pending: Pending, request: Remove) -> Decided:
        """Removes a record that cannot be used, and its family, or a part of that."""
        if request.pid < 1:
            raise Refused("an entry whose name is no pid belongs to another client: delete its znode by hand")
        if request.pid not in self.unusable.why:
            state = self.known(request.pid).state.name
            raise Refused(f"pid {request.pid}: its record can be used ({state}): abort or bypass it, or wait")
        deletes, ends, is_last = self.unusable.removal(request.pid, request.ending, self._now_ms())
        gone = [after.pid for _, after in ends]
        response = request.pid if is_last else 0

        def entered(_: Change) -> None:
            self.unusable.forget(gone)

        return Decided(Change(), pending=pending, pid=response, entered=entered, removes=deletes, ends=ends)

    def _commanded(self, pid: int, command: bytes) -> bytes:
        """Returns the message of a procedure after an operator's command; raises :class:`Refused`."""
        record = self._procedures.latest(pid)
        data = self._kinds[record.kind].changed(record, command)
        size = len(data) + len(record.result)
        if size > CHANGE_BYTES_MAX:
            raise Refused(f"pid {pid} would have {size} bytes after that, at most {CHANGE_BYTES_MAX} are stored")
        return data

    def _submitted(self, request: Submit, now_ms: int) -> tuple[Change, int]:
        earlier = self._results.pid_of(request.caller)
        if earlier is not None:
            return Change(), earlier
        self.unusable.check_nonce((request.caller.principal, request.caller.nonce))
        record = self._pids.named(request.record(now_ms))
        demand = self._kinds.demand(record)
        why = demand if isinstance(demand, str) else misordered(record.pid, demand, self._running.scheduler, ())
        if why:
            raise Refused(why)
        self._results.begun(record)
        return self._procedures.submitted(record), record.pid
