"""Requests of callers, from their arrival to the decision on each: they wait in a bounded queue for the next turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Generic

from controller.procedures.group import CHANGE_BYTES_MAX
from controller.procedures.kinds import Env, Kinds, misordered
from controller.procedures.pids import Pids
from controller.procedures.requests import Abort, Bypass, Pending, Refused, Request, Submit
from controller.procedures.results import Nonce
from controller.procedures.running import Running
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record

REQUESTS_MAX: Final = 1_000
"""Requests that wait for a turn; further ones are refused."""


class Intake(Generic[Env]):
    """Holds requests until a turn decides on them.

    ``unusable``: records that cannot be run, by pid, and why; ``nonces``: those of their callers, as far as known.
    """

    def __init__(self, kinds: Kinds[Env], running: Running[Env], pids: Pids, now_ms: Callable[[], int]) -> None:
        self.unusable: Mapping[int, str] = {}
        self.nonces: Mapping[Nonce, int] = {}
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

    def decide(self, request: Request) -> tuple[Change, int]:
        """Decides on a request; returns what to write, and the response. Raises :class:`Refused`."""
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
            why = self.unusable.get(pid, "it is not known: it never was, or its result was removed")
            raise Refused(f"pid {pid}: {why}")
        return record

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
        unusable = self.nonces.get((request.caller.principal, request.caller.nonce))
        if unusable is not None:
            cause = self.unusable.get(unusable, "its record cannot be used")
            raise Refused(f"this call has pid {unusable} already, and that cannot go on: {cause}")
        record = self._pids.named(request.record(now_ms))
        demand = self._kinds.demand(record)
        why = demand if isinstance(demand, str) else misordered(record.pid, demand, self._running.scheduler, ())
        if why:
            raise Refused(why)
        self._results.begun(record)
        return self._procedures.submitted(record), record.pid
