"""Takes requests to assign or unassign many regions by their ids: one procedure for all, which leaves out what it must.

A region that cannot be changed refuses nothing: the procedure counts it. A dry run says which these are, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.process.wording import counted
from controller.regions.domain import RegionsDomain
from controller.regions.operator.records import subject_of
from controller.regions.operator.requests import Change, acting_term, caller_of, known, start
from controller.regions.procedures import by_ids
from controller.regions.procedures.by_ids import BY_IDS
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions import choosing
from state_machines.regions.choosing import IDS_MAX

ListAct = Literal["assign", "unassign"]
LIST_KINDS: Final[Mapping[ListAct, str]] = {"assign": by_ids.ASSIGN, "unassign": by_ids.CLOSE}
ID_MAX: Final = (1 << 63) - 1
"""The highest id that a store takes."""
Id = Annotated[int, Field(ge=1, le=ID_MAX)]


class RegionList(Change):
    """Regions that are opened, or closed, by their ids, in any order; one that is named twice counts once."""

    regions: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)]


class RegionLists:
    """Starts changes of many regions on the active daemon."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def change_regions(self, act: ListAct, request: RegionList, principal: str) -> Procedure:
        """Assigns or unassigns regions."""
        term, caller, kind = acting_term(self._domain), caller_of(request, principal), LIST_KINDS[act]
        task = by_ids.naming(request.regions, request.reason)
        data = BY_IDS.encode(task)
        if (again := known(term, caller, request, kind, subject_of(_described(kind, data)))) is not None:
            return again
        about = _planned(term, kind, task.ids) if request.dry_run else ""
        return await start(term, kind, data, caller, request, about)


def add_region_list_routes(app: FastAPI, lists: RegionLists) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.post("/v1/regions/assign", response_model=Document[Procedure])
    async def assign_some(wanted: RegionList, request: Request) -> Response:
        return document("Procedure", [await lists.change_regions("assign", wanted, principal_of(request))])

    @app.post("/v1/regions/unassign", response_model=Document[Procedure])
    async def unassign_some(wanted: RegionList, request: Request) -> Response:
        return document("Procedure", [await lists.change_regions("unassign", wanted, principal_of(request))])


def _described(kind: str, data: bytes) -> Record:
    """Returns a record such as the procedure would have, for its subject."""
    return Record(0, kind, State.RUNNABLE, 0, 0, 0, data=data)


def _planned(term: RegionsTerm, kind: str, ids: tuple[int, ...]) -> str:
    """Says how many of the regions would be changed, and why others would be left out."""
    chosen, left = by_ids.judged(term.env, kind, ids)
    would = f"{len(chosen):,} of {counted(len(ids), 'region')} would be {by_ids.VERBS[kind]}"
    return ", ".join(filter(None, (would, choosing.in_words(choosing.added((), left)))))
