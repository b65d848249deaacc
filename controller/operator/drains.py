"""Takes operators' requests to drain brokers, to shut one down, and to undo that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Annotated, Final, TypeVar

from fastapi import FastAPI, Request, Response
from pydantic import Field

from brokers.listener.controller_listener import NotController
from brokers.wire.calls import ControlledShutdownCall
from brokers.wire.errors import Error
from controller.http.documents import NotActive, ViewRefused, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.http.procedures import PlannedChange, Procedure
from controller.kafka.procedures import reassign
from controller.kafka.procedures.drain import NAME, drain_of, encode_drain
from controller.kafka.requests.calls import Calls, Undrain
from controller.kafka.term.term import Term
from controller.operator.cordons import CordonedBroker, CordonView
from controller.operator.plan_requests import UNTHROTTLED, Rate, bounds_of, leader_sizes, refuse_slow
from controller.operator.procedures import ProcedureView
from controller.operator.restarts import Hindrance, hindrance_item, in_turns
from state_machines.decisions.drain import Drain, Foretold, foretold, why_not
from state_machines.decisions.hindrances import Judgement, StopCause
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.decisions.stopping import stopping
from state_machines.machines.selectors import NO_OTHER_ISR, ONLY_REPLICA
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition
from state_machines.planning.cluster_view import view_in_turns
from state_machines.planning.goals import Decommission
from state_machines.planning.plan import Plan
from state_machines.planning.planner import plan
from state_machines.procedures.record import Caller

PLAN_BYTES_MAX: Final = 128 * 1024
"""Bytes of the moves that one drain stores: some thousands; the others stay, and the result names them."""
REFUSED_SHOWN: Final = 5
"""Distinct reasons that a refusal names."""
STAYING: Final = "mend the reasons, add brokers, or drain without --replicas"
CALL_VERSION: Final = 3
STAYING_MAX: Final = 100
"""Partitions that the response to a shutdown names; all are counted."""
R = TypeVar("R")
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
BrokerIds = Annotated[list[BrokerId], Field(min_length=1, max_length=1_000)]


class DrainRequest(RequestItem):
    """Brokers to drain. ``nonce``: the same caller's same nonce never starts a second drain."""

    brokers: BrokerIds
    replicas: bool = Field(False, description="move every replica away, too")
    rate_bytes_per_s: Rate = Field(0, description="throttle of the replicas' moves, each broker and direction; 0: none")
    rate_bytes_per_s_max: Rate = Field(
        0, description="upper bound of a throttle that follows the cluster's health from rateBytesPerS on; 0: it stays"
    )
    nonce: Words = ""
    reason: Words = ""


class UndrainRequest(RequestItem):
    """Brokers to let lead again. A shutdown by command is undone, too."""

    brokers: BrokerIds


class ShutdownRequest(RequestItem):
    """A broker to shut down as by its own request."""

    broker: BrokerId
    accept: list[StopCause] = Field([], max_length=len(StopCause), description="causes that hinder no stop")


class Shutdown(Item):
    """The result of a shutdown by command."""

    broker: int
    may_stop: bool = Field(description="nothing hinders its stop, as can-stop judges it")
    leaders_moved: int = 0
    staying_total: int = Field(0, description="partitions that it still leads")
    staying: list[str] = Field([], description=f"the first {STAYING_MAX} of them, each with the reason")
    hindrances: list[Hindrance] = Field([], description="what hinders its stop")


