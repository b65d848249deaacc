"""Takes operators' requests to throttle brokers, and lists what is throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from controller.http.ports import Refused
from controller.http.procedure_models import Procedure
from controller.http.throttle_models import LiftRequest, ThrottleItem, ThrottleRequest
from controller.kinds import reassign
from controller.kinds.throttle import LIFT
from controller.kinds.throttle_holders import held_elsewhere, throttles_of
from controller.kinds.throttle_order import NAME, ThrottleOrder, encode_order, order_of
from controller.operator.procedure_items import broker_results
from controller.operator.procedures import ProcedureView, ending_of
from controller.term.term import Term
from state_machines.admin_rules.throttles import BROKERS, TOPICS, broker_places
from state_machines.decisions.throttling import all_brokers, why_not
from state_machines.procedures.record import Caller, Record


class ThrottleView:
    """Sets and lifts throttles; only the active daemon does."""

    def __init__(self, active: Callable[[], Term], procedures: ProcedureView) -> None:
        self._active = active
        self._procedures = procedures

    async def listed(self) -> list[ThrottleItem]:
        """Lists the throttles of operators and of plans, by pid."""
        return [
            _item(record, self._procedures.causes(record.pid))
            for record in _throttling(await self._procedures.records())
        ]

    async def set_rates(self, request: ThrottleRequest, principal: str) -> Procedure:
        """Starts a throttle. Refuses unknown brokers and topics, and brokers that are throttled already."""
        term = self._active()
        if bool(request.brokers) is request.all_brokers:
            raise Refused("name brokers, or give allBrokers", "one of them, not both")
        brokers = all_brokers(term.cluster) if request.all_brokers else tuple(sorted(set(request.brokers)))
        topics = tuple(sorted(set(request.topics)))
        caller = Caller(principal=principal, client="regent", reason=request.reason, nonce=request.nonce)
        known = term.procedures.engine_or_none
        if known is None or known.pid_of(caller) is None:
            found = why_not(term.cluster, brokers, topics, request.rate_bytes_per_s)
            if found is not None:
                raise Refused(*found)
            live = known.live() if known is not None else ()
            if (holder := held_elsewhere(live, 0, broker_places(brokers, topics))) is not None:
                raise Refused(
                    holder,
                    "regent throttle lift PID ends an operator's; regent reassign set PID --throttle 0 lifts a plan's",
                )
        order = ThrottleOrder(brokers, request.rate_bytes_per_s, topics)
        return await self._procedures.submit(NAME, encode_order(order), caller)

    async def lift(self, request: LiftRequest, principal: str) -> list[Procedure]:
        """Lifts throttles of operators: by pid, or all. Refuses pids that are none."""
        if bool(request.pids) is request.all_throttles:
            raise Refused("name pids, or give allThrottles", "one of them, not both")
        records = {record.pid: record for record in await self._procedures.records() if record.kind == NAME}
        pids = sorted(set(request.pids)) or sorted(pid for pid, one in records.items() if not one.state.is_final)
        wrong = [pid for pid in pids if pid not in records]
        if wrong:
            remedy = "'regent throttle show' has the pids; 'regent reassign set PID --throttle 0' lifts a plan's"
            raise Refused(f"procedures {wrong} are no throttles of operators", remedy)
        ending = ending_of("cancel", principal, request.reason)
        return [await self._procedures.commanded(pid, LIFT, ending) for pid in pids]


def _throttling(records: Iterable[Record]) -> Iterator[Record]:
    for record in sorted(records, key=lambda one: one.pid):
        if not record.state.is_final and (record.kind == NAME or throttles_of(record)):
            yield record


def _item(record: Record, causes: Mapping[int, str]) -> ThrottleItem:
    settings = throttles_of(record)
    common = ThrottleItem(
        pid=record.pid,
        kind=record.kind,
        rate_bytes_per_s=0,
        brokers=sorted({int(one.entity.name) for one in settings if one.entity.kind == BROKERS}),
        topics=sorted({one.entity.name for one in settings if one.entity.kind == TOPICS}),
        since=datetime.fromtimestamp(record.submitted_ms / 1000, UTC),
        principal=record.caller.principal,
        reason=record.caller.reason,
    )
    if record.kind == reassign.NAME:
        return common.model_copy(update={"rate_bytes_per_s": reassign.plan_of(record).rate_bytes_per_s})
    order = order_of(record.data)
    own = {
        "rate_bytes_per_s": order.rate_bytes_per_s,
        "brokers": list(order.brokers),
        "topics": list(order.topics),
        "results": broker_results(order, causes),
    }
    return common.model_copy(update=own)
