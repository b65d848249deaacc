"""Shows the balancer of regions and its plans; takes requests to balance, and to switch that on and off."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import NotFound, ViewRefused, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure, time_of
from controller.regions.child_balancer import NoPlan
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator.balance_plans import BalanceMove, BalanceRun, foreseen, moves_of
from controller.regions.operator.records import message_of, unmet_of
from controller.regions.operator.requests import (
    Change,
    acting_term,
    active_term,
    caller_of,
    known,
    start,
)
from controller.regions.planner import Made
from controller.regions.procedures import balance
from controller.regions.procedures.balance import SWITCH
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask
from controller.regions.procedures.servers import MARK, MARK_TASK, UNMARK, MarkTask
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.regions.balancing.checks import Bar
from state_machines.regions.marks import MarkKind

Switch = Literal["on", "off"]
PLAN: Final = "'regent balancer status' names the latest balance, 'regent regions procedures list --kind balance' all"


class BalanceRequest(Change):
    """A balance to begin. ``force``: also while regions are in transition; these stay where they are."""

    force: bool = False


class BalancerStatus(Item):
    """The balancer of a domain."""

    state: str = Field(description="on or off")
    off_principal: str = Field("", description="who switched it off")
    off_reason: str = ""
    running: int | None = Field(None, description="procedure of the balance that is under way")
    waits_for: str = Field("", description="why no balance begins now, and the remedy; empty where one may")
    next_look: datetime | None = Field(
        None, description="when the daemon looks next, and begins a balance where one is due; absent: it does not"
    )
    next_because: str = Field("", description="why the next look comes then, or why none comes")
    period_s: float | None = Field(None, description="time between looks of the daemon; absent: commands alone balance")
    servers: int = Field(0, description="those that may get regions")
    regions_min: int = Field(0, description="regions of the one of them that has the fewest")
    regions_max: int = Field(0, description="regions of the one of them that has the most")
    uneven: bool = Field(False, description="one of them misses its share by more than the slop of the settings")
    last: int | None = Field(None, description="procedure of the balance that ended last")
    last_ended: datetime | None = None
    last_result: str = ""


class BalancerView:
    """Shows the balancer of the active term, and starts balances."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def balancer(self) -> BalancerStatus:
        """Describes the balancer."""
        term = active_term(self._domain)
        off = term.env.model.marks.get(MarkKind.OFF, SWITCH)
        problem, last = term.balancing.problem(), term.balancing.last()
        counts, look = [len(one.regions) for one in term.env.servers()], term.balancing.next_look()
        return BalancerStatus(
            state="on" if off is None else "off",
            off_principal="" if off is None else off.by,
            off_reason="" if off is None else off.reason,
            running=term.balancing.running() or None,
            waits_for="" if problem is None else str(problem),
            next_look=time_of(term.env.shown_ms(look.at_ms)),
            next_because=look.because,
            period_s=term.env.options.balancer_period_ms / 1000 or None,
            servers=len(counts),
            regions_min=min(counts, default=0),
            regions_max=max(counts, default=0),
            uneven=term.env.planner.is_uneven(),
            last=None if last is None else last.pid,
            last_ended=None if last is None else time_of(last.updated_ms),
            last_result="" if last is None else _end_of(last),
        )

    def plan(self, pid: int) -> list[BalanceMove]:
        """Lists the moves of a balance, in the order of its plan."""
        term = active_term(self._domain)
        record = term.engine.records.get(pid)
        task = None if record is None else message_of(record)
        if not isinstance(task, BalanceTask):
            raise NotFound(f"procedure {pid} is no balance, or its result is not kept any more", PLAN)
        return list(moves_of(term.env, task))

    async def run(self, request: BalanceRequest, principal: str) -> Procedure:
        """Begins a balance; in a dry run makes its plan, also while it is switched off, and says what it would do."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, balance.NAME, SWITCH)) is not None:
            return again
        problem = term.balancing.problem(force=request.force)
        if request.dry_run and problem is not None and problem.bar is Bar.OFF:
            off, problem = f"none begins now: {problem}", term.balancing.problem(force=request.force, off=False)
        else:
            off = ""
        if problem is not None:
            term.balancing.refused(problem)
            raise ViewRefused(problem.what, problem.remedy)
        if request.dry_run:
            return foreseen(await _made(term.env), term.env, off)
        data = BALANCE_TASK.encode(BalanceTask(request.reason, request.force))
        return await start(term, balance.NAME, data, caller, request, "regions of all tables: balance")

    async def switch(self, to: Switch, request: Change, principal: str) -> Procedure:
        """Switches balances on or off."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        kind = UNMARK if to == "on" else MARK
        if (again := known(term, caller, request, kind, f"{MarkKind.OFF.value} of {SWITCH}")) is not None:
            return again
        if to == "on" and term.env.model.marks.get(MarkKind.OFF, SWITCH) is None:
            raise ViewRefused("the balancer is on already", "'regent balancer status' says what a balance waits for")
        data = MARK_TASK.encode(MarkTask(MarkKind.OFF, SWITCH, why=caller.reason))
        return await start(term, kind, data, caller, request, _switched(term, to))


def add_balancer_routes(app: FastAPI, view: BalancerView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/balancer", response_model=Document[BalancerStatus])
    async def status() -> Response:
        return document("BalancerStatus", [view.balancer()])

    @app.get("/v1/regions/balancer/plans/{pid:int}", response_model=Document[BalanceMove])
    async def plan(pid: int) -> Response:
        return document("BalanceMove", view.plan(pid))

    @app.post("/v1/regions/balancer/run", response_model=Document[BalanceRun])
    async def run(wanted: BalanceRequest, request: Request) -> Response:
        return document("Procedure", [await view.run(wanted, principal_of(request))])

    @app.post("/v1/regions/balancer/{to}", response_model=Document[Procedure])
    async def switch(to: Switch, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await view.switch(to, wanted, principal_of(request))])


# -- words


def _end_of(record: Record) -> str:
    """Returns how a balance has ended."""
    return unmet_of(record) or record.error or record.result.decode("utf-8", "replace")


async def _made(env: RegionsEnv) -> Made:
    if env.planner.is_busy:
        raise ViewRefused("another plan is being made", "try again once that is done: 'regent balancer status'")
    try:
        return await env.planner.make()
    except NoPlan as error:
        raise ViewRefused(f"no plan could be made: {error}", "remove the cause, and try again") from error


def _switched(term: RegionsTerm, to: Switch) -> str:
    running = term.balancing.running()
    if to == "on":
        return "the balancer: on"
    return "the balancer: off" + (f"; procedure {running} ends after its moves under way" if running else "")
