"""The procedures of a term: the engine, its store in ZooKeeper, and what happens where the store fails.

A store that fails ends no term: elections go on without procedures, which are loaded again after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

import anyio
import msgspec

from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import TermEnded, weakly
from controller.kafka.procedures import drain, elect, reassign, restart, throttle
from controller.kafka.procedures.environment import ForeignSizes, KafkaEnv, MinIsrGuard
from controller.kafka.procedures.throttle_looks import CatchUps, RatePacer
from controller.kafka.procedures.throttle_settings import throttles_of
from controller.procedures.broadcast import Responses
from controller.procedures.engine import Engine
from controller.procedures.kinds import Kinds
from controller.procedures.parking import Parking
from controller.procedures.recorder import CALLS, Ledger
from controller.procedures.requests import ProcedureRefused, loop_ms
from controller.process.clock import wall_ms
from controller.role import own_znodes as own
from metadata_store.errors import NotConnected, OutcomeUnknown, SessionLost
from metadata_store.fencing.outcome import Fenced
from metadata_store.records import port
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition

log = logging.getLogger("regent.procedures")

KINDS: Final = (reassign.REASSIGN, drain.DRAIN, throttle.THROTTLE, elect.ELECT, restart.RESTART, *CALLS)
STOPS: Final = {
    reassign.NAME: msgspec.json.encode(reassign.PlanCommand(stop=True)),
    throttle.NAME: throttle.LIFT,
    elect.NAME: elect.STOP,
}
"""Commands by which kinds of procedures end with what they have done."""
UNUSABLE_LOGGED_MAX: Final = 20
"""Records that cannot be used and are logged one by one."""
RECORDS_BESIDE_MAX: Final = 1_000
"""Records that are loaded while brokers still get the states of a new term."""
BROKERS_FIRST_S_MAX: Final = 0.25
"""Time for which more records wait until all brokers have these states."""
LOAD_AGAIN_S: Final = 30.0
"""Pause after which the records are loaded again where their store failed."""
WAKES: Final = {
    EventKind.ADVANCE_REASSIGNMENTS: reassign.NAME,
    EventKind.FINISH_REASSIGNMENTS: reassign.NAME,
    EventKind.BROKER_CHANGE: reassign.NAME,
}
"""Kinds of procedures that run again after an event."""


HOLD: Final = msgspec.json.encode(reassign.PlanCommand(held=True))
POLL_S: Final = 0.05
NAMES: Final = Kinds(KINDS)
DOMAIN: Final = "kafka"
"""Name of the engine in rows and lines."""


def is_over(record: Record) -> bool:
    """Checks whether a plan has ended, or is taken back: then it cannot be held."""
    return record.state.is_final or record.state is State.FAILED


def _is_throttled(engine: Engine[KafkaEnv], pid: int) -> bool:
    record = engine.records.get(pid)
    return record is not None and not record.state.is_final and bool(throttles_of(record))


def _of_kind(engine: Engine[KafkaEnv], name: str) -> list[int]:
    """Returns the procedures of a kind that go on; a command would let a parked one end the term again."""
    found = [pid for pid, record in engine.records.items() if record.kind == name and not is_over(record)]
    return [pid for pid in found if pid not in engine.parked]


def _entered(journal: KafkaJournal, responses: Responses, moved: Sequence[Transition]) -> None:
    """Journals what is durable by now, and forgets the messages of procedures that ended."""
    journal.procedures(moved, NAMES, DOMAIN)
    for one in moved:
        if one.after.state.is_final:
            responses.forget(one.after.pid)


class TermProcedures:
    """Runs the procedures of one term: every turn is an event of its queue. ``parking``: outlives the term.

    ``loads_later``: their store failed, and they are not loaded again yet.
    """

    def __init__(self, controller: Controller, parking: Parking | None = None) -> None:
        self.parking = parking or Parking()
        self.unavailable = "procedures are not loaded yet: try again"
        self._controller = controller
        self._engine: Engine[KafkaEnv] | None = None
        self._responses: Responses | None = None
        self.loads_later = False
        self._waits = False
        self._said: frozenset[int] = frozenset()

    @property
    def engine(self) -> Engine[KafkaEnv]:
        """Returns the engine; raises :class:`ProcedureRefused` where the records cannot be used."""
        if self._engine is None:
            raise ProcedureRefused(self.unavailable)
        return self._engine

    @property
    def engine_or_none(self) -> Engine[KafkaEnv] | None:
        """Returns the engine, None where the records cannot be used."""
        return self._engine

    async def load(self, *, brokers_first: bool = False) -> None:
        """Loads the records. Raises Fenced, TermEnded and SessionLost; any other failure leaves the term without.

        ``brokers_first``: many records wait a moment for brokers that still get the states of a new term.
        """
        c = self._controller
        records = ZooKeeperRecords(c.zk, c.fence, own.PROCEDURES, c.connected)
        responses = Responses(c.spawn)
        engine = Engine(
            KafkaEnv(
                c,
                records,
                wall_ms,
                ForeignSizes(),
                MinIsrGuard(),
                {},
                responses,
                {},
                {},
                RatePacer(),
                CatchUps(),
                self._live,
                self._known,
            ),
            KINDS,
            records,
            wanted=lambda: c.queue.signal(EventKind.PROCEDURES),
            now_ms=wall_ms,
            age_ms=loop_ms,
            interruptions=(NotConnected, OutcomeUnknown),
            ends=(Fenced, TermEnded, SessionLost, port.StoreFailed),
            entered=partial(_entered, c.journal, responses),
            parking=self.parking,
        )
        responses.wake = weakly(engine.wake, None)
        try:
            if brokers_first and await records.count() > RECORDS_BESIDE_MAX:
                await c.channels.quiesced(BROKERS_FIRST_S_MAX)
            await engine.load()
        except (Fenced, TermEnded, SessionLost):
            raise
        except Exception as failed:
            self._fail(failed)
            return
        self._engine, self._responses, self.loads_later = engine, responses, False
        c.recorder.ledger = Ledger(engine, records, c.until_read, self._fail, wall_ms)
        self._say_unusable(engine.unusable)
        for pid, why in islice(engine.parked.items(), UNUSABLE_LOGGED_MAX):
            log.error("pid=%d is parked, and not run: %s; 'regent procedures bypass %d' ends it", pid, why, pid)

    def causes(self, pid: int) -> Mapping[int, str]:
        """Returns, by broker without a result, why the latest message of a procedure to it had none."""
        return {} if self._responses is None else self._responses.causes(pid)

    def _say_unusable(self, unusable: Mapping[int, str]) -> None:
        """Logs the first records that cannot be used, again only once others are among them."""
        if unusable.keys() != self._said:
            self._said = frozenset(unusable)
            for pid, why in islice(unusable.items(), UNUSABLE_LOGGED_MAX):
                log.error("pid=%d cannot go on: %s; 'regent procedures remove %d' removes its record", pid, why, pid)
            if len(unusable) > UNUSABLE_LOGGED_MAX:
                log.error("%d records cannot be used in all: regent procedures list names each", len(unusable))

    def _live(self) -> Iterable[Record]:
        return () if self._engine is None else self._engine.live()

    def _known(self) -> Iterable[Record]:
        return () if self._engine is None else self._engine.records.values()

    async def turn(self) -> None:
        """Runs the engine's turn, or loads the records again."""
        if self._engine is None:
            await self.load()
            return
        try:
            await self._engine.turn()
        except port.StoreFailed as failed:
            self._fail(failed)

    def load_soon(self) -> None:
        """Loads the records of a store that failed at once: a request to end a procedure waits for that."""
        if self.loads_later:
            self._controller.queue.signal(EventKind.PROCEDURES)

    async def hold(self, within_s: float) -> list[str]:
        """Pauses plans and lifts all throttles before the role is given back; returns a sentence for what remains.

        Held plans stay so until an operator resumes them; operators' throttles end.
        """
        engine = self._engine
        if engine is None:
            return [f"{self.unavailable}: plans, and all throttles, stay as they are"]
        going_back = [pid for pid, record in engine.records.items() if record.state is State.FAILED]
        plans, throttles = _of_kind(engine, reassign.NAME), _of_kind(engine, throttle.NAME)
        with anyio.move_on_after(within_s), suppress(port.StoreFailed):
            for pid, how in (*((pid, HOLD) for pid in plans), *((pid, throttle.LIFT) for pid in throttles)):
                with suppress(ProcedureRefused):  # it ended, or is being taken back, since
                    await engine.command(pid, how)
            for _ in range(int(within_s / POLL_S)):
                if not any(_is_throttled(engine, pid) for pid in (*plans, *throttles)):
                    break
                await asyncio.sleep(POLL_S)
        going_on = [pid for pid in plans if (record := engine.records.get(pid)) is not None and not is_over(record)]
        paused = [pid for pid in going_on if reassign.is_paused(engine.records[pid])]
        found = (
            [f"plans {paused} are paused: regent reassign resume PID, once regent has the role again"] if paused else []
        )
        if paused != going_on:
            others = [pid for pid in going_on if pid not in paused]
            found.append(
                f"plans {others} could not be paused, and go on when regent has the role again: "
                "regent reassign pause PID, then"
            )
        if going_back:
            found.append(f"procedures {going_back} are being taken back, and go on when regent has the role again")
        left = [pid for pid in (*plans, *throttles, *going_back) if _is_throttled(engine, pid)]
        return found + (
            [f"throttles of procedures {left} are still in force: kafka-configs removes them"] if left else []
        )

    def handled(self, kind: EventKind) -> None:
        """Wakes the procedures that an event may let go on."""
        name = WAKES.get(kind)
        if name is not None and self._engine is not None:
            for pid in [pid for pid, record in self._engine.records.items() if record.kind == name]:
                self._engine.wake(pid)

    def close(self, why: str) -> None:
        """Refuses callers: the term ended."""
        self._stop(ProcedureRefused(f"the term ended ({why}): send the request to the daemon that is active now"))

    def _fail(self, failed: Exception) -> None:
        if isinstance(failed, port.Fenced):
            raise Fenced(str(failed)) from failed
        self._stop(ProcedureRefused(f"procedures stand still: {failed}"))
        log.error(
            "%s; the cluster is controlled without them, and clients' calls go unrecorded; "
            "they are loaded again in %d s",
            failed,
            LOAD_AGAIN_S,
        )
        self.loads_later = True
        if not self._waits:
            self._waits = True
            self._controller.spawn(self._load_later())

    def _stop(self, why: ProcedureRefused) -> None:
        self.unavailable = str(why)
        self._controller.recorder.ledger = None
        if self._engine is not None:
            self._engine.close(why)
            self._engine = None

    async def _load_later(self) -> None:
        await asyncio.sleep(LOAD_AGAIN_S)
        self._waits = False
        self._controller.queue.signal(EventKind.PROCEDURES)
