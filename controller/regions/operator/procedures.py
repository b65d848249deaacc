"""Shows the procedures of the regions' domain, and ends them at an operator's request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from controller.http.errors import Invalid, NotActive, NotFound, Refused
from controller.http.procedures import Lock, Procedure, ended_item, removed_item, unreadable_item
from controller.procedures import requests
from controller.procedures.engine import Engine
from controller.procedures.refusals import Refusal, as_ended, not_ended
from controller.procedures.running import LockItem
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.http.ports import EndAct, ProcedurePage, ProcedureQuery
from controller.regions.operator import ways
from controller.regions.operator.access import acting_term, active_term
from controller.regions.operator.behind import holders, waits_behind
from controller.regions.operator.failing import failing_of, shown
from controller.regions.operator.items import BY_NAME, procedure_item
from controller.regions.operator.leaving_out import ACT, done_before, leaving_out
from controller.regions.operator.progress import aborting, hangs, progress_of
from controller.regions.procedures import crash
from metadata_store.records.port import StoreFailed
from state_machines.procedures.record import Ending, Record

T = TypeVar("T")
COMMAND: Final = "regent regions procedures"


class Procedures:
    """Implements :class:`controller.regions.http.ports.RegionProcedures`."""

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
            _listed(shown(_item(engine, records[pid]), failing), records[pid], locks, engine)
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
            except (TimeoutError, requests.Refused):
                pass
            except StoreFailed as failed:
                raise _failed(failed) from failed
        if (record := engine.records.get(pid)) is not None:
            env = active_term(self._domain).env
            failing = failing_of(env, engine)
            told = {"progress": progress_of(record, env, engine)}
            if pid in failing or record.error or record.aborted or hangs(record, env, engine):
                told["ends_by"] = ways.of_procedure(record, env, engine)
            if front := holders(record, engine.locks(), engine):
                told["ends_by"] = ways.behind(front, env, engine) or told.get("ends_by", "")
            return shown(_item(engine, record), failing).model_copy(update=told)
        if pid in engine.unusable:
            return _unusable_item(engine, pid)
        raise NotFound(f"procedure {pid} is not known", "it never was, or its result was removed after its time")

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
        if act == ACT:
            return await self._left_out(pid, principal, " ".join(reason.split()))
        if self._domain.term is None and self._domain.failed:
            return await self._early(act, pid, Ending(act, principal, " ".join(reason.split())))
        engine, ending = acting_term(self._domain).engine, Ending(act, principal, " ".join(reason.split()))
        if act == "remove":
            return await self._removed(engine, pid, ending)
        before = engine.records.get(pid)
        work = engine.abort(pid, ending) if act == "abort" else engine.bypass(pid, ending)
        if not await requested(work) or before is None:
            raise Refused(*self._not_ended(engine, pid, act, before))
        return procedure_item(as_ended(engine, before, ending))

    def _not_ended(self, engine: Engine[RegionsEnv], pid: int, act: EndAct, before: Record | None = None) -> Refusal:
        better, in_vain = self._ends(engine, before or engine.records.get(pid), act)
        return not_ended(engine, pid, act, COMMAND, better, in_vain=in_vain)

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
            raise Refused(*self._not_ended(self._engine(), pid, act))
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
            raise Refused(f"pid {wanted.pid}: the crash has ended", f"see '{COMMAND} show {wanted.pid}'")
        term.engine.wake(pid)
        return procedure_item(term.engine.records[wanted.pid])

    async def _removed(self, engine: Engine[RegionsEnv], pid: int, ending: Ending) -> Procedure:
        if pid in engine.records:
            raise Refused(*self._not_ended(engine, pid, "remove"))
        before = _unusable_item(engine, pid) if pid in engine.unusable else unreadable_item(pid, "")
        return removed_item(before, ending, await requested(engine.remove(pid, ending)))

    def _engine(self) -> Engine[RegionsEnv]:
        return active_term(self._domain).engine


async def requested(work: Awaitable[T]) -> T:
    """Waits for a request to the engine; turns its refusal into a response."""
    try:
        return await work
    except requests.Unusable as unusable:
        raise Refused(str(unusable), f"'regent regions procedures remove {unusable.pid}' removes it") from unusable
    except requests.Refused as refused:
        raise Refused(str(refused), "see 'regent regions procedures list'") from refused
    except StoreFailed as failed:
        raise _failed(failed) from failed


def _failed(failed: StoreFailed) -> NotActive:
    return NotActive(f"the regions' store failed: {failed}", "see the daemon's log, then try again")


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