class DrainView:
    """Drains brokers and shuts them down; only the active daemon does."""

    def __init__(self, active: Callable[[], Term], cordons: CordonView, procedures: ProcedureView) -> None:
        self._active = active
        self._cordons = cordons
        self._procedures = procedures

    async def drain(self, request: DrainRequest, principal: str) -> Procedure:
        """Starts a drain. Refuses unknown brokers, the last that can lead, and replicas without a place."""
        term = self._active()
        brokers = tuple(sorted(set(request.brokers)))
        caller = Caller(principal=principal, client="regent", reason=request.reason, nonce=request.nonce)
        known = term.procedures.engine_or_none
        moves: ReassignPlan | None = None
        if known is None or known.pid_of(caller) is None:
            found = why_not(term.cluster, brokers)
            if found is not None:
                raise ViewRefused(*found)
            moves = await _planned(term, brokers, request) if request.replicas else None
        return await self._procedures.submit(NAME, encode_drain(Drain(brokers, plan=moves)), caller)

    async def planned(self, request: DrainRequest) -> list[PlannedChange]:
        """Lists what a drain would change; refuses what it refuses, and changes nothing."""
        term = self._active()
        cluster, brokers = term.cluster, tuple(sorted(set(request.brokers)))
        if (found := why_not(cluster, brokers)) is not None:
            raise ViewRefused(*found)
        if (busy := _draining(term, frozenset(brokers))) is not None:
            raise ViewRefused(busy, "see 'regent procedures list --live', then try again")
        moves = await _planned(term, brokers, request) if request.replicas else None
        by_broker = await in_turns(cluster, lambda: foretold(cluster, brokers))
        marks = {mark.broker: mark for mark in await self._cordons.listed()}
        return drain_rows(marks, by_broker, moves)

    async def undrain(self, request: UndrainRequest) -> list[CordonedBroker]:
        """Removes the marks of drains, and undoes shutdowns by command.

        Refuses brokers that a procedure drains at the moment.
        """
        term = self._active()
        brokers = frozenset(request.brokers)
        why_not = await _called(Calls(term.queue).undrain(Undrain(brokers, lambda: _draining(term, brokers))))
        if why_not is not None:
            raise ViewRefused(why_not, "see 'regent procedures list --live', then try again")
        left = await self._cordons.listed()
        for broker in sorted(term.controller.shut_by_operator.keys() & set(request.brokers)):
            await _called(Calls(term.queue).undo_shutdown(broker))
        return left

    async def shutdown(self, request: ShutdownRequest) -> Shutdown:
        """Shuts a broker down as its own request for a controlled shutdown does; judges its stop as ``can-stop``.

        Partitions that the shutdown itself takes below min.insync.replicas hinder it, too.
        """
        term = self._active()
        cluster, broker = term.cluster, term.cluster.brokers.get(request.broker)
        if broker is None:
            raise ViewRefused(f"broker {request.broker} is not registered", "correct the id; a dead broker has stopped")
        before = len(_led(cluster, broker.id))
        earlier = await _judged(term, request)
        call = ControlledShutdownCall(CALL_VERSION, broker.id, broker.epoch)
        reply = await _called(Calls(term.queue).controlled_shutdown(call, by_operator=True))
        if reply.error is not Error.NONE:
            raise ViewRefused(f"broker {broker.id} registered anew meanwhile", "try again")
        left, could = _led(cluster, broker.id), set(reply.remaining)
        now = await _judged(term, request)
        found = [one for one in earlier.hindrances if one.cause is StopCause.BELOW_MIN_ISR]
        found = [*now.hindrances, *(one for one in found if one.cause not in {other.cause for other in now.hindrances})]
        named = [f"{name}: {NO_OTHER_ISR if name in could else ONLY_REPLICA}" for name in left[:STAYING_MAX]]
        return Shutdown(
            broker=broker.id,
            may_stop=not found,
            leaders_moved=max(0, before - len(left)),
            staying_total=len(left),
            staying=named,
            hindrances=[hindrance_item(one) for one in found],
        )


