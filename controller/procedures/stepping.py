"""Decides on a procedure that was given out: executes or undoes its step, and makes a change of the outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple

from msgspec.structs import replace

from brokers.rate_limited_log import RateLimitedLog
from controller.procedures.kinds import Effect, Env, Kinds, Write, misordered
from controller.procedures.running import Running
from controller.procedures.writes import Decided, Pids, Scale
from metadata_store.errors import Code, MultiFailed, ZkError, ZooKeeperError
from metadata_store.records.port import StoreFailed, Unstorable
from state_machines.procedures.kernel import Act, Change
from state_machines.procedures.locks import Demand, Entry, Resource
from state_machines.procedures.outcome import Children, Failed, Next, Outcome, Retry, Wait, Yield
from state_machines.procedures.record import Record, inherited

log = logging.getLogger("regent.procedures")

RAISES_MAX: Final = 10
"""Attempts of a step that raises; then its procedure fails."""
NAMES_A_STEP: Final = Next, Children
ERRORS: Final = Failed, Retry
ERROR_CHARS_MAX: Final = 2_000
"""Characters of an error that a record keeps: its begin."""


class Executed(NamedTuple):
    """What follows a step, and the write of the step's effect, which has the change in its transaction.

    ``otherwise``: returns what follows where that write was not applied; it gets the reason.
    """

    decided: Decided
    write: Write
    otherwise: Callable[[str], Decided]


class Stepping(Generic[Env]):
    """Runs the steps of procedures that were given out, one after the other."""

    def __init__(self, running: Running[Env], steps: Steps[Env], pids: Pids, scale: Scale) -> None:
        self._running = running
        self._kinds = running.kinds
        self._procedures = running.procedures
        self._now_ms = running.now_ms
        self._parking = running.parking
        self._steps = steps
        self._pids = pids
        self._scale = scale

    async def run(self, entry: Entry) -> Decided | Executed:
        """Executes or undoes a step; returns what follows, alone or with the write of the step's effect."""
        pid = entry.pid
        self._running.waiting.begin(pid)
        if pid in self._parking.parked and not self._procedures.latest(pid).bypassed:
            return _waits(entry)
        record = self._procedures.latest(pid)
        act = Act.EXECUTE if self._procedures.goes_on(record) else self._procedures.due(pid, self._now_ms())
        if isinstance(act, Change):
            return Decided(act, entry)
        effect = await self._steps.run(record, act)
        outcome, rows, write = effect.outcome, effect.rows, effect.write
        demands: dict[int, Demand] = {}
        if isinstance(outcome, Children):
            outcome = await self._family(record, outcome, demands)
        found = self._bounded(record, act, outcome, rows)
        if found is None:
            return _waits(entry)
        change, weight, as_drawn = found
        until_ms = outcome.until_ms if isinstance(outcome, Wait) else 0
        again = isinstance(outcome, Yield)
        if isinstance(outcome, Failed) or not as_drawn:
            return Decided(change, entry, until_ms, again, demands=demands, weight=weight)
        decided = Decided(change, entry, until_ms, again, None, 0, rows, effect.entered, demands, weight=weight)
        if write is None:
            return decided
        return Executed(decided, write, lambda why: Decided(self._changed(record, act, Retry(why)), entry))

    def _bounded(
        self, record: Record, act: Act, outcome: Outcome, rows: Sequence[object]
    ) -> tuple[Change, int, bool] | None:
        """Returns what follows a step, its weight, and whether it has the effect that the step has drawn.

        What the store cannot write is split; else the step fails. None: nor can its failure be written.
        """
        change = self._changed(record, act, outcome)
        weight, why = self._scale.problem(change, rows)
        if why is None:
            return change, weight, True
        if isinstance(outcome, Children) and outcome.rest is not None:
            count = self._scale.fitting(change.puts[0], outcome.children, rows)
            if 0 < count < len(outcome.children):
                data = outcome.rest(count)
                some = replace(outcome, children=outcome.children[:count], step=record.step, data=data, rest=None)
                return self._bounded(record, act, some, rows)
        failed = self._changed(record, act, Retry(why) if act is Act.UNDO else Failed(why))
        weight, worse = self._scale.problem(failed)
        if worse is None:
            return failed, weight, False
        self._parking.park(record.pid, f"its step cannot be stored, nor its failure: {worse}")
        return None

    def _changed(self, record: Record, act: Act, outcome: Outcome) -> Change:
        if isinstance(outcome, Yield):
            return Change()
        if isinstance(outcome, ERRORS):
            outcome = replace(outcome, error=_storable(outcome.error))
        holds = self._kinds[record.kind].holds_locks and not record.locked
        if holds and isinstance(outcome, Wait):
            outcome = replace(outcome, durable=True)  # the lock is kept over restarts from now on
        if act is Act.UNDO:
            return self._procedures.undone(record.pid, outcome, self._now_ms())
        change = self._procedures.executed(record.pid, outcome, self._now_ms())
        if not holds:
            return change
        puts = tuple(_locked(put) if put.pid == record.pid else put for put in change.puts)
        return replace(change, puts=puts)

    async def _family(self, record: Record, outcome: Children, demands: dict[int, Demand]) -> Outcome:
        """Gives the children pids and ancestors; they inherit the caller and the time at which the procedure fails.

        Checks what they demand, and keeps it in ``demands``.
        """
        await self._pids.reserve(len(outcome.children))
        now_ms = self._now_ms()
        caller, lineage = inherited(record.caller), (record.pid, *record.ancestors)
        born = [
            replace(
                child,
                pid=self._pids.next(),
                parent=record.pid,
                ancestors=lineage,
                submitted_ms=now_ms,
                updated_ms=now_ms,
                caller=caller,
                expires_ms=child.expires_ms or record.expires_ms,
            )
            for child in outcome.children
        ]
        holders = map(self._procedures.latest, lineage)
        ancestors = tuple(one.pid for one in holders if self._kinds[one.kind].holds_locks)
        alike: set[tuple[Resource, bool, bool]] = set()
        holds_parts = self._running.scheduler.hold_parts(ancestors)
        for child in born:
            demand = self._kinds.demand(child)
            if isinstance(demand, str):
                return Failed(f"its child cannot run: {demand}")
            looks = demand.resource, demand.exclusive, bool(demand.parts)
            if holds_parts or demand.also or looks not in alike:
                alike.add(looks)
                why = misordered(child.pid, demand, self._running.scheduler, ancestors)
                if why is not None:
                    return Failed(f"its child cannot run: {why}")
            demands[child.pid] = demand
        return replace(outcome, children=tuple(born))


