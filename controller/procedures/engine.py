"""The engine: gives procedures out in turn, executes their steps, and writes what follows in one transaction a turn.

One consumer calls :meth:`Engine.turn`, the event queue of a term for instance; all else only enqueues and calls
``wanted``. Memory follows the store: a change is entered, and a caller gets its response, once the change is durable.
A store that fails ends the engine: another one loads the records and goes on (HBase ``ProcedureExecutor``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic

from controller.procedures.group import RECORDS_MAX, Decided, Group
from controller.procedures.intake import Intake
from controller.procedures.kinds import Env, Kind, Kinds
from controller.procedures.parking import Parking
from controller.procedures.pids import Pids
from controller.procedures.requests import Abort, Bypass, Command, Refused, Remove, Request, Submit
from controller.procedures.running import Entered, LockItem, Running
from controller.procedures.stepping import Stepping
from controller.procedures.steps import Steps
from controller.procedures.weighing import Scale
from metadata_store.records.port import Fenced, RecordStore, StoreFailed, Unstorable
from state_machines.procedures.entity_queue import Entry
from state_machines.procedures.faults import Unusable
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import NO_ENDING, Caller, Ending, Record
from state_machines.procedures.recovery import load

TURN_S_MAX: Final = 0.05
"""Time after which a turn begins no further step: other events of the queue wait for its end."""
DATA_BYTES_MAX: Final = 256 * 1024
"""Bytes of the message of a submitted procedure."""


NO_PIDS: Final[frozenset[int]] = frozenset()


class Engine(Generic[Env]):
    """Runs the procedures of one domain until its store fails or :meth:`close` is called.

    ``wanted`` is called where a turn has work to do. ``now_ms`` is the wall clock; results age by ``age_ms``, a clock
    that is never set (default: the wall clock). Errors of ``interruptions`` (a lost connection) repeat a step, those of
    ``ends`` pass through :meth:`turn`. ``entered`` is called with durable changes.
    ``parking``: what the daemon remembers of earlier terms.
    """

    def __init__(
        self,
        env: Env,
        kinds: Iterable[Kind[Env]],
        store: RecordStore,
        *,
        wanted: Callable[[], None],
        now_ms: Callable[[], int],
        age_ms: Callable[[], int] | None = None,
        interruptions: tuple[type[Exception], ...] = (),
        ends: tuple[type[Exception], ...] = (),
        entered: Entered | None = None,
        parking: Parking | None = None,
    ) -> None:
        self._kinds = Kinds(kinds)
        self._steps = Steps(env, self._kinds, interruptions, ends)
        self._blameless = (*interruptions, *ends, StoreFailed, Refused)
        self._store = store
        self._pids = Pids(store)
        self._wanted = wanted
        self._now_ms = now_ms
        self._age_ms = age_ms or now_ms
        self._parking = parking or Parking()
        self._running = Running(self._kinds, now_ms, self._age_ms, wanted, entered, self._parking)
        self._procedures = self._running.procedures
        self._results = self._running.results
        scale = Scale(store)
        self._intake = Intake(self._kinds, self._running, self._pids, now_ms, scale, self._parking)
        self._stepping = Stepping(self._kinds, self._steps, self._running, self._pids, now_ms, scale, self._parking)
        self._step_of = 0
        """The procedure whose step runs, or is written with its effect; 0: none."""
        self._writing: frozenset[int] | set[int] = NO_PIDS
        """Procedures whose steps are being written and entered."""
        self._sent: Group | Change | None = None
        """Changes that the store was sent; they stay where it gave no response."""
        self._closed: Exception | None = None

    # -- for callers

    @property
    def records(self) -> Mapping[int, Record]:
        """Returns the durable records of live procedures and kept results, by pid."""
        return self._procedures.records

    def live(self) -> Iterator[Record]:
        """Yields the records of procedures that have not ended, as the next write finds them."""
        for pid in self._procedures.records:
            record = self._procedures.latest(pid)
            if not record.state.is_final:
                yield record

    def ended(self) -> Iterator[Record]:
        """Yields the kept results of procedures that have ended."""
        return (record for record in self._procedures.records.values() if record.state.is_final)

    @property
    def requests(self) -> int:
        """Returns how many requests wait to be decided."""
        return len(self._intake)

    @property
    def unanswered(self) -> list[int]:
        """Returns the procedures whose write has no response: once the term has ended, it may be stored or not."""
        sent = self._sent
        return sorted({one.pid for one in sent.puts}.union(sent.deletes)) if sent is not None else []

    @property
    def unusable(self) -> Mapping[int, str]:
        """Returns the records that cannot be run, by pid, and why."""
        return self._intake.unusable.why

    @property
    def unusable_records(self) -> Mapping[int, Record]:
        """Returns those of them that can be read, by pid."""
        return self._intake.unusable.records

    @property
    def parked(self) -> Mapping[int, str]:
        """Returns the live procedures that are not run, by pid, and why: their steps ended term after term."""
        return self._parking.parked

    def park(self, pid: int, error: Exception) -> None:
        """Parks a procedure that the domain cannot take over from a term before."""
        self._parking.park(pid, f"it cannot be taken over: {type(error).__name__}: {error}")

    def pid_of(self, caller: Caller) -> int | None:
        """Returns the pid that this caller's nonce has started."""
        return self._results.pid_of(caller)

    def locks(self) -> list[LockItem]:
        """Returns the locks that procedures hold or wait for, by pid."""
        return self._running.locks()

    async def submit(self, kind: str, data: bytes, caller: Caller, *, expires_ms: int = 0) -> int:
        """Starts a procedure; returns its pid once that is durable, or the one of the same caller's same nonce.

        Raises :class:`Refused`.
        """
        if len(data) > DATA_BYTES_MAX:
            raise Refused(f"{kind}: its message has {len(data)} bytes, at most {DATA_BYTES_MAX} are stored: split it")
        return await self._request(Submit(kind, data, caller, expires_ms))

    def submit_soon(self, kind: str, data: bytes, caller: Caller) -> None:
        """Starts a procedure of the daemon's own in a later turn; the same nonce again starts none.

        Raises :class:`Refused` where too many requests wait, and the error of an engine that is closed.
        """
        if self._closed is not None:
            raise self._closed
        self._intake.add(Submit(kind, data, caller, 0)).add_done_callback(_ignored)
        self._wanted()

    async def abort(self, pid: int, ending: Ending = NO_ENDING) -> bool:
        """Aborts the family of a procedure; False where it has ended, failed, or passed its point of no return."""
        return bool(await self._request(Abort(pid, ending)))

    async def bypass(self, pid: int, ending: Ending = NO_ENDING) -> bool:
        """Ends a procedure and its ancestors as they are; False where it has ended or has children."""
        return bool(await self._request(Bypass(pid, ending)))

    async def remove(self, pid: int, ending: Ending = NO_ENDING) -> list[int]:
        """Removes a record that cannot be used, with its family; returns their pids. Raises :class:`Refused`."""
        await self._request(Remove(pid, ending))
        return self.removed(pid)

    def removed(self, pid: int) -> list[int]:
        """Returns the pids of a family that was removed."""
        return self._intake.unusable.removed.family(pid) or [pid]

    async def command(self, pid: int, command: bytes, ending: Ending = NO_ENDING) -> bool:
        """Has the kind of a procedure change its message; False where it failed or ended. Raises :class:`Refused`."""
        return bool(await self._request(Command(pid, command, ending)))

    async def result(self, pid: int) -> Record:
        """Waits for the end of a procedure that a caller submitted; returns its record. Raises :class:`Refused`."""
        record = self._intake.known(pid)
        if record.parent:
            raise Refused(f"pid {pid} is a part of pid {record.root}: wait for that one")
        if self._closed is not None:
            raise self._closed
        if not record.state.is_final:
            record = await self._results.wait(pid)
        self._results.fetched(pid, self._age_ms())
        return record

    def wake(self, pid: int) -> None:
        """Runs a procedure that waits; one that is about to wait runs again, too."""
        self.wake_all((pid,))

    def wake_all(self, pids: Iterable[int]) -> None:
        """Runs procedures that wait, in this order; those that are about to wait run again, too."""
        if self._running.wake(pids):
            self._wanted()

    def close(self, why: Exception) -> None:
        """Refuses waiting callers, and those that come from now on."""
        self._closed = why
        self._running.waiting.close()
        self._results.close(why)
        self._intake.refuse_all(why)

    # -- for the consumer

    async def load(self, above: int = 0) -> None:
        """Reads the store, restores locks, and queues what goes on: the first call. Raises ``StoreFailed``.

        ``above``: a number that was seen; all numbers from now on are higher, which is durable.
        """
        stored = await self._store.load()
        unreadable = {one.pid: Unusable(one.fault, one.why) for one in stored.damaged}
        found = load(stored.records, self._kinds.unfit, unreadable)
        conflicts = self._running.restore(found)
        self._intake.unusable.fill(stored, {pid: one.why for pid, one in found.unusable.items()} | conflicts)
        self._pids.begin_after(stored.last_pid)
        await self._pids.go_above(above)
        self._parking.keep({record.pid for record in self.live()})
        self._running.waiting.arm(self._evicts_ms())
        self._wanted()

    async def turn(self) -> None:
        """Carries out requests and steps, up to a bound, and writes what follows in one transaction.

        Raises ``StoreFailed`` and the errors of ``ends``: the engine is of no use any more.
        """
        group = Group(self._store)
        try:
            await self._turn(group)
        except BaseException as error:
            self._blame(error)
            if isinstance(error, Fenced | Unstorable):  # nothing of the write was applied
                self._sent = None
            stopped = Refused(f"the daemon stops, or its term ended ({error}): try again")
            group.refuse(error if isinstance(error, Refused | StoreFailed) else stopped)
            raise

    async def _turn(self, group: Group) -> None:
        running = self._running
        self._intake.take_early(self._parking.take_early())
        running.resume(running.waiting.due())
        roots = self._results.take_due(self._age_ms(), RECORDS_MAX)
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
        running.waiting.arm(self._evicts_ms())
        if self._intake or running.scheduler.is_busy:
            self._wanted()

    @property
    def last_number(self) -> int:
        """Returns the highest number that was ever reserved."""
        return self._pids.last

    async def number(self, above: int = 0) -> int:
        """Returns a number for a step that runs: higher than ``above`` and all pids before, and never given again."""
        await self._pids.go_above(above)
        return await self._pids.take()

    # -- calls that are recorded together with their effect, by the consumer

    async def named(self, record: Record) -> Record:
        """Returns the record of a call with a pid that was never given before. Raises ``StoreFailed``."""
        await self._pids.reserve(1)
        return self._pids.named(record)

    def recorded(self, record: Record) -> None:
        """Enters the record of a call, which is durable; results that are too many are evicted together."""
        self._results.begun(record)
        self._running.enter((Decided(Change(puts=(record,))),))
        if self._results.overflow:
            self._wanted()
        else:
            self._running.waiting.arm(self._evicts_ms())

    # -- how a turn works

    def _evicts_ms(self) -> int:
        """Returns the wall clock's time of the next eviction as of now, 0 without any."""
        next_ms = self._results.next_ms
        return next_ms and self._now_ms() + max(0, next_ms - self._age_ms())

    async def _request(self, request: Request) -> int:
        if self._closed is not None:
            raise self._closed
        response = self._intake.add(request)
        self._wanted()
        return await response

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
        self._running.enter(group.take())
        self._writing, self._sent = NO_PIDS, None


def _ignored(response: asyncio.Future[int]) -> None:
    """Takes notice of a refusal: the caller of :meth:`Engine.submit_soon` looks at the procedure itself."""
    if not response.cancelled():
        response.exception()
