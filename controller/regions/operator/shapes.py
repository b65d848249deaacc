"""Takes requests to split and to merge regions, and shows the regions that were: until their data is discarded."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator import ways
from controller.regions.operator.requests import (
    PAGE_DEFAULT,
    Change,
    Filter,
    Limit,
    acting_term,
    active_term,
    caller_of,
    known,
    planned,
    refuse,
    region_of,
    requested,
    start,
)
from controller.regions.procedures import discard, merge, split
from controller.regions.procedures.reshaping import Problem
from controller.regions.term import RegionsTerm
from state_machines.regions.heirs import MERGED_MAX, MERGED_MIN
from state_machines.regions.layout import KEY_BYTES_MAX, NotAKey, key_of, key_text
from state_machines.regions.shapes import ParentRow, end_of

KEY_CHARS_MAX = 4 * KEY_BYTES_MAX
"""Characters of a key as text."""
AfterId = Annotated[int, Query(ge=0)]


class SplitRequest(Change):
    r"""A region to split. ``key``: first key of the second half; empty: its server names the one that halves the data.

    Keys are text: printable ASCII as it is, any other byte, and the backslash, as ``\xNN``.
    """

    key: Annotated[str, Field(max_length=KEY_CHARS_MAX)] = ""


class MergeRequest(Change):
    """Neighbours of one table that become one region, in any order."""

    regions: Annotated[list[int], Field(min_length=MERGED_MIN, max_length=MERGED_MAX)]


class RegionParent(Item):
    """A region that was split, merged or truncated, and whose data heirs may need still."""

    id: int
    table: str
    start: str
    end: str
    state: str
    heirs: list[int]
    dependent: list[int] = Field(description="regions whose data begins in its data: they are not independent yet")
    age_s: float = Field(description="since its keys went to others, or since this daemon is active")
    waits_for: str = ""


class ShapeView:
    """Starts splits and merges on the active daemon, and shows the regions that are no more."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def split_region(self, region: int, request: SplitRequest, principal: str) -> Procedure:
        """Splits a region."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, split.NAME, str(region))) is not None:
            return again
        found, key = region_of(term.env.model, region), _key_of(request.key)
        _refuse(split.split_problem(term.env, found, key), term)
        at = f"at {key_text(key)!r}" if key else "at the key that its server names"
        about = f"region {found}: split {at}"
        if request.dry_run:
            return planned(split.NAME, about)
        data = await requested(split.splitting(term.env, found, key, request.reason))
        return await start(term, split.NAME, data, caller, request, about)

    async def merge_regions(self, request: MergeRequest, principal: str) -> Procedure:
        """Merges neighbours."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        subject = " ".join(map(str, sorted(request.regions)))
        if (again := known(term, caller, request, merge.NAME, subject)) is not None:
            return again
        found = [region_of(term.env.model, one) for one in request.regions]
        _refuse(merge.merge_problem(term.env, found), term)
        about = f"regions {subject} of {found[0].table.name}: merge"
        if request.dry_run:
            return planned(merge.NAME, about)
        data = await requested(merge.merging(term.env, found, request.reason))
        return await start(term, merge.NAME, data, caller, request, about)

    def list_parents(
        self, limit: int, after: int = 0, table: str | None = None
    ) -> tuple[list[RegionParent], str | None]:
        """Lists regions that were split or merged by id, after ``after``; returns the next page's begin, too."""
        env = active_term(self._domain).env
        needed = discard.dependents(env.model)
        some = sorted(
            (one for one in env.model.parents.values() if one.id > after and table in (None, one.table)),
            key=lambda one: one.id,
        )
        items = [parent_item(env, one, needed) for one in some[:limit]]
        return items, str(items[-1].id) if len(some) > limit else None


def add_shape_routes(app: FastAPI, shapes: ShapeView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.post("/v1/regions/{region:int}/split", response_model=Document[Procedure])
    async def split_one(region: int, wanted: SplitRequest, request: Request) -> Response:
        return document("Procedure", [await shapes.split_region(region, wanted, principal_of(request))])

    @app.post("/v1/regions/merge", response_model=Document[Procedure])
    async def merge_some(wanted: MergeRequest, request: Request) -> Response:
        return document("Procedure", [await shapes.merge_regions(wanted, principal_of(request))])

    @app.get("/v1/regions/parents", response_model=Document[RegionParent])
    async def parents(table: Filter = None, limit: Limit = PAGE_DEFAULT, after: AfterId = 0) -> Response:
        return document("RegionParent", *shapes.list_parents(limit, after, table))


def parent_item(env: RegionsEnv, parent: ParentRow, needed: dict[int, list[int]]) -> RegionParent:
    """Describes a region that was split or merged. ``needed``: regions whose data begins in that of others."""
    return RegionParent(
        id=parent.id,
        table=parent.table,
        start=key_text(parent.start),
        end=key_text(parent.end),
        state=end_of(parent),
        heirs=list(parent.heirs),
        dependent=needed.get(parent.id, []),
        age_s=max(0, env.now_ms() - env.parents_ms[parent.id]) / 1000,
        waits_for=discard.waits_for(env.model, parent.id, needed),
    )


def _refuse(problem: Problem | None, term: RegionsTerm) -> None:
    if problem is not None:
        refuse(problem.what, ways.of_wait(problem.pid, term.engine) if problem.pid else problem.remedy)


def _key_of(text: str) -> bytes:
    try:
        return key_of(text)
    except NotAKey as error:
        raise Invalid(f"key: {error}", "write it as 'regent regions describe' does") from error
