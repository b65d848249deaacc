"""Takes operators' requests to throttle brokers, and lists what is throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from controller.http.errors import NotActive, Refused
from controller.http.planned_models import PlannedChange
from controller.http.procedure_models import Procedure
from controller.http.throttle_models import ClearRequest, LiftRequest, ThrottleItem, ThrottleRequest, ThrottleSetting
from controller.kafka.kinds import reassign
from controller.kafka.kinds.throttle import LIFT, NAME, ThrottleOrder, encode_order, order_of
from controller.kafka.kinds.throttle_settings import Standing, entries, held_elsewhere, read, throttles_of
from controller.kafka.term.term import Term
from controller.operator.procedure_items import DOWN, broker_results
from controller.operator.procedures import ProcedureView, ending_of
from controller.operator.throttle_settings import (
    NOBODY,
    SETTINGS_MAX,
    by_owner,
    cleared,
    setting_item,
    standing,
    unread_items,
)
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.throttles import BROKERS, TOPICS, broker_places, throttle_brokers
from state_machines.decisions.throttling import all_brokers, why_not
from state_machines.procedures.record import Caller, Record


class ThrottleView:
    """Sets and lifts throttles; only the active daemon does."""

    def __init__(
        self, active: Callable[[], Term], procedures: ProcedureView, zk: Callable[[], ZooKeeper | None]
    ) -> None:
        self._active = active
        self._procedures = procedures
        self._zk = zk

    async def listed(self) -> list[ThrottleItem]:
        """Lists the throttles of operators and of plans, by pid, then the settings that no procedure owns."""
        if (zk := self._zk()) is None:
            raise NotActive("this daemon has no ZooKeeper session", "wait until it is connected, then try again")
        before = await self._procedures.records()
        found, failed = await standing(zk)
        records = {one.pid: one for one in (*before, *await self._procedures.records())}
        live = {pid: one for pid, one in records.items() if not one.state.is_final}
        settings = by_owner(found, live.values())
        items = [
            _item(record, self._procedures.causes(record.pid), settings.get(record.pid, ()))
            for record in _throttling(live.values())
        ]
        rest = settings.get(0, [])
        if not rest and not failed:
            return items
        named = [setting_item(one, None) for one in rest[:SETTINGS_MAX]] + unread_items(failed)[:SETTINGS_MAX]
        return [*items, _common(rest).model_copy(update={"settings": named})]

    async def clear(self, request: ClearRequest, principal: str) -> list[ThrottleSetting]:
        """Removes settings that no procedure owns."""
        return await cleared(self._active(), request, principal)

    async def set_rates(self, request: ThrottleRequest, principal: str) -> Procedure:
        """Starts a throttle. Refuses unknown brokers and topics, and brokers that are throttled already."""
        term = self._active()
        order = _order(term, request)
        caller = Caller(principal=principal, client="regent", reason=request.reason, nonce=request.nonce)
        known = term.procedures.engine_or_none
        if known is None or known.pid_of(caller) is None:
            _refuse(term, order)
        return await self._procedures.submit(NAME, encode_order(order), caller)

    async def planned(self, request: ThrottleRequest) -> list[PlannedChange]:
        """Lists the settings that a throttle would write, with what stands there; refuses what ``set_rates`` does."""
        term = self._active()
        order = _order(term, request)
        _refuse(term, order)
        places = broker_places(order.brokers, order.topics)
        found, failed = await read(term.controller, {entity for entity, _ in places})
        if failed:
            entity, why = min(failed.items())
            raise NotActive(f"the settings of {entity} cannot be read: {why}", "try again once ZooKeeper responds")
        wanted = throttle_brokers(order.brokers, order.topics, order.rate_bytes_per_s, entries(found), ())
        rows = [
            PlannedChange(entity=str(one.entity), what=one.setting, before=one.before or "", after=one.value)
            for one in wanted.throttles
        ]
        down = [f"broker {broker}" for broker in order.brokers if broker not in term.cluster.brokers]
        return [row.model_copy(update={"why": DOWN}) if row.entity in down else row for row in rows]

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


def _order(term: Term, request: ThrottleRequest) -> ThrottleOrder:
    if bool(request.brokers) is request.all_brokers:
        raise Refused("name brokers, or give allBrokers", "one of them, not both")
    brokers = all_brokers(term.cluster) if request.all_brokers else tuple(sorted(set(request.brokers)))
    return ThrottleOrder(brokers, request.rate_bytes_per_s, tuple(sorted(set(request.topics))))


def _refuse(term: Term, order: ThrottleOrder) -> None:
    """Raises :class:`Refused` for unknown brokers and topics, and for brokers that are throttled already."""
    found = why_not(term.cluster, order.brokers, order.topics, order.rate_bytes_per_s)
    if found is not None:
        raise Refused(*found)
    known = term.procedures.engine_or_none
    live = known.live() if known is not None else ()
    if (holder := held_elsewhere(live, 0, broker_places(order.brokers, order.topics))) is not None:
        remedy = "regent throttle lift PID ends an operator's; regent reassign set PID --throttle 0 lifts a plan's"
        raise Refused(holder, remedy)


def _throttling(records: Iterable[Record]) -> Iterator[Record]:
    for record in sorted(records, key=lambda one: one.pid):
        if not record.state.is_final and (record.kind == NAME or throttles_of(record)):
            yield record


def _common(settings: Sequence[Standing]) -> ThrottleItem:
    """Describes settings without an owner."""
    return ThrottleItem(
        kind=NOBODY,
        rate_bytes_per_s=0,
        brokers=sorted({int(one.entity.name) for one in settings if one.entity.kind == BROKERS}),
        topics=sorted({one.entity.name for one in settings if one.entity.kind == TOPICS}),
        settings_total=len(settings),
    )


def _item(record: Record, causes: Mapping[int, str], found: Sequence[Standing]) -> ThrottleItem:
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
        settings=[setting_item(one, record) for one in found[:SETTINGS_MAX]],
        settings_total=len(found),
    )
    if record.kind == reassign.NAME:
        plan = reassign.plan_of(record)
        rates: dict[str, object] = {"rate_bytes_per_s": plan.rate_bytes_per_s}
        if plan.bounds is not None:
            low, high = plan.bounds.low_bytes_per_s, plan.bounds.high_bytes_per_s
            rates |= {"rate_bytes_per_s_min": low, "rate_bytes_per_s_max": high, "rate_why": plan.bounds.why}
        return common.model_copy(update=rates)
    order = order_of(record.data)
    own = {
        "rate_bytes_per_s": order.rate_bytes_per_s,
        "brokers": list(order.brokers),
        "topics": list(order.topics),
        "results": broker_results(order, causes),
    }
    return common.model_copy(update=own)
