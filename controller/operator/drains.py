"""Takes operators' requests to drain brokers, to shut one down, and to undo that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from brokers.listener.controller_listener import NotController
from brokers.wire.calls import ControlledShutdownCall
from brokers.wire.errors import Error
from controller.http.drain_models import DrainRequest, UndrainRequest
from controller.http.errors import NotActive, Refused
from controller.http.planned_models import PlannedChange
from controller.http.procedure_models import CordonedBroker, Procedure
from controller.http.shutdown_models import STAYING_MAX, Shutdown, ShutdownRequest
from controller.kafka.kinds import reassign
from controller.kafka.kinds.drain import NAME, drain_of, encode_drain
from controller.kafka.requests.calls import Calls, Undrain
from controller.kafka.term.term import Term
from controller.operator.cordons import CordonView
from controller.operator.drain_rows import drain_rows
from controller.operator.plan_requests import UNTHROTTLED, bounds_of, leader_sizes, refuse_slow
from controller.operator.procedures import ProcedureView
from controller.operator.restarts import hindrance_item, in_turns
from state_machines.decisions.drain import Drain, foretold, why_not
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

R = TypeVar("R")


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
                raise Refused(*found)
            moves = await _planned(term, brokers, request) if request.replicas else None
        return await self._procedures.submit(NAME, encode_drain(Drain(brokers, plan=moves)), caller)

    async def planned(self, request: DrainRequest) -> list[PlannedChange]:
        """Lists what a drain would change; refuses what it refuses, and changes nothing."""
        term = self._active()
        cluster, brokers = term.cluster, tuple(sorted(set(request.brokers)))
        if (found := why_not(cluster, brokers)) is not None:
            raise Refused(*found)
        if (busy := _draining(term, frozenset(brokers))) is not None:
            raise Refused(busy, "see 'regent procedures list --live', then try again")
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
            raise Refused(why_not, "see 'regent procedures list --live', then try again")
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
            raise Refused(f"broker {request.broker} is not registered", "correct the id; a dead broker has stopped")
        before = len(_led(cluster, broker.id))
        earlier = await _judged(term, request)
        call = ControlledShutdownCall(CALL_VERSION, broker.id, broker.epoch)
        reply = await _called(Calls(term.queue).controlled_shutdown(call, by_operator=True))
        if reply.error is not Error.NONE:
            raise Refused(f"broker {broker.id} registered anew meanwhile", "try again")
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
        raise Refused(f"replicas cannot leave: {_reasons(found)}", STAYING)
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
