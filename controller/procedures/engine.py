"""The engine: what callers ask of procedures, and how their records are read; :mod:`controller.procedures.turns` runs.

One consumer calls :meth:`Engine.turn`, the event queue of a term for instance; all else only enqueues and calls
``wanted``. Memory follows the store: a change is entered, and a caller gets its response, once the change is durable.
A store that fails ends the engine: another one loads the records and goes on (HBase ``ProcedureExecutor``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from controller.procedures.intake import Intake
from controller.procedures.kinds import Env, Kind, Kinds
from controller.procedures.parking import Parking
from controller.procedures.requests import Abort, Bypass, Command, ProcedureRefused, Remove, Request, Submit
from controller.procedures.running import Entered, LockItem, Running
from controller.procedures.stepping import Stepping, Steps
from controller.procedures.turns import Turns
from controller.procedures.writes import Decided, Pids, Scale
from metadata_store.records.port import RecordStore, StoreFailed
from state_machines.portions import Portions
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import NO_ENDING, Caller, Ending, Record, Unusable
from state_machines.procedures.recovery import judging

T = TypeVar("T")

DATA_BYTES_MAX: Final = 256 * 1024
"""Bytes of the message of a submitted procedure."""
TURN_MS_MAX: Final = 40
"""Time for which a load keeps the loop, beside that of one portion more: pauses cost what others do meanwhile."""


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
        self._store = store
        self._pids = Pids(store)
        self._wanted = wanted
        self._kinds = Kinds(kinds)
        self._running = running = Running(self._kinds, now_ms, age_ms or now_ms, wanted, entered, parking)
        self._procedures = running.procedures
        self._results = running.results
        self._parking = running.parking
        self._steps = Steps(env, self._kinds, interruptions, ends)
        scale = Scale(store, running.procedures.find)
        self._intake = Intake(running, self._pids, scale)
        stepping = Stepping(running, self._steps, self._pids, scale)
        blameless = (*interruptions, *ends, StoreFailed, ProcedureRefused)
        self._turns = Turns(
            store, running, self._intake, self._steps, stepping, self._pids, wanted, blameless=blameless
        )
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
        return self._turns.unanswered

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

        Raises :class:`ProcedureRefused`.
        """
        if len(data) > DATA_BYTES_MAX:
            raise ProcedureRefused(
                f"{kind}: its message has {len(data)} bytes, at most {DATA_BYTES_MAX} are stored: split it"
            )
        return await self._request(Submit(kind, data, caller, expires_ms))

    def submit_soon(self, kind: str, data: bytes, caller: Caller) -> None:
        """Starts a procedure of the daemon's own in a later turn; the same nonce again starts none.

        Raises :class:`ProcedureRefused` where too many requests wait, and the error of an engine that is closed.
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
        """Removes a record that cannot be used, with its family; returns their pids.

        Raises :class:`ProcedureRefused`.
        """
        await self._request(Remove(pid, ending))
        return self.removed(pid)

    def removed(self, pid: int) -> list[int]:
        """Returns the pids of a family that was removed."""
        return self._intake.unusable.removed.family(pid) or [pid]

    async def command(self, pid: int, command: bytes, ending: Ending = NO_ENDING) -> bool:
        """Has the kind of a procedure change its message; False where it failed or ended.

        Raises :class:`ProcedureRefused`.
        """
        return bool(await self._request(Command(pid, command, ending)))

    async def result(self, pid: int) -> Record:
        """Waits for the end of a procedure that a caller submitted; returns its record.

        Raises :class:`ProcedureRefused`.
        """
        record = self._intake.known(pid)
        if record.parent:
            raise ProcedureRefused(f"pid {pid} is a part of pid {record.root}: wait for that one")
        if self._closed is not None:
            raise self._closed
        if not record.state.is_final:
            record = await self._results.wait(pid)
        self._results.fetched(pid, self._running.age_ms())
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

        Nobody is given the engine before that ends: other work of the loop comes between its portions.
        ``above``: a number that was seen; all numbers from now on are higher, which is durable.
        """
        stored = await self._store.load()
        unreadable = {one.pid: Unusable(one.fault, one.why) for one in stored.damaged}
        found = await self._with_pauses(judging(stored.records, self._kinds.unfit, unreadable))
        conflicts = await self._with_pauses(self._running.restore(found))
        self._intake.unusable.fill(stored, {pid: one.why for pid, one in found.unusable.items()} | conflicts)
        self._pids.begin_after(stored.last_pid)
        await self._pids.go_above(above)
        if self._parking.parked or self._parking.suspects:
            self._parking.keep({record.pid for record in self.live()})
        self._running.arm()
        self._wanted()

    async def turn(self) -> None:
        """Carries out requests and steps, up to a bound, and writes what follows in one transaction.

        Raises ``StoreFailed`` and the errors of ``ends``: the engine is of no use any more.
        """
        await self._turns.turn()

    @property
    def last_number(self) -> int:
        """Returns the highest number that is reserved for procedures: it is above all of the terms before."""
        return self._pids.last

    def is_given(self, number: int) -> bool:
        """Checks whether a number was given out: no procedure and no region gets it later."""
        return self._pids.is_given(number)

    async def number(self, above: int = 0) -> int:
        """Returns a number for a step that runs: higher than ``above`` and all pids before, and never given again."""
        await self._pids.go_above(above)
        return await self._pids.take()

    async def reserve(self, count: int) -> int:
        """Reserves ``count`` consecutive numbers durably, and returns the first; none of them is given again."""
        return await self._pids.row(count)

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
            self._running.arm()

    async def _with_pauses(self, work: Portions[T]) -> T:
        """Does work that comes in portions, and leaves the loop to others after ``TURN_MS_MAX``; returns its result."""
        began_ms = self._running.age_ms()
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            if self._running.age_ms() - began_ms >= TURN_MS_MAX:
                await asyncio.sleep(0)
                began_ms = self._running.age_ms()

    async def _request(self, request: Request) -> int:
        if self._closed is not None:
            raise self._closed
        response = self._intake.add(request)
        self._wanted()
        return await response


def _ignored(response: asyncio.Future[int]) -> None:
    """Takes notice of a refusal: the caller of :meth:`Engine.submit_soon` looks at the procedure itself."""
    if not response.cancelled():
        response.exception()
