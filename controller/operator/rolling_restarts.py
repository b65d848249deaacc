"""Begins rolling restarts, and finds the one that a query for the next batch is about."""

from __future__ import annotations

from collections.abc import Callable

from controller.http.ports import Refused, RestartQuery
from controller.http.procedure_models import Procedure
from controller.http.restart_models import RestartNext, RestartRequest
from controller.kinds.restart import NAME, PAUSED, encode_restart, restart_of
from controller.operator.procedures import ProcedureView
from controller.term.term import Term
from state_machines.decisions.restarts import RollingRestart
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State


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
                    remedy = f"regent restart-next goes on with it, regent procedures abort {record.pid} ends it"
                    raise Refused(f"restart {record.pid} runs already", remedy)
        since = tuple((broker, brokers[broker].epoch) for broker in chosen if broker in brokers)
        restart = RollingRestart(since, request.batch_max, tuple(request.accept))
        return await self._procedures.submit(NAME, encode_restart(restart), caller)


def latest(term: Term) -> Record | None:
    """Returns the rolling restart that runs, or the last one that succeeded and whose result is kept."""
    engine = term.procedures.engine_or_none
    records = engine.records.values() if engine is not None else ()
    found = [one for one in records if one.kind == NAME and one.state not in (State.ROLLEDBACK, State.FAILED)]
    return max(found, key=lambda one: one.pid, default=None)


def query_of(record: Record, query: RestartQuery) -> RestartQuery:
    """Returns the query with the start of a rolling restart, below both bounds, and with the causes of both."""
    restart = restart_of(record)
    batch_max = min(query.batch_max, restart.batch_max)
    return RestartQuery(dict(restart.since), batch_max, query.accepted | set(restart.accepted))


def of_kept(found: RestartNext, record: Record, *, paused: bool) -> RestartNext:
    """Adds the rolling restart that an answer is about; while moves are paused, no further batch is named."""
    update: dict[str, object] = {"pid": record.pid}
    if paused and not set(found.batch).issubset(restart_of(record).batch):
        update |= {"state": "wait", "batch": [], "rack": None, "why": PAUSED}
    return found.model_copy(update=update)
