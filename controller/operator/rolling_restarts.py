"""Begins rolling restarts, and finds the one that a query for the next batch is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.http.errors import NotFound, Refused
from controller.http.ports import RestartQuery
from controller.http.procedure_models import Procedure
from controller.http.restart_models import RestartNext, RestartRequest
from controller.kafka.kinds.restart import NAME, PAUSED, encode_restart, restart_of
from controller.kafka.term.term import Term
from controller.operator.procedures import ProcedureView
from state_machines.decisions.restarts import RollingRestart
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State

ANOTHER: Final = "; regent restart begin begins another"


class RestartView:
    """Begins rolling restarts; only the active daemon does."""

    def __init__(self, active: Callable[[], Term], procedures: ProcedureView) -> None:
        self._active = active
        self._procedures = procedures

    async def begin(self, request: RestartRequest, principal: str) -> Procedure:
        """Begins a rolling restart. Refuses brokers that are not registered, and a second one beside it."""
        term = self._active()
        brokers = term.cluster.brokers
        chosen = sorted(set(request.brokers) or brokers)
        caller = Caller(principal=principal, client="regent", reason=request.reason, nonce=request.nonce)
        known = term.procedures.engine_or_none
        if known is None or known.pid_of(caller) is None:
            absent = [broker for broker in chosen if broker not in brokers]
            if absent or not chosen:
                raise Refused(f"brokers {absent} are not registered", "start them first, or leave their ids away")
            for record in known.live() if known is not None else ():
                if record.kind == NAME:
                    remedy = f"regent restart-next goes on with it, regent end {record.pid} ends it"
                    raise Refused(f"restart {record.pid} runs already", remedy)
        since = tuple((broker, brokers[broker].epoch) for broker in chosen if broker in brokers)
        restart = RollingRestart(since, request.batch_max, tuple(request.accept))
        return await self._procedures.submit(NAME, encode_restart(restart), caller)


def chosen(term: Term, pid: int | None) -> Record | None:
    """Returns the restart with a pid; without one that which runs, or the last one whose result is kept.

    Raises :class:`NotFound` for a pid of none.
    """
    engine = term.procedures.engine_or_none
    found = [one for one in (engine.records.values() if engine is not None else ()) if one.kind == NAME]
    if pid is None:
        return max(found, key=lambda one: (not _is_over(one), one.pid), default=None)
    for record in found:
        if record.pid == pid:
            return record
    raise NotFound(f"no restart has pid {pid}", "it never was, or its result was removed: see 'regent events'")


def over(record: Record, *, named: bool) -> RestartNext | None:
    """Returns the answer about a restart that has ended or is being ended; None where it goes on.

    ``named``: the query has its pid. Then a complete one is done; otherwise the answer says that it has ended.
    """
    if not _is_over(record):
        return None
    if record.state is State.SUCCESS and not record.bypassed:
        why = f"restart {record.pid} has ended: {record.result.decode(errors='replace')}"
        return RestartNext(state="done" if named else "ended", pid=record.pid, why=f"{why}{'' if named else ANOTHER}")
    by = f" by {record.ending.principal}" if record.ending.principal else ""
    reason = f" ({record.ending.reason})" if record.ending.reason else ""
    return RestartNext(state="ended", pid=record.pid, why=f"restart {record.pid} was ended{by}{reason}{ANOTHER}")


def _is_over(record: Record) -> bool:
    return record.state.is_final or record.state is State.FAILED or record.aborted


def query_of(record: Record, query: RestartQuery) -> RestartQuery:
    """Returns the query with the start of a rolling restart, below both bounds, and with the causes of both."""
    restart = restart_of(record)
    batch_max = min(query.batch_max, restart.batch_max)
    return RestartQuery(dict(restart.since), batch_max, query.accepted | set(restart.accepted))


def of_kept(found: RestartNext, record: Record, *, paused: bool, named: bool = False) -> RestartNext:
    """Adds the rolling restart that an answer is about; while moves are paused, no further batch is named.

    Without its pid in the query a complete restart has ended, as it has for later queries.
    """
    update: dict[str, object] = {"pid": record.pid}
    if found.state == "done" and not named:
        update |= {"state": "ended", "why": f"restart {record.pid} has ended: {found.why}{ANOTHER}"}
    if paused and not set(found.batch).issubset(restart_of(record).batch):
        update |= {"state": "wait", "batch": [], "rack": None, "why": PAUSED}
    return found.model_copy(update=update)
