"""The engine: gives procedures out in turn, executes their steps, and writes what follows in one transaction a turn.

One consumer calls :meth:`Engine.turn`, the event queue of a term for instance; all else only enqueues and calls
``wanted``. Memory follows the store: a change is entered, and a caller gets its response, once the change is durable.
A store that fails ends the engine: another one loads the records and goes on (HBase ``ProcedureExecutor``).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic

from msgspec.structs import replace

from controller.procedures.group import RECORDS_MAX, Decided, Group
from controller.procedures.kinds import Env, Kind, Kinds
from controller.procedures.requests import Abort, Bypass, Command, Pending, Refused, Request, Submit
from controller.procedures.running import LockItem, Running
from controller.procedures.steps import Steps
from metadata_store.records.port import RecordStore, StoreFailed
from state_machines.procedures.entity_queue import Entry
from state_machines.procedures.kernel import Act, Change
from state_machines.procedures.outcome import Children, Failed, Outcome, Retry, Wait, Yield
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.recovery import load

TURN_S_MAX: Final = 0.05
"""Time after which a turn begins no further step: other events of the queue wait for its end."""
DATA_BYTES_MAX: Final = 192 * 1024
"""Bytes of the message of a submitted procedure."""
CHANGE_BYTES_MAX: Final = 384 * 1024
"""Bytes of messages and results that one step writes. With a full group, and as base64, they fit into a request."""
PIDS: Final = 1_000
"""Pids that are reserved together."""
REQUESTS_MAX: Final = 1_000
"""Requests that wait for a turn; further ones are refused."""


class Engine(Generic[Env]):
    """Runs the procedures of one domain until its store fails or :meth:`close` is called.

    ``wanted`` is called where a turn has work to do; ``now_ms`` is the wall clock. Errors of ``interruptions`` (a lost
    connection) repeat a step, those of ``ends`` pass through :meth:`turn`.
    """

    def __init__(
        self,
        env: Env,
        kinds: Iterable[Kind[Env]],
        store: RecordStore,
        *,
        wanted: Callable[[], None],
        now_ms: Callable[[], int],
        interruptions: tuple[type[Exception], ...] = (),
        ends: tuple[type[Exception], ...] = (),
    ) -> None:
        self.unusable: Mapping[int, str] = {}
        self._kinds = Kinds(kinds)
        self._steps = Steps(env, self._kinds, interruptions, ends)
        self._store = store
        self._wanted = wanted
        self._now_ms = now_ms
        self._running = Running(self._kinds, now_ms, wanted)
        self._procedures = self._running.procedures
        self._results = self._running.results
        self._requests: deque[Pending] = deque()
        self._next_pid = self._pids_end = 0
        self._closed: Exception | None = None

    # -- for callers

    @property
    def records(self) -> Mapping[int, Record]:
        """Returns the durable records of live procedures and kept results, by pid."""
        return self._procedures.records

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

    async def abort(self, pid: int) -> bool:
        """Aborts the family of a procedure; False where it has ended, failed, or passed its point of no return."""
        return bool(await self._request(Abort(pid)))

    async def bypass(self, pid: int) -> bool:
        """Ends a procedure and its ancestors as they are; False where it has ended or has children."""
        return bool(await self._request(Bypass(pid)))

    async def command(self, pid: int, command: bytes) -> bool:
        """Has the kind of a procedure change its message; False where it failed or ended. Raises :class:`Refused`."""
        return bool(await self._request(Command(pid, command)))

    async def result(self, pid: int) -> Record:
        """Waits for the end of a procedure that a caller submitted; returns its record. Raises :class:`Refused`."""
        record = self._known(pid)
        if record.parent:
            raise Refused(f"pid {pid} is a part of pid {record.root}: wait for that one")
        if self._closed is not None:
            raise self._closed
        if not record.state.is_final:
            record = await self._results.wait(pid)
        self._results.fetched(pid, self._now_ms())
        return record

    def wake(self, pid: int) -> None:
        """Runs a procedure that waits; one that is about to wait runs again, too."""
        if self._running.wake(pid):
            self._wanted()

    def close(self, why: Exception) -> None:
        """Refuses waiting callers, and those that come from now on."""
        self._closed = why
        self._running.waiting.close()
        self._results.close(why)
        while self._requests:
            self._requests.popleft().refuse(why)

    # -- for the consumer

    async def load(self) -> None:
        """Reads the store, restores locks, and queues what goes on: the first call. Raises ``StoreFailed``."""
        stored = await self._store.load()
        found = load(stored.records, self._kinds.unfit)
        conflicts = self._running.restore(found)
        self.unusable = {**found.unusable, **conflicts, **{one.pid: one.why for one in stored.damaged}}
        self._next_pid = self._pids_end = stored.last_pid + 1
        self._running.waiting.arm(self._results.next_ms)
        self._wanted()

    async def turn(self) -> None:
        """Carries out requests and steps, up to a bound, and writes what follows in one transaction.

        Raises ``StoreFailed`` and the errors of ``ends``: the engine is of no use any more.
        """
        group = Group()
        try:
            await self._turn(group)
        except BaseException as error:
            stopped = Refused(f"the daemon stops, or its term ended ({error}): try again")
            group.refuse(error if isinstance(error, Refused | StoreFailed) else stopped)
            raise

    async def _turn(self, group: Group) -> None:
        running = self._running
        running.resume(running.waiting.due())
        roots = self._results.take_due(self._now_ms(), RECORDS_MAX)
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
        running.waiting.arm(self._results.next_ms)
        if self._requests or running.scheduler.is_busy:
            self._wanted()

    # -- requests

    async def _request(self, request: Request) -> int:
        if self._closed is not None:
            raise self._closed
        if len(self._requests) >= REQUESTS_MAX:
            raise Refused(f"{len(self._requests)} requests wait: try again")
        pending = Pending(request, asyncio.get_running_loop().create_future())
        self._requests.append(pending)
        self._wanted()
        return await pending.response

    async def _carry_out(self, group: Group) -> None:
        count = len(self._requests)
        await self._reserve(count)
        for _ in range(count):  # others may have come while pids were reserved: they wait for the next turn
            if group.is_full:
                break
            pending = self._requests.popleft()
            try:
                change, pid = self._decide(pending.request)
            except Refused as refused:
                pending.refuse(refused)
            except Exception as error:
                pending.refuse(error)
                raise
            else:
                self._stage(group, Decided(change, pending=pending, pid=pid))

    def _decide(self, request: Request) -> tuple[Change, int]:
        now_ms = self._now_ms()
        if isinstance(request, Submit):
            earlier = self._results.pid_of(request.caller)
            if earlier is not None:
                return Change(), earlier
            record = self._new(request.record(now_ms))
            why = self._kinds.unfit(record) or self._kinds.misordered(record, self._running.scheduler, ())
            if why:
                raise Refused(why)
            self._results.begun(record)
            return self._procedures.submitted(record), record.pid
        pid = self._known(request.pid).pid
        if isinstance(request, Abort):
            change = self._procedures.aborted(pid, now_ms)
        elif isinstance(request, Bypass):
            change = self._procedures.bypassed(pid, now_ms)
        else:
            record = self._procedures.latest(pid)
            change = self._procedures.commanded(pid, self._kinds[record.kind].changed(record, request.command), now_ms)
        return (Change(), 0) if change is None else (change, pid)

    def _known(self, pid: int) -> Record:
        record = self._procedures.records.get(pid)
        if record is None:
            why = self.unusable.get(pid, "it is not known: it never was, or its result was removed")
            raise Refused(f"pid {pid}: {why}")
        return record

    async def _reserve(self, count: int) -> None:
        if self._pids_end - self._next_pid < count:
            first = await self._store.reserve(max(count, PIDS))
            if first != self._pids_end:
                self._next_pid = first
            self._pids_end = first + max(count, PIDS)

    def _new(self, record: Record) -> Record:
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        return replace(record, pid=pid)

    # -- steps

    async def _run(self, entry: Entry, group: Group) -> None:
        """Executes or undoes a step of a procedure that was given out, and adds what follows to the group."""
        pid = entry.pid
        self._running.waiting.begin(pid)
        act = self._procedures.due(pid, self._now_ms())
        if isinstance(act, Change):
            self._stage(group, Decided(act, entry))
            return
        record = self._procedures.latest(pid)
        outcome, write = await self._steps.run(record, act)
        if isinstance(outcome, Children):
            outcome = await self._family(record, outcome)
        drawn = self._changed(record, act, outcome)
        change = self._bounded(record, act, drawn)
        until_ms = outcome.until_ms if isinstance(outcome, Wait) else 0
        decided = Decided(change, entry, until_ms=until_ms, again=isinstance(outcome, Yield))
        if write is None or isinstance(outcome, Failed) or change is not drawn:
            self._stage(group, decided)
            return
        await self._write(group)
        why_not = await self._steps.write(write, change, pid)
        if why_not is None:
            self._running.enter(decided)
        else:
            self._stage(group, Decided(self._changed(record, act, Retry(why_not)), entry))

    def _bounded(self, record: Record, act: Act, change: Change) -> Change:
        """Fails a step whose records are larger than a transaction of the store may be."""
        size = sum(len(put.data) + len(put.result) for put in change.puts)
        if size <= CHANGE_BYTES_MAX:
            return change
        why = f"its records have {size} bytes, one step may write {CHANGE_BYTES_MAX}"
        return self._changed(record, act, Retry(why) if act is Act.UNDO else Failed(why))

    def _changed(self, record: Record, act: Act, outcome: Outcome) -> Change:
        if isinstance(outcome, Yield):
            return Change()
        holds = self._kinds[record.kind].holds_locks and not record.locked
        if holds and isinstance(outcome, Wait):
            outcome = outcome._replace(durable=True)  # the lock is kept over restarts from now on
        if act is Act.UNDO:
            return self._procedures.undone(record.pid, outcome, self._now_ms())
        change = self._procedures.executed(record.pid, outcome, self._now_ms())
        if not holds:
            return change
        return change._replace(puts=tuple(_locked(put) if put.pid == record.pid else put for put in change.puts))

    async def _family(self, record: Record, outcome: Children) -> Outcome:
        """Gives the children their pids; they inherit the caller and the time at which the procedure fails."""
        await self._reserve(len(outcome.children))
        now_ms = self._now_ms()
        born = [
            replace(
                self._new(child),
                submitted_ms=now_ms,
                updated_ms=now_ms,
                caller=replace(record.caller, nonce=""),
                expires_ms=child.expires_ms or record.expires_ms,
            )
            for child in outcome.children
        ]
        holders = [self._procedures.latest(one) for one in (record.pid, *record.ancestors)]
        ancestors = tuple(one.pid for one in holders if self._kinds[one.kind].holds_locks)
        for child in born:
            why = self._kinds.unfit(child) or self._kinds.misordered(child, self._running.scheduler, ancestors)
            if why:
                return Failed(f"its child cannot run: {why}")
        return outcome._replace(children=tuple(born))

    # -- what is durable

    def _stage(self, group: Group, decided: Decided) -> None:
        self._procedures.stage(decided.change)
        group.add(decided)

    async def _write(self, group: Group) -> None:
        """Writes a group and enters it; the group is empty afterwards."""
        if group.puts or group.deletes:
            await self._store.write(group.puts, group.deletes)
        for one in group.take():
            self._running.enter(one)


def _locked(record: Record) -> Record:
    return record if record.state.is_final else replace(record, locked=True)
