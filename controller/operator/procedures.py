"""Gives operators their view of procedures, and takes their requests: on the active daemon, and reads on any."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from fastapi import FastAPI, Request, Response

from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.http.documents import NotActive, NotFound, ViewRefused, document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import (
    EndRequest,
    Lock,
    Procedure,
    WaitS,
    ended_item,
    reason_of,
    removed_item,
    unreadable_item,
)
from controller.kafka.procedures import reassign
from controller.kafka.procedures.environment import KafkaEnv
from controller.kafka.term.procedures import KINDS, STOPS
from controller.kafka.term.term import Term
from controller.operator.present import refuse_standing
from controller.operator.procedure_items import (
    NO_CAUSES,
    concerns,
    moved_by,
    part_item,
    phase_of,
    procedure_item,
    with_pace,
)
from controller.operator.progress import PlanMeter
from controller.procedures import requests
from controller.procedures.engine import Engine
from controller.procedures.refusals import as_ended, ending_of, forgotten, not_ended, taken_back
from controller.role import own_znodes as own
from metadata_store.errors import ZooKeeperError
from metadata_store.fencing.outcome import Fence
from metadata_store.records.port import StoreFailed
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.portions import portions
from state_machines.procedures.record import NO_ENDING, REMOVED, Caller, Ending, Record, family

T = TypeVar("T")

COMMAND: Final = "regent procedures"
NOT_MEASURED: Final = "not measured: this daemon is not active, and shows what is stored"
ELSEWHERE: Final = frozenset({Mode.CONNECTING, Mode.STANDBY, Mode.STOPPING})
"""Modes of a daemon while another one may have the next term: a request is refused at once."""
ITEMS_PER_TURN: Final = 500
"""Procedures that are described between two turns of the loop: some 20 ms."""
BY_NAME: Final = {kind.name: kind for kind in KINDS}


class ProcedureView:
    """The procedures of a daemon: of its engine while it is active, of the store otherwise."""

    def __init__(self, daemon: Daemon, term: Callable[[], Term | None], remedy: Callable[[], str]) -> None:
        self._daemon = daemon
        self.term = term
        self._remedy = remedy
        self.meter = PlanMeter()

    # -- reading

    async def list_all(self, topic: str | None = None, broker: int | None = None) -> list[Procedure]:
        """Lists procedures and kept results by pid, with the records that cannot be used.

        With ``topic`` or ``broker`` only those that lock it or are about it.
        """
        records, unusable = await self.known()
        found: list[Procedure] = []
        for some in portions(sorted(records.keys() | unusable.keys()), ITEMS_PER_TURN):
            for pid in some:
                record = records.get(pid)
                if (topic is None and broker is None) or (record is not None and concerns(record, topic, broker)):
                    found.append(self._described(pid, record, unusable))
            await asyncio.sleep(0)
        return found

    def _described(self, pid: int, record: Record | None, unusable: Mapping[int, str]) -> Procedure:
        why = unusable.get(pid, "")
        return unreadable_item(pid, why) if record is None else self._item(record, why)

    async def one(self, pid: int, wait_s: float) -> Procedure:
        """Describes one procedure; waits at most ``wait_s`` for its end where this daemon is active."""
        term = self.term()
        if term is not None and wait_s > 0:
            try:
                record = await asyncio.wait_for(self.engine_of(term).result(pid), wait_s)
                return procedure_item(record, BY_NAME)
            except (TimeoutError, requests.ProcedureRefused):
                pass
        records, unusable = await self.known()
        if pid in records or pid in unusable:
            return await self._with_pace(self._described(pid, records.get(pid), unusable))
        if (parent := next((one for one in records.values() if moved_by(one) == pid), None)) is not None:
            return part_item(parent, pid)
        raise NotFound(f"procedure {pid} is not known", "it never was, or its result was removed: see 'regent events'")

    async def _with_pace(self, item: Procedure) -> Procedure:
        """Adds the progress of a plan that runs, its own or that of its child, or why it is not measured."""
        if item.ended or item.unusable:
            return item
        term = self.term()
        records, _ = await self.known()
        family = [one for one in records.values() if item.pid in (one.pid, one.parent) and not one.state.is_final]
        plans = [one for one in family if one.kind == reassign.NAME]
        if not plans:
            return item
        if term is None:
            return item.model_copy(update={"progress": NOT_MEASURED})
        return with_pace(item, (await self.meter.measured(term, plans[0])).total)

    def locks(self) -> list[Lock]:
        """Lists the locks that procedures hold or wait for."""
        found = self.engine_of(self.shown()).locks()
        holders: dict[str, list[int]] = {}
        for lock in found:
            if not lock.waiting:
                holders.setdefault(lock.resource, []).append(lock.pid)
        return [
            Lock(**lock._asdict(), held_by=holders.get(lock.resource, []) if lock.waiting else []) for lock in found
        ]

    async def records(self) -> list[Record]:
        """Returns the records of procedures, and of results that are kept."""
        found, unusable = await self.known()
        return [record for pid, record in found.items() if pid not in unusable]

    async def known(self) -> tuple[dict[int, Record], dict[int, str]]:
        """Returns all records by pid, and why some of them cannot be used."""
        term = self.term()
        engine = None if term is None else term.procedures.engine_or_none
        if engine is None:
            return await self._stored()
        return {**engine.records, **engine.unusable_records}, dict(engine.unusable)

    async def _stored(self) -> tuple[dict[int, Record], dict[int, str]]:
        role = self._daemon.role
        if role is None:
            raise NotActive("this daemon has no ZooKeeper session", "wait until it is connected, then try again")

        async def connected() -> None:
            """Does not wait: a lost connection fails the request."""

        records = ZooKeeperRecords(role.zk, Fence(0, lambda: False), own.PROCEDURES, connected)
        try:
            stored = await records.load_once()
        except (StoreFailed, ZooKeeperError) as error:
            raise NotActive(f"the records cannot be read: {error}", "try again once ZooKeeper responds") from error
        return {record.pid: record for record in family(stored.records)}, {one.pid: one.why for one in stored.damaged}

    # -- requests

    async def submit(self, kind: str, data: bytes, caller: Caller) -> Procedure:
        """Starts a procedure of a kind."""
        engine = self.engine_of(self.active())
        pid = await self._requested(engine.submit(kind, data, caller))
        record = engine.records.get(pid)
        if record is None:
            raise NotFound(*forgotten(pid))
        return procedure_item(record, BY_NAME)

    async def commanded(self, pid: int, command: bytes, ending: Ending = NO_ENDING) -> Procedure:
        """Sends a procedure a command of its kind."""
        engine = self.engine_of(self.active())
        return await self._done(engine, pid, engine.command(pid, command, ending), ending)

    async def cancel(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Ends a procedure by the gentle stop of its kind; aborts it where the kind has none."""
        ending = ending_of("cancel", principal, reason)
        record = self.engine_of(self.active()).records.get(pid)
        stop = STOPS.get(record.kind) if record is not None else None
        return await (self._aborted(pid, ending) if stop is None else self.commanded(pid, stop, ending))

    async def abort(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Aborts a procedure: what it did is undone."""
        ending = ending_of("abort", principal, reason)
        return await (self._early(pid, ending) if self._is_between else self._aborted(pid, ending))

    async def _aborted(self, pid: int, ending: Ending) -> Procedure:
        engine = self.engine_of(self.active())
        return await self._done(engine, pid, engine.abort(pid, ending), ending)

    async def bypass(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Ends a procedure as it is."""
        ending = ending_of("bypass", principal, reason)
        if self._is_between:
            return await self._early(pid, ending)
        engine = self.engine_of(self.active())
        return await self._done(engine, pid, engine.bypass(pid, ending), ending)

    async def remove(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Removes a record that cannot be used, with its family."""
        ending = ending_of(REMOVED, principal, reason)
        if self._is_between:
            return await self._early(pid, ending)
        engine = self.engine_of(self.active())
        if pid in engine.records:
            raise ViewRefused(*not_ended(engine, pid, REMOVED, COMMAND))
        records, unusable = await self.known()
        before = self._described(pid, records.get(pid), unusable)
        return removed_item(before, ending, await self._requested(engine.remove(pid, ending)))

    @property
    def _is_between(self) -> bool:
        """Checks whether procedures stand still because they ended the term, or their store failed."""
        term = self.term()
        if term is None:
            return bool(self._daemon.parking.suspects) and self._daemon.mode not in ELSEWHERE
        return term.procedures.engine_or_none is None and term.procedures.loads_later

    async def _early(self, pid: int, ending: Ending) -> Procedure:
        """Has a request carried out before procedures run again."""
        parking = self._daemon.parking
        response = parking.asked(requests.ENDS[ending.act](pid, ending), self._why_between)
        if (term := self.term()) is not None:
            term.procedures.load_soon()
        if not await self._requested(response):
            raise ViewRefused(*not_ended(self.engine_of(self.active()), pid, ending.act, COMMAND))
        if ending.act == REMOVED:
            return removed_item(unreadable_item(pid, ""), ending, parking.removed.family(pid))
        term = self.term()
        engine = None if term is None else term.procedures.engine_or_none
        record = None if engine is None else engine.records.get(pid)
        return ended_item(pid, ending) if record is None else self._item(record)

    def _why_between(self) -> str:
        """Says why procedures stand still."""
        term = self.term()
        return self._daemon.why if term is None else term.procedures.unavailable

    def causes(self, pid: int) -> Mapping[int, str]:
        """Returns, by broker, why it has no result yet; nothing on a daemon that is not active."""
        term = self.term()
        return NO_CAUSES if term is None else term.procedures.causes(pid)

    def _item(self, record: Record, unusable: str = "") -> Procedure:
        """Describes a record, also where it is parked."""
        found = procedure_item(record, BY_NAME, unusable, self.causes(record.pid))
        if not unusable and (phase := phase_of(record, self.term())):
            found = found.model_copy(update={"phase": phase})
        why = self._daemon.parking.parked.get(record.pid)
        return found if why is None or record.state.is_final else found.model_copy(update={"parked": why})

    async def _done(self, engine: Engine[KafkaEnv], pid: int, work: Awaitable[bool], ending: Ending) -> Procedure:
        before = engine.records.get(pid)
        if not await self._requested(work) or before is None:
            if (root := taken_back(engine, pid)) is not None:
                raise ViewRefused(f"pid {root} is being taken back already", f"regent procedures wait {root}")
            raise ViewRefused(*not_ended(engine, pid, ending.act, COMMAND))
        return procedure_item(as_ended(engine, before, ending), BY_NAME)

    async def _requested(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except requests.Unusable as unusable:
            raise ViewRefused(str(unusable), f"'regent procedures remove {unusable.pid}' removes it") from unusable
        except requests.ProcedureRefused as refused:
            raise ViewRefused(str(refused), "see 'regent procedures list'") from refused
        except StoreFailed as failed:
            raise NotActive(
                f"the procedures' store failed: {failed}", "see the daemon's log, then try again"
            ) from failed

    def engine_of(self, term: Term) -> Engine[KafkaEnv]:
        """Returns the engine of a term, once it runs."""
        try:
            return term.procedures.engine
        except requests.ProcedureRefused as refused:
            raise NotActive(str(refused), "see the daemon's log") from refused

    def active(self) -> Term:
        """Returns the term for a request, which it must be able to carry out now."""
        term = self.shown()
        refuse_standing(term, self._daemon)
        return term

    def shown(self) -> Term:
        """Returns the term; raises :class:`NotActive` where the daemon has none."""
        term = self.term()
        if term is None:
            raise NotActive(f"this daemon is {self._daemon.mode.value}: {self._daemon.why}", self._remedy())
        return term


def add_procedure_routes(app: FastAPI, procedures: ProcedureView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/procedures", response_model=Document[Procedure])
    async def listed(topic: str | None = None, broker: int | None = None) -> Response:
        return document("Procedure", await procedures.list_all(topic, broker))

    @app.get("/v1/procedures/{pid}", response_model=Document[Procedure])
    async def one(pid: int, wait_s: WaitS = 0) -> Response:
        return document("Procedure", [await procedures.one(pid, wait_s)])

    @app.get("/v1/locks", response_model=Document[Lock])
    async def locks() -> Response:
        return document("Lock", procedures.locks())

    @app.post("/v1/procedures/{pid}/abort", response_model=Document[Procedure])
    async def abort(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.abort(pid, principal_of(request), reason_of(wanted))])

    @app.post("/v1/procedures/{pid}/cancel", response_model=Document[Procedure])
    async def cancel(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.cancel(pid, principal_of(request), reason_of(wanted))])

    @app.post("/v1/procedures/{pid}/bypass", response_model=Document[Procedure])
    async def bypass(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.bypass(pid, principal_of(request), reason_of(wanted))])

    @app.post("/v1/procedures/{pid}/remove", response_model=Document[Procedure])
    async def remove(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.remove(pid, principal_of(request), reason_of(wanted))])
