"""Judges whether brokers may stop, be removed or be restarted, and begins rolling restarts.

Judgements are of the model, in turns of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

from fastapi import FastAPI, Query, Request, Response
from pydantic import Field, StringConstraints

from controller.http.documents import NotFound, ViewRefused, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.kafka.procedures.restart import NAME, PAUSED, encode_restart, restart_of
from controller.kafka.term.term import Term
from controller.operator.brokers import BROKERS_MAX, BrokerId
from controller.operator.present import Present
from controller.operator.procedures import ProcedureView
from state_machines.decisions import hindrances as found
from state_machines.decisions.hindrances import MEANINGS, REMEDIES, Judgement, StopCause
from state_machines.decisions.restarts import BATCH_MAX, RestartPlan, RollingRestart, restarting, sentence
from state_machines.decisions.stopping import removing, stopping
from state_machines.model.cluster import Cluster
from state_machines.portions import Portions
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State

ATTEMPTS_MAX: Final = 3
"""Times that a judgement is begun where brokers come or go meanwhile."""
ANOTHER: Final = "; regent restart begin begins another"
T = TypeVar("T")

Brokers = Annotated[list[BrokerId], Query(alias="broker", min_length=1, max_length=BROKERS_MAX)]
Accepted = Annotated[list[StopCause] | None, Query(max_length=len(StopCause))]
Epoch = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,10}:[0-9]{1,19}$")]
Since = Annotated[list[Epoch] | None, Query(max_length=BROKERS_MAX, description="ID:EPOCH of each broker")]
BatchMax = Annotated[int, Query(alias="batchMax", ge=1, le=BATCH_MAX)]
RestartPid = Annotated[int | None, Query(ge=1, description="pid of a rolling restart that the daemon keeps")]


class Hindrance(Item):
    """A cause of a no, with its remedy. ``accept`` of the query takes ``cause``, where the query has it."""

    cause: str
    count: int = Field(description="partitions; brokers where the cause concerns no partition")
    meaning: str
    remedy: str
    examples: list[str] = Field([], description="the first partitions, as TOPIC-PARTITION")
    waits_for: list[int] = Field([], description="brokers whose replicas have to come into sync, the first ones")


class SetOfBrokers(Item):
    """A yes or no about brokers together. The last three lists name brokers of the query that are not live."""

    allowed: bool
    brokers: list[int]
    partitions: int = Field(description="partitions on these brokers that were judged")
    hindrances: list[Hindrance] = []
    unregistered: list[int] = Field([], description="host replicas and are not registered: they are down")
    shutting_down: list[int] = Field([], description="have requested their controlled shutdown")
    unknown: list[int] = Field([], description="neither registered nor assigned to any replica")


class RestartRequest(RequestItem):
    """A rolling restart to begin. ``nonce``: the same caller's same nonce never begins a second one."""

    brokers: list[BrokerId] = Field([], max_length=500, description="none: every registered broker")
    batch_max: Annotated[int, Field(ge=1, le=BATCH_MAX)] = Field(BATCH_MAX, description="most brokers of one batch")
    accept: list[StopCause] = Field([], max_length=len(StopCause), description="causes that hinder nothing")
    nonce: Words = ""
    reason: Words = ""


class RestartNext(Item):
    """Brokers that a rolling restart takes next, or why it has to wait."""

    state: Literal["restart", "wait", "done", "ended"] = Field(
        description="done: the restart of the query is complete; ended: the last one has ended, and none was named"
    )
    pid: int | None = Field(None, description="the rolling restart whose start counts, of a query without since")
    why: str
    batch: list[int] = Field([], description="restart these now, together")
    rack: str | None = None
    pending: list[int] = Field([], description="have to be restarted, the batch among them")
    restarted: list[int] = []
    down: list[int] = Field([], description="stopped or shutting down, and not back yet")
    nearest: int | None = Field(None, description="the pending broker that fewest partitions hinder")
    hindrances: list[Hindrance] = Field([], description="what hinders the nearest broker")


class RestartQuery(NamedTuple):
    """A query of the next batch: ``since`` has the broker epochs at the start (empty: all brokers as they are).

    ``pid``: the rolling restart whose start counts; without it the one that runs, or the last one.
    """

    since: Mapping[int, int]
    batch_max: int
    accepted: frozenset[StopCause]
    pid: int | None = None


