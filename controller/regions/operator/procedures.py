"""Shows the procedures of the regions' domain, and ends them at an operator's request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple

from fastapi import FastAPI, Query, Request, Response

from controller.http.documents import Invalid, ViewRefused, document
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
from controller.procedures import requests
from controller.procedures.engine import Engine
from controller.procedures.refusals import Refusal, as_ended, ending_of, not_ended
from controller.procedures.running import LockItem
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator import ways
from controller.regions.operator.progress import (
    aborting,
    failing_of,
    hangs,
    holders,
    locks_beside,
    progress_of,
    waits_behind,
    with_failures,
)
from controller.regions.operator.records import BY_NAME, message_of, procedure_item
from controller.regions.operator.requests import (
    PAGE_DEFAULT,
    PROCEDURES_COMMAND,
    Filter,
    Limit,
    acting_term,
    active_term,
    failed_store,
    requested,
    unknown_procedure,
)
from controller.regions.procedures import crash, log_task
from controller.regions.procedures.messages import LOG_TASK, LOST_PARTS, Crash, LogTask
from controller.regions.term import RegionsTerm
from metadata_store.records.port import StoreFailed
from state_machines.procedures.record import Ending, Record
from state_machines.regions.marks import LeftOut, LostPart, LostParts, has_pid, short

EndAct = Literal["abort", "bypass", "remove", "leave-out"]
LEAVE_OUT: Final = "leave-out"
REGIONS_KEPT_MAX: Final = 100
"""Ids of regions that the record of a crash keeps where a part of its log is left out; the others are counted."""
AfterPid = Annotated[int, Query(ge=0)]


class ProcedureQuery(NamedTuple):
    """A query of procedures by pid, from the one after ``after``; ``parts``: parts of other procedures, too."""

    limit: int
    after: int = 0
    kind: str | None = None
    live: bool = False
    parts: bool = False


class ProcedurePage(NamedTuple):
    """Some procedures, and the begin of the next page (None: this is the last)."""

    items: list[Procedure]
    next: str | None


class ProcedureView:
    """Shows the procedures of the active term, and ends some."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def list_procedures(self, query: ProcedureQuery) -> ProcedurePage:
        """Lists procedures and kept results by pid; records that cannot be used are always named."""
        engine = self._engine()
        records, unusable = engine.records, engine.unusable
        wanted = {pid for pid, one in records.items() if _matches(one, query)} | unusable.keys()
        if not wanted and query.kind is not None and query.kind not in BY_NAME:
            known = ", ".join(sorted(BY_NAME))
            raise Invalid(f"kind: no procedure of regions is of kind {query.kind[:80]!r}", f"use one of {known}")
        some = sorted(pid for pid in wanted if pid > query.after)
        failing = failing_of(active_term(self._domain).env, engine)
        locks = engine.locks()
        found = (
            _listed(with_failures(_item(engine, records[pid]), failing), records[pid], locks, engine)
            if pid in records
            else _unusable_item(engine, pid)
            for pid in some[: query.limit]
        )
        items = list(found)
        return ProcedurePage(items, str(some[query.limit - 1]) if len(some) > query.limit else None)

    async def one(self, pid: int, wait_s: float) -> Procedure:
        """Describes one; waits at most ``wait_s`` for its end."""
        engine = self._engine()
        if wait_s > 0:
            try:
                return procedure_item(await asyncio.wait_for(engine.result(pid), wait_s))
            except (TimeoutError, requests.ProcedureRefused):
                pass
            except StoreFailed as failed:
                raise failed_store(failed) from failed
        if (record := engine.records.get(pid)) is not None:
            env = active_term(self._domain).env
            failing = failing_of(env, engine)
            told = {"progress": progress_of(record, env, engine)}
            if pid in failing or record.error or record.aborted or hangs(record, env, engine):
                told["ends_by"] = ways.of_procedure(record, env, engine)
            if front := holders(record, locks_beside(record, engine), engine):
                told["ends_by"] = ways.behind(front, env, engine) or told.get("ends_by", "")
            return with_failures(_item(engine, record), failing).model_copy(update=told)
        if pid in engine.unusable:
            return _unusable_item(engine, pid)
        raise unknown_procedure(pid)

    def locks(self) -> list[Lock]:
        """Lists locks."""
        found = self._engine().locks()
        holders: dict[str, list[int]] = {}
        for lock in found:
            if not lock.waiting:
                holders.setdefault(lock.resource, []).append(lock.pid)
        return [
            Lock(**lock._asdict(), held_by=holders.get(lock.resource, []) if lock.waiting else []) for lock in found
        ]

    async def end(self, act: EndAct, pid: int, principal: str, reason: str) -> Procedure:
        """Undoes a procedure, ends it as it is, removes a record that cannot be used, or leaves a part of a log out.

        Where procedures end term after term, the request waits for the next term, which begins with it.
        """
        if act == LEAVE_OUT:
            return await self._left_out(pid, principal, " ".join(reason.split()))
        if self._domain.term is None and self._domain.failed:
            return await self._early(act, pid, ending_of(act, principal, reason))
        engine, ending = acting_term(self._domain).engine, ending_of(act, principal, reason)
        if act == "remove":
            return await self._removed(engine, pid, ending)
        before = engine.records.get(pid)
        work = engine.abort(pid, ending) if act == "abort" else engine.bypass(pid, ending)
        if not await requested(work) or before is None:
            raise ViewRefused(*self._not_ended(engine, pid, act, before))
        return procedure_item(as_ended(engine, before, ending))

    def _not_ended(self, engine: Engine[RegionsEnv], pid: int, act: EndAct, before: Record | None = None) -> Refusal:
        better, in_vain = self._ends(engine, before or engine.records.get(pid), act)
        return not_ended(engine, pid, act, PROCEDURES_COMMAND, better, in_vain=in_vain)

    def _ends(self, engine: Engine[RegionsEnv], record: Record | None, act: EndAct) -> tuple[str, bool]:
        """Returns what ends a procedure better than a bypass of its parts, if anything; and whether that gains nothing.

        A bypass of a crash that has another way would only have it begin anew.
        """
        if record is None or record.state.is_final:
            return "", False
        root = engine.records.get(record.root, record)
        if root.kind != crash.NAME and act != "abort":
            return "", False
        better = ways.of_procedure(record, active_term(self._domain).env, engine)
        if root.kind != crash.NAME:
            return better, False
        anew = "a crash that is ended as it is begins anew, and so does one of which a part is ended"
        return (f"{better}; {anew}", True) if better else (anew, False)

    async def _early(self, act: EndAct, pid: int, ending: Ending) -> Procedure:
        domain = self._domain
        done = await requested(domain.parking.asked(requests.ENDS[act](pid, ending), lambda: domain.why))
        if not done:
            raise ViewRefused(*self._not_ended(self._engine(), pid, act))
        if act == "remove":
            return removed_item(unreadable_item(pid, ""), ending, domain.parking.removed.family(pid))
        record = None if domain.term is None else domain.term.engine.records.get(pid)
        return ended_item(pid, ending) if record is None else procedure_item(record)

    async def _left_out(self, pid: int, principal: str, reason: str) -> Procedure:
        term = acting_term(self._domain)
        if (done := done_before(term, pid)) is not None:
            return procedure_item(done)
        wanted = leaving_out(term, pid, principal, reason)
        if not await requested(term.engine.command(*wanted)):
            raise ViewRefused(f"pid {wanted.pid}: the crash has ended", f"see '{PROCEDURES_COMMAND} show {wanted.pid}'")
        term.engine.wake(pid)
        return procedure_item(term.engine.records[wanted.pid])

    async def _removed(self, engine: Engine[RegionsEnv], pid: int, ending: Ending) -> Procedure:
        if pid in engine.records:
            raise ViewRefused(*self._not_ended(engine, pid, "remove"))
        before = _unusable_item(engine, pid) if pid in engine.unusable else unreadable_item(pid, "")
        return removed_item(before, ending, await requested(engine.remove(pid, ending)))

    def _engine(self) -> Engine[RegionsEnv]:
        return active_term(self._domain).engine