def add_drain_routes(app: FastAPI, drains: DrainView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.post("/v1/drains", response_model=Document[Procedure])
    async def drain(wanted: DrainRequest, request: Request) -> Response:
        return document("Procedure", [await drains.drain(wanted, principal_of(request))])

    @app.post("/v1/drains/planned", response_model=Document[PlannedChange])
    async def planned(wanted: DrainRequest) -> Response:
        return document("PlannedChange", await drains.planned(wanted))

    @app.post("/v1/drains/remove", response_model=Document[CordonedBroker])
    async def undrain(wanted: UndrainRequest) -> Response:
        return document("CordonedBroker", await drains.undrain(wanted))

    @app.post("/v1/shutdowns", response_model=Document[Shutdown])
    async def shutdown(wanted: ShutdownRequest) -> Response:
        return document("Shutdown", [await drains.shutdown(wanted)])


def _draining(term: Term, brokers: frozenset[int]) -> str | None:
    """Names the procedure that drains one of the brokers at the moment; None without one."""
    engine = term.procedures.engine_or_none
    for pid, record in engine.records.items() if engine is not None else ():
        if record.kind == NAME and not record.state.is_final:
            busy = sorted(brokers.intersection(drain_of(record).brokers))
            if busy:
                return f"procedure {pid} is draining brokers {busy}: regent procedures abort {pid}, or wait for its end"
    return None


async def _judged(term: Term, request: ShutdownRequest) -> Judgement:
    brokers, accepted = frozenset([request.broker]), frozenset(request.accept)
    return await in_turns(term.cluster, lambda: stopping(term.cluster, brokers, term.cluster.min_isr, accepted))


async def _called(call: Awaitable[R]) -> R:
    try:
        return await call
    except NotController as ended:
        raise NotActive("the term ended, or its queue is full", "try again; see 'regent status'") from ended


def _led(cluster: Cluster, broker: int) -> list[TopicPartition]:
    rows = cluster.rows
    return sorted(cluster.name(i) for i in cluster.hosted(broker) if rows[i].leader == broker)


async def _planned(term: Term, brokers: Collection[int], request: DrainRequest) -> ReassignPlan:
    """Plans moves of all replicas on brokers, in a thread; refuses where a partition has no place to go."""
    c, cluster = term.controller, term.cluster
    bounds = bounds_of(request.rate_bytes_per_s, request.rate_bytes_per_s_max)
    marked = c.cluster.cordoned.union(brokers)
    sizes = await leader_sizes(term, [cluster.name(row) for row in sorted(cluster.rows_on(brokers))])
    view = await in_turns(cluster, lambda: view_in_turns(cluster, "", sizes=sizes, cordoned=marked))
    found = await asyncio.to_thread(plan, view, Decommission(tuple(brokers)))
    if found.refused:
        raise ViewRefused(f"replicas cannot leave: {_reasons(found)}", STAYING)
    made = ReassignPlan(_fitting(found), rate_bytes_per_s=request.rate_bytes_per_s, bounds=bounds)
    await refuse_slow(term, made, UNTHROTTLED)
    return made


def _reasons(found: Plan) -> str:
    """Words each reason once, with the first of its partitions and the number of the others."""
    subjects: dict[str, list[str]] = {}
    for one in found.refused:
        subjects.setdefault(one.why, []).append(one.subject)
    shown = list(subjects.items())[:REFUSED_SHOWN]
    named = [f"{s[0]}{f' and {len(s) - 1} more' if len(s) > 1 else ''}: {why}" for why, s in shown]
    more = sum(map(len, subjects.values())) - sum(len(s) for _, s in shown)
    return "; ".join((*named, *((f"and {more} more",) if more else ())))


def _fitting(found: Plan) -> tuple[PlannedMove, ...]:
    """Returns the first moves of a plan, as many as one record takes."""
    moves = tuple(PlannedMove(m.topic, m.partition, m.origin, m.target, m.bytes or 0) for m in found.moves)
    count = len(moves)
    while count and len(reassign.encode_plan(ReassignPlan(moves[:count]))) > PLAN_BYTES_MAX:
        count = count * 3 // 4
    return moves[:count]


def drain_rows(
    marks: Mapping[int, CordonedBroker], found: Mapping[int, Foretold], plan: ReassignPlan | None
) -> list[PlannedChange]:
    """Returns the rows of a drain: of each broker, then each move of its plan."""
    return [*_of_brokers(marks, found, plan), *_of_moves(plan)]


def _of_brokers(
    marks: Mapping[int, CordonedBroker], found: Mapping[int, Foretold], plan: ReassignPlan | None
) -> Iterator[PlannedChange]:
    for broker, (count, led, stay) in found.items():
        entity, mark = f"broker {broker}", marks.get(broker)
        before = "" if mark is None else "drained" if mark.drained else "cordoned"
        yield PlannedChange(entity=entity, what="mark", before=before, after="drained")
        why = "; ".join(f"{left} stay: {cause}" for cause, left in stay.items())
        after = str(sum(stay.values()))
        yield PlannedChange(entity=entity, what="leaders", before=str(led), after=after, why=why)
        if plan is not None:
            moved = sum(broker in move.origin and broker not in move.target for move in plan.moves)
            why = f"{count - moved} do not fit into one record: drain again" if moved < count else ""
            yield PlannedChange(entity=entity, what="replicas", before=str(count), after=str(count - moved), why=why)


def _of_moves(plan: ReassignPlan | None) -> Iterator[PlannedChange]:
    for move in plan.moves if plan is not None else ():
        entity = str(TopicPartition(move.topic, move.partition))
        before, after = (",".join(map(str, replicas)) for replicas in (move.origin, move.target))
        yield PlannedChange(entity=entity, what="replicas", before=before, after=after)
