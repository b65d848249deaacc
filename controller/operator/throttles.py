"""Takes operators' requests to throttle brokers, and lists what is throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import NotActive, ViewRefused, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.http.procedures import PlannedChange, Procedure, ServerResult
from controller.kafka.procedures import reassign
from controller.kafka.procedures.throttle import LIFT, NAME, ThrottleOrder, encode_order, order_of
from controller.kafka.procedures.throttle_settings import Standing, entries, held_elsewhere, read, throttles_of
from controller.kafka.term.term import Term
from controller.operator.brokers import BrokerId
from controller.operator.procedure_items import DOWN, broker_results
from controller.operator.procedures import ProcedureView
from controller.operator.throttle_settings import (
    NOBODY,
    SETTINGS_MAX,
    ClearRequest,
    ThrottleSetting,
    TopicName,
    by_owner,
    cleared,
    setting_item,
    standing,
    unread_items,
)
from controller.procedures.refusals import ending_of
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.throttles import BROKERS, TOPICS, broker_places, throttle_brokers
from state_machines.decisions.throttling import BROKERS_MAX, TOPICS_MAX, all_brokers, why_not
from state_machines.procedures.record import Caller, Record


class ThrottleRequest(RequestItem):
    """A throttle to set. ``nonce``: the same caller's same nonce never sets a second one."""

    brokers: list[BrokerId] = Field([], max_length=BROKERS_MAX, description="empty with allBrokers")
    all_brokers: bool = Field(False, description="every broker that is registered or hosts a replica")
    rate_bytes_per_s: Annotated[int, Field(ge=1, le=2**63 - 1)] = Field(description="of each broker and direction")
    topics: list[TopicName] = Field([], max_length=TOPICS_MAX, description="all their replicas are throttled")
    nonce: Words = ""
    reason: Words = ""


class LiftRequest(RequestItem):
    """Throttles to lift, by the pids of their procedures; ``allThrottles``: those of operators, not those of plans."""

    pids: list[Annotated[int, Field(ge=1)]] = Field([], max_length=1_000)
    all_throttles: bool = False
    reason: Words = ""


class ThrottleItem(Item):
    """A throttle in force, or about to be: an operator's, a plan's, or settings that no procedure owns."""

    pid: int | None = None
    kind: str = Field(description="throttle: an operator's; reassign: a plan's; nobody: settings without an owner")
    rate_bytes_per_s: int
    rate_bytes_per_s_min: int | None = Field(None, description="lower bound of a rate that changes by itself")
    rate_bytes_per_s_max: int | None = Field(None, description="its upper bound")
    rate_why: str = Field("", description="cause of its present value")
    brokers: list[int]
    topics: list[str] = Field([], description="topics whose throttled replicas it sets")
    step: str = ""
    results: list[ServerResult] = Field([], description="the rate of each broker, as the broker reports it")
    since: datetime | None = None
    principal: str = ""
    reason: str = ""
    settings: list[ThrottleSetting] = Field([], description="settings in ZooKeeper that it owns, the first 1,000")
    settings_total: int = 0


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
            raise ViewRefused("name pids, or give allThrottles", "one of them, not both")
        records = {record.pid: record for record in await self._procedures.records() if record.kind == NAME}
        pids = sorted(set(request.pids)) or sorted(pid for pid, one in records.items() if not one.state.is_final)
        wrong = [pid for pid in pids if pid not in records]
        if wrong:
            remedy = "'regent throttle show' has the pids; 'regent reassign set PID --throttle 0' lifts a plan's"
            raise ViewRefused(f"procedures {wrong} are no throttles of operators", remedy)
        ending = ending_of("cancel", principal, request.reason)
        return [await self._procedures.commanded(pid, LIFT, ending) for pid in pids]


def add_throttle_routes(app: FastAPI, throttles: ThrottleView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/throttles", response_model=Document[ThrottleItem])
    async def listed() -> Response:
        return document("Throttle", await throttles.listed())

    @app.post("/v1/throttles", response_model=Document[Procedure])
    async def set_rates(wanted: ThrottleRequest, request: Request) -> Response:
        return document("Procedure", [await throttles.set_rates(wanted, principal_of(request))])

    @app.post("/v1/throttles/planned", response_model=Document[PlannedChange])
    async def planned(wanted: ThrottleRequest) -> Response:
        return document("PlannedChange", await throttles.planned(wanted))

    @app.post("/v1/throttles/lift", response_model=Document[Procedure])
    async def lift(wanted: LiftRequest, request: Request) -> Response:
        return document("Procedure", await throttles.lift(wanted, principal_of(request)))

    @app.post("/v1/throttles/clear", response_model=Document[ThrottleSetting])
    async def clear(wanted: ClearRequest, request: Request) -> Response:
        return document("ThrottleSetting", await throttles.clear(wanted, principal_of(request)))


def _order(term: Term, request: ThrottleRequest) -> ThrottleOrder:
    if bool(request.brokers) is request.all_brokers:
        raise ViewRefused("name brokers, or give allBrokers", "one of them, not both")
    brokers = all_brokers(term.cluster) if request.all_brokers else tuple(sorted(set(request.brokers)))
    return ThrottleOrder(brokers, request.rate_bytes_per_s, tuple(sorted(set(request.topics))))


def _refuse(term: Term, order: ThrottleOrder) -> None:
    """Raises :class:`ViewRefused` for unknown brokers and topics, and for brokers that are throttled already."""
    found = why_not(term.cluster, order.brokers, order.topics, order.rate_bytes_per_s)
    if found is not None:
        raise ViewRefused(*found)
    known = term.procedures.engine_or_none
    live = known.live() if known is not None else ()
    if (holder := held_elsewhere(live, 0, broker_places(order.brokers, order.topics))) is not None:
        remedy = "regent throttle lift PID ends an operator's; regent reassign set PID --throttle 0 lifts a plan's"
        raise ViewRefused(holder, remedy)


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