def add_procedure_routes(app: FastAPI, procedures: ProcedureView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/procedures", response_model=Document[Procedure])
    async def listed(
        kind: Filter = None, live: bool = False, parts: bool = False, limit: Limit = PAGE_DEFAULT, after: AfterPid = 0
    ) -> Response:
        page = procedures.list_procedures(ProcedureQuery(limit, after, kind, live, parts))
        return document("Procedure", page.items, page.next)

    @app.get("/v1/regions/procedures/{pid:int}", response_model=Document[Procedure])
    async def one(pid: int, wait_s: WaitS = 0) -> Response:
        return document("Procedure", [await procedures.one(pid, wait_s)])

    @app.get("/v1/regions/locks", response_model=Document[Lock])
    async def locks() -> Response:
        return document("Lock", procedures.locks())

    @app.post("/v1/regions/procedures/{pid:int}/{act}", response_model=Document[Procedure])
    async def end(pid: int, act: EndAct, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.end(act, pid, principal_of(request), reason_of(wanted))])


def _item(engine: Engine[RegionsEnv], record: Record) -> Procedure:
    """Describes a record, also where it is parked."""
    found = procedure_item(record)
    why = engine.parked.get(record.pid)
    return found if why is None or record.state.is_final else found.model_copy(update={"parked": why})