class Steps(Generic[Env]):
    """Executes single steps, and turns their errors into outcomes.

    Errors of ``interruptions`` repeat a step, those of ``ends`` pass.

    Any other error is a fault of the kind: the step is tried again, and fails after ten attempts.
    """

    def __init__(
        self,
        env: Env,
        kinds: Kinds[Env],
        interruptions: tuple[type[Exception], ...],
        ends: tuple[type[Exception], ...],
    ) -> None:
        self._env = env
        self._kinds = kinds
        self._interruptions = interruptions
        self._ends = ends
        self._limited_log = RateLimitedLog()

    async def run(self, record: Record, act: Act) -> Effect:
        """Executes the present step, or undoes the latest one; returns its outcome, and the writes stored with it."""
        kind = self._kinds[record.kind]
        step = kind.steps[record.step] if act is Act.EXECUTE else kind.undo_of(record)
        execute = step.execute if act is Act.EXECUTE else step.undo
        if execute is None:
            return Effect(Next(record.step, record.data))
        try:
            found = await execute(self._env, record)
        except self._interruptions:
            return Effect(Yield())
        except self._ends:
            raise
        except Exception as error:
            if not record.attempts:
                sentence = f"pid={record.pid} {kind.name}: step {step.name} raised; regent tries it again"
                self._limited_log.error(log, f"{kind.name} {step.name}", sentence, error)
            text = f"step {step.name} raised {type(error).__name__}: {error}"
            gives_up = act is Act.EXECUTE and record.attempts + 1 >= RAISES_MAX
            return Effect(Failed(text) if gives_up else Retry(text))
        effect = found if isinstance(found, Effect) else Effect(found)
        outcome = effect.outcome
        if isinstance(outcome, NAMES_A_STEP) and not 0 <= outcome.step < len(kind.steps):
            return Effect(Failed(f"step {step.name} names step {outcome.step}, {kind.name} has {len(kind.steps)}"))
        return effect

    async def write(self, write: Write, change: Change, pid: int) -> str | None:
        """Writes a change with its effect; returns None where that was applied, else why it was not.

        Raises ``StoreFailed`` where ZooKeeper failed: whether the record is stored is not known.
        """
        try:
            return await write(change)
        except self._ends:
            raise
        except ZooKeeperError as error:
            refused = isinstance(error, MultiFailed) or (isinstance(error, ZkError) and error.code is Code.TOO_BIG)
            failed = Unstorable if refused else StoreFailed
            raise failed(f"the write of pid {pid} failed: {type(error).__name__}: {error}") from error


def _waits(entry: Entry) -> Decided:
    """Returns what follows for a procedure that is parked: it waits until a request is about it."""
    return Decided(Change(later=(entry.pid,)), entry)


def _storable(error: str) -> str:
    """Returns the begin of an error; text of other programs may have characters that no codec takes."""
    return error[:ERROR_CHARS_MAX].encode("utf-8", "replace").decode()


def _locked(record: Record) -> Record:
    return record if record.state.is_final else replace(record, locked=True)
