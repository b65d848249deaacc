"""Gives procedures out in turn, executes their steps, and writes what follows in one transaction a turn.

A change is decided, staged, written and entered, in this order; a store that fails ends it all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic

from controller.procedures.intake import Intake
from controller.procedures.kinds import Env
from controller.procedures.requests import ProcedureRefused
from controller.procedures.running import Running
from controller.procedures.stepping import Stepping, Steps
from controller.procedures.writes import RECORDS_MAX, Decided, Group, Pids
from metadata_store.records.port import Fenced, RecordStore, StoreFailed, Unstorable
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Entry

TURN_S_MAX: Final = 0.05
"""Time after which a turn begins no further step: other events of the queue wait for its end."""
NO_PIDS: Final[frozenset[int]] = frozenset()


class Turns(Generic[Env]):
    """Carries out what waits, one turn after the other. ``blameless``: errors that no procedure is to blame for."""

    def __init__(
        self,
        store: RecordStore,
        running: Running[Env],
        intake: Intake[Env],
        steps: Steps[Env],
        stepping: Stepping[Env],
        pids: Pids,
        wanted: Callable[[], None],
        blameless: tuple[type[Exception], ...],
    ) -> None:
        self._store = store
        self._running = running
        self._procedures = running.procedures
        self._parking = running.parking
        self._intake = intake
        self._steps = steps
        self._stepping = stepping
        self._pids = pids
        self._wanted = wanted
        self._blameless = blameless
        self._step_of = 0
        """The procedure whose step runs, or is written with its effect; 0: none."""
        self._writing: frozenset[int] | set[int] = NO_PIDS
        """Procedures whose steps are being written and entered."""
        self._sent: Group | Change | None = None
        """Changes that the store was sent; they stay where it gave no response."""

    @property
    def unanswered(self) -> list[int]:
        """Returns the procedures whose write has no response."""
        sent = self._sent
        return sorted({one.pid for one in sent.puts}.union(sent.deletes)) if sent is not None else []

    async def turn(self) -> None:
        """Runs one turn; see :meth:`controller.procedures.engine.Engine.turn`."""
        group = Group(self._store)
        try:
            await self._turn(group)
        except BaseException as error:
            self._blame(error)
            if isinstance(error, Fenced | Unstorable):  # nothing of the write was applied
                self._sent = None
            stopped = ProcedureRefused(f"the daemon stops, or its term ended ({error}): try again")
            group.refuse(error if isinstance(error, ProcedureRefused | StoreFailed) else stopped)
            raise

    async def _turn(self, group: Group) -> None:
        running = self._running
        self._intake.take_early(self._parking.take_early())
        running.resume(running.waiting.due())
        roots = running.results.take_due(running.age_ms(), RECORDS_MAX)
        if roots:
            self._stage(group, Decided(self._procedures.evicted(roots)))
        await self._carry_out(group)
        ends_s = time.monotonic() + TURN_S_MAX
        while not group.is_full and time.monotonic() < ends_s:
            entry = running.scheduler.poll()
            if entry is None:
                break
            await self._run(entry, group)
        await self._write(group)
        running.arm()
        if self._intake or running.scheduler.is_busy:
            self._wanted()

    async def _carry_out(self, group: Group) -> None:
        count = len(self._intake)
        await self._pids.reserve(count)
        for _ in range(count):  # others may have come while pids were reserved: they wait for the next turn
            if group.is_full:
                break
            pending = self._intake.take()
            try:
                decided = self._intake.decide(pending)
            except Exception as error:  # also a fault: it ends the request that has it, and nothing else
                pending.refuse(error)
                continue
            try:
                if not group.has_room(decided):
                    await self._write(group)
            except Exception as error:
                pending.refuse(error)
                raise
            self._stage(group, decided)

    async def _run(self, entry: Entry, group: Group) -> None:
        """Runs a step, and adds what follows to the group; a step with an effect is written by itself."""
        is_suspect = entry.pid in self._parking.suspects
        if is_suspect:  # what operators want, and what others did, is durable before the term can end by it
            await self._write(group)
        self._step_of = entry.pid
        found = await self._stepping.run(entry)
        if isinstance(found, Decided):
            if not group.has_room(found):
                self._step_of = 0
                await self._write(group)
                self._step_of = entry.pid
            self._stage(group, found)
            self._step_of = 0
            if is_suspect:
                await self._write(group)
                self._settle(entry.pid, found)
            return
        self._step_of = 0
        await self._write(group)
        self._step_of = entry.pid
        self._sent = found.decided.change
        why_not = await self._steps.write(found.write, found.decided.change, entry.pid)
        if why_not is None:
            self._running.enter((found.decided,))
            self._parking.went_on(entry.pid)
        else:
            self._stage(group, found.otherwise(why_not))
        self._step_of, self._sent = 0, None

    def _settle(self, pid: int, decided: Decided) -> None:
        """Acquits a suspect once a change of it is durable and entered."""
        if decided.change.puts or decided.change.deletes:
            self._parking.went_on(pid)

    def _blame(self, error: BaseException) -> None:
        """Notes which procedures have ended the term, unless the store itself or the connection has."""
        is_fault = isinstance(error, Exception) and not isinstance(error, self._blameless)
        if isinstance(error, Exception) and (is_fault or isinstance(error, Unstorable)):
            self._parking.blame({self._step_of} if self._step_of else self._writing, error)

    def _stage(self, group: Group, decided: Decided) -> None:
        self._procedures.stage(decided.change)
        group.add(decided)

    async def _write(self, group: Group) -> None:
        """Writes a group and enters it; the group is empty afterwards."""
        self._writing = group.pids
        puts, deletes = group.puts, group.deletes
        if puts or deletes or group.rows:
            self._sent = group
            await self._store.write(puts, deletes, group.rows)
        self._running.enter(group.decided)
        group.clear()
        self._writing, self._sent = NO_PIDS, None