def _listed(found: Procedure, record: Record, locks: Sequence[LockItem], engine: Engine[RegionsEnv]) -> Procedure:
    """Returns the item of a list: with what a procedure waits for that is being undone, or behind a lock."""
    if record.state.is_final or not (told := aborting(record, engine) or waits_behind(record, locks, engine)):
        return found
    return found.model_copy(update={"detail": f"{found.detail}; {told}"})


def _unusable_item(engine: Engine[RegionsEnv], pid: int) -> Procedure:
    """Describes a record that cannot be used, as far as it can be read."""
    record, why = engine.unusable_records.get(pid), engine.unusable[pid]
    return unreadable_item(pid, why) if record is None else procedure_item(record, why)


def _matches(record: Record, query: ProcedureQuery) -> bool:
    """Checks a record against a query. A part of another procedure is listed on request, or by its kind."""
    return (
        (query.parts or not record.parent or query.kind is not None)
        and (query.kind is None or record.kind == query.kind)
        and not (query.live and record.state.is_final)
    )


# -- parts of logs


class Command(NamedTuple):
    """A command to the crash with a pid."""

    pid: int
    command: bytes
    ending: Ending


def done_before(term: RegionsTerm, pid: int) -> Record | None:
    """Returns the crash that goes without the part of an earlier procedure: a repeated command is not judged anew."""
    if pid in term.engine.records:
        return None
    for record in (*term.engine.live(), *term.engine.ended()):
        if record.kind == crash.NAME:
            task: Crash | None = message_of(record)
            if task is not None and has_pid(task.lost, pid):
                return record
    return None


def leaving_out(term: RegionsTerm, pid: int, principal: str, reason: str) -> Command:
    """Returns the command that has the crash go on without the part that a procedure is to split.

    The crash stores the part, the operator, the reason, and the regions that may miss edits.
    """
    record = term.engine.records.get(pid)
    parts = [one.pid for one in term.engine.live() if one.parent == pid and one.kind == log_task.SPLIT_LOG.name]
    if parts:
        remedy = f"'regent regions procedures leave-out {parts[0]}' leaves the part of that one out"
        raise ViewRefused(f"pid {pid} has {len(parts)} parts of a log split, each by a procedure of its own", remedy)
    if record is None or record.kind != log_task.SPLIT_LOG.name:
        kind = "not known, or has ended" if record is None else record.kind
        remedy = "'regent regions procedures list --kind split_log' has those that split a part of a log"
        raise ViewRefused(f"pid {pid} ({kind}) splits no part of a log, and nothing of it can be left out", remedy)
    if not reason:
        raise Invalid("reason: it is empty, and edits may be lost", "say why the part is left out")
    task: LogTask = LOG_TASK.decode(record.data)
    server = term.env.model.servers.get((task.server, task.incarnation))
    regions = sorted(server.regions) if server is not None else []
    name = short(task.part)
    left = LostParts(
        (LeftOut((LostPart(name, pid),), principal, reason),), len(regions), tuple(regions[:REGIONS_KEPT_MAX])
    )
    ending = Ending(LEAVE_OUT, principal, f"part {name!r}, {len(regions)} regions: {reason}")
    return Command(record.parent, LOST_PARTS.encode(left), ending)