class RestartView:
    """Judges stops, and begins rolling restarts; only the active daemon begins them."""

    def __init__(self, present: Present, procedures: ProcedureView) -> None:
        self._present = present
        self._procedures = procedures

    async def can_stop(self, brokers: frozenset[int], accepted: frozenset[StopCause]) -> SetOfBrokers:
        """Judges whether brokers may stop together, apart from accepted causes."""
        cluster, min_isr = self._present.fresh(), self._present.reader.min_isr
        return set_of_brokers(await in_turns(cluster, lambda: stopping(cluster, brokers, min_isr, accepted)))

    async def can_remove(self, brokers: frozenset[int]) -> SetOfBrokers:
        """Judges whether nothing is left on brokers."""
        cluster, controller = self._present.fresh(), self._present.controller()
        return set_of_brokers(await in_turns(cluster, lambda: removing(cluster, brokers, controller)))

    async def begin(self, request: RestartRequest, principal: str) -> Procedure:
        """Begins a rolling restart. Refuses brokers that are not registered, and a second one beside it."""
        term = self._present.active()
        brokers = term.cluster.brokers
        chosen = sorted(set(request.brokers) or brokers)
        caller = Caller(principal=principal, client="regent", reason=request.reason, nonce=request.nonce)
        known = term.procedures.engine_or_none
        if known is None or known.pid_of(caller) is None:
            absent = [broker for broker in chosen if broker not in brokers]
            if absent or not chosen:
                raise ViewRefused(f"brokers {absent} are not registered", "start them first, or leave their ids away")
            for record in known.live() if known is not None else ():
                if record.kind == NAME:
                    remedy = f"regent restart-next goes on with it, regent end {record.pid} ends it"
                    raise ViewRefused(f"restart {record.pid} runs already", remedy)
        since = tuple((broker, brokers[broker].epoch) for broker in chosen if broker in brokers)
        restart = RollingRestart(since, request.batch_max, tuple(request.accept))
        return await self._procedures.submit(NAME, encode_restart(restart), caller)

    async def next(self, query: RestartQuery) -> RestartNext:
        """Decides which brokers a rolling restart takes next."""
        cluster, min_isr, controller = self._present.fresh(), self._present.reader.min_isr, self._present.controller()
        term, running = self._present.term(), None
        named = query.pid is not None
        if not query.since and term is not None and (running := chosen(term, query.pid)) is not None:
            if (found := over(running, named=named)) is not None:
                return found
            query = query_of(running, query)
        since = query.since or {b: known.epoch for b, known in cluster.brokers.items()}
        batch_max, accepted = query.batch_max, query.accepted
        plan = await in_turns(cluster, lambda: restarting(cluster, since, min_isr, batch_max, accepted, controller))
        found = restart_item(plan)
        if running is None or term is None:
            return found
        return of_kept(found, running, paused=term.controller.pauses.in_force is not None, named=named)


def add_restart_routes(app: FastAPI, restarts: RestartView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/can-stop", response_model=Document[SetOfBrokers])
    async def can_stop(brokers: Brokers, accept: Accepted = None) -> Response:
        return document("CanStop", [await restarts.can_stop(frozenset(brokers), frozenset(accept or ()))])

    @app.get("/v1/can-remove", response_model=Document[SetOfBrokers])
    async def can_remove(brokers: Brokers) -> Response:
        return document("CanRemove", [await restarts.can_remove(frozenset(brokers))])

    @app.get("/v1/restart-next", response_model=Document[RestartNext])
    async def restart_next(
        since: Since = None, batch_max: BatchMax = BATCH_MAX, accept: Accepted = None, pid: RestartPid = None
    ) -> Response:
        epochs = {int(broker): int(epoch) for broker, _, epoch in (one.partition(":") for one in since or ())}
        if epochs and pid is not None:
            raise ViewRefused("since and pid name two restarts", "give one of them")
        found = await restarts.next(RestartQuery(epochs, batch_max, frozenset(accept or ()), pid))
        return document("RestartNext", [found])

    @app.post("/v1/restarts", response_model=Document[Procedure])
    async def begin(wanted: RestartRequest, request: Request) -> Response:
        return document("Procedure", [await restarts.begin(wanted, principal_of(request))])


async def in_turns(cluster: Cluster, begin: Callable[[], Portions[T]]) -> T:
    """Runs the work with turns of the event loop, again where brokers come or go; raises :class:`ViewRefused`."""
    for _ in range(ATTEMPTS_MAX):
        live, turns = cluster.live, begin()
        while cluster.live is live:
            try:
                next(turns)
            except StopIteration as ended:
                result: T = ended.value
                return result
            await asyncio.sleep(0)
    raise ViewRefused(
        "brokers come and go, so no answer would hold", "try again once 'regent list brokers' stays the same"
    )


def set_of_brokers(judged: Judgement) -> SetOfBrokers:
    """Builds the item of a judgement."""
    return SetOfBrokers(
        allowed=judged.allowed,
        brokers=list(judged.brokers),
        partitions=judged.partitions,
        hindrances=[hindrance_item(one) for one in judged.hindrances],
        unregistered=list(judged.unregistered),
        shutting_down=list(judged.shutting_down),
        unknown=list(judged.unknown),
    )


def restart_item(plan: RestartPlan) -> RestartNext:
    """Builds the item of the next batch."""
    return RestartNext(
        state="done" if plan.done else "restart" if plan.batch else "wait",
        why=sentence(plan),
        batch=list(plan.batch),
        rack=plan.rack,
        pending=list(plan.pending),
        restarted=list(plan.restarted),
        down=list(plan.down),
        nearest=plan.nearest,
        hindrances=[hindrance_item(one) for one in plan.hindrances],
    )


def hindrance_item(one: found.Hindrance) -> Hindrance:
    """Builds the item of a cause."""
    return Hindrance(
        cause=one.cause.value,
        count=one.count,
        meaning=MEANINGS[one.cause],
        remedy=REMEDIES[one.cause],
        examples=[str(name) for name in one.examples],
        waits_for=list(one.waits_for),
    )


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
