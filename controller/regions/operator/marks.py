"""Shows, sets and removes the marks of operators: cordons, holds, pins and weights."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, NotFound, ViewRefused, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure, time_of
from controller.regions.domain import RegionsDomain
from controller.regions.operator.requests import (
    NAME_MAX,
    Change,
    Name,
    acting_term,
    active_term,
    caller_of,
    known,
    named_server,
    region_of,
    server_of,
    start,
)
from controller.regions.procedures.servers import MARK, MARK_TASK, UNMARK, MarkTask, ahead_of
from controller.regions.service import name_problem
from controller.regions.term import RegionsTerm
from state_machines.regions.levels import lacking
from state_machines.regions.marks import WEIGHT_MAX, WEIGHT_MIN, MarkKind, is_weight
from state_machines.regions.model import Regions

MarkName = Literal["cordon", "hold", "pin", "weight"]


class RegionMark(Item):
    """A mark. ``subject``: a server, or the region of a pin; ``server``: to which it is pinned."""

    kind: str
    subject: str
    server: str | None = None
    until: datetime | None = Field(None, description="of a hold")
    weight: float | None = Field(None, description="share of regions beside other servers, whose is 1")
    principal: str = ""
    reason: str = ""


class MarkRequest(Change):
    """A mark to set. ``server``: of a pin; ``for_s``: of a hold, at most an hour; ``weight``: 0 without one.

    While a hold lasts, the regions of a server that does not come back have no owner.
    """

    kind: MarkName
    subject: Name
    server: Annotated[str, Field(max_length=NAME_MAX)] = ""
    for_s: Annotated[int, Field(ge=0, le=3_600)] = 0
    weight: Annotated[float, Field(ge=0, le=WEIGHT_MAX)] = 0


class MarkRemoval(Change):
    """A mark to remove."""

    kind: MarkName
    subject: Name


class MarkView:
    """Shows the marks of the active term, and starts changes of them."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def listed(self) -> list[RegionMark]:
        """Lists marks by kind and subject; a hold that is over is left out. The level has its place in the status."""
        env = active_term(self._domain).env
        return [
            RegionMark(
                kind=one.kind.value,
                subject=one.subject,
                server=(one.value or None) if one.kind is not MarkKind.WEIGHT else None,
                until=time_of(env.shown_ms(one.until_ms)),
                weight=float(one.value) if one.kind is MarkKind.WEIGHT else None,
                principal=one.by,
                reason=one.reason,
            )
            for one in env.model.marks
            if one.kind is not MarkKind.LEVEL and (not one.until_ms or one.until_ms > env.wall_ms())
        ]

    async def mark(self, request: MarkRequest, principal: str) -> Procedure:
        """Sets a mark."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (found := known(term, caller, request, MARK, _named(request))) is not None:
            return found
        kind, subject = MarkKind(request.kind), _subject(term.env.model, request)
        until_ms, weight = _until_ms(term, request), _weight(term, request)
        data = MARK_TASK.encode(MarkTask(kind, subject, request.server or weight, until_ms, caller.reason))
        ahead = f"; {why}" if (why := ahead_of(term.env.model, kind, subject)) else ""
        return await start(term, MARK, data, caller, request, f"{kind.value} of {subject}{ahead}")

    async def unmark(self, request: MarkRemoval, principal: str) -> Procedure:
        """Removes a mark."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (found := known(term, caller, request, UNMARK, _named(request))) is not None:
            return found
        kind = MarkKind(request.kind)
        if term.env.model.marks.get(kind, request.subject) is None and not _leaves(term, kind, request.subject):
            raise NotFound(f"{request.subject!r} has no {kind.value}", "see 'regent regions marks'")
        data = MARK_TASK.encode(MarkTask(kind, request.subject, why=caller.reason))
        return await start(term, UNMARK, data, caller, request, f"{kind.value} of {request.subject}, removed")


def add_mark_routes(app: FastAPI, marks: MarkView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/marks", response_model=Document[RegionMark])
    async def listed() -> Response:
        return document("RegionMark", marks.listed())

    @app.post("/v1/regions/marks", response_model=Document[Procedure])
    async def mark(wanted: MarkRequest, request: Request) -> Response:
        return document("Procedure", [await marks.mark(wanted, principal_of(request))])

    @app.post("/v1/regions/marks/remove", response_model=Document[Procedure])
    async def unmark(wanted: MarkRemoval, request: Request) -> Response:
        return document("Procedure", [await marks.unmark(wanted, principal_of(request))])


def _named(request: MarkRequest | MarkRemoval) -> str:
    """Returns a mark as the message of its procedure has it."""
    return f"{request.kind} of {named_server(request.subject)}"


def _leaves(term: RegionsTerm, kind: MarkKind, name: str) -> bool:
    """Checks whether the end of a cordon lets a server get regions again that was drained; refuses while it is."""
    server = term.env.model.current(name) if kind is MarkKind.CORDON else None
    if server is None or not server.leaving:
        return False
    for pid, key in term.env.draining.items():
        if key == server.key:
            remedy = f"'regent regions procedures abort {pid}' ends the drain, and lets it get regions again"
            raise ViewRefused(f"server {server} has no cordon: procedure {pid} drains it", remedy)
    return True


def _subject(model: Regions, request: MarkRequest) -> str:
    """Returns the subject of a mark, which must exist: a misspelt one would have no effect.

    A weight alone may come before its server, whose first regions are placed by it then; its result says so.
    """
    if request.kind == "pin":
        if not request.server:
            raise Invalid("a pin needs the name of a server", "give server")
        if not request.subject.isdecimal():
            raise Invalid(f"subject {request.subject!r} is no id of a region", "see 'regent regions list'")
        server_of(model, request.server)
        return str(region_of(model, int(request.subject)).id)
    if request.server:
        raise Invalid(f"a {request.kind} takes no server beside its subject", "leave server out")
    if request.kind == "weight" and named_server(request.subject) == request.subject:
        return _server_to_come(request.subject)
    return server_of(model, request.subject).name


def _server_to_come(name: str) -> str:
    """Returns the name of a server, which may have its weight before its first process comes."""
    if (problem := name_problem(name)) is not None:
        raise Invalid(problem, "give the name with which the server will register")
    return name


def _until_ms(term: RegionsTerm, request: MarkRequest) -> int:
    if (request.kind == "hold") is not bool(request.for_s):
        raise Invalid("a hold needs its time, and no other mark has one", "give forS, at most 3600, for a hold alone")
    return term.env.wall_ms() + request.for_s * 1000 if request.for_s else 0


def _weight(term: RegionsTerm, request: MarkRequest) -> str:
    """Returns a weight as it is stored, empty for another mark."""
    if (request.kind == "weight") is not bool(request.weight):
        raise Invalid("a weight needs its number, and no other mark has one", "give weight for a weight alone")
    if request.kind != "weight":
        return ""
    value = f"{request.weight:.6f}".rstrip("0").rstrip(".")
    if not is_weight(value):
        raise Invalid(f"weight {request.weight:g} is out of range", f"give {WEIGHT_MIN:g} to {WEIGHT_MAX:g}")
    if (lacks := lacking(term.env.model.marks.level, request.kind)) is not None:
        raise ViewRefused(*lacks)
    return value
