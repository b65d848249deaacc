r"""Shows regions: lists them in pages, describes one, and lists those in transition.

Keys are text: printable ASCII as it is, any other byte, and the backslash, as ``\xNN``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, NamedTuple

from fastapi import FastAPI, Query, Response
from pydantic import Field

from controller.http.documents import Invalid, document
from controller.http.models import Document, Item
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.in_transition import Aged, oldest, wait_of
from controller.regions.operator.records import cause_of, step_of, why_of
from controller.regions.operator.requests import (
    PAGE_DEFAULT,
    After,
    Filter,
    Limit,
    active_term,
    region_of,
    server_of,
    table_of,
)
from state_machines.regions.changes import awaits_crash, is_stranded
from state_machines.regions.damage import Gap
from state_machines.regions.entities import Region as ModelRegion
from state_machines.regions.entities import start_of
from state_machines.regions.layout import key_text
from state_machines.regions.model import Regions
from state_machines.regions.states import IN_TRANSITION, RegionState

WAITING: Final = "WAITING"
"""State that operators see of a region that is stored as open, and waits for the crash of its server."""
SCANNED_ROWS_MAX: Final = 20_000
"""Regions that one page scans at most, even where few of them match."""
Place = tuple[str, bytes]
"""Table and start key, by which regions are listed."""
InTransition = Annotated[bool, Query(alias="inTransition")]


class Region(Item):
    """One region. ``end`` is empty where it has no end. ``server`` is absent while no server has, or may have, it.

    The state WAITING is that of a region that is stored as open at a process that crashed: it waits for that crash.
    In lists, keys that no region has, or several, are items with ``id`` 0 and the state HOLE or OVERLAP.
    """

    id: int
    table: str
    start: str
    end: str
    state: str
    server: str | None = None
    incarnation: int | None = None
    address: str | None = None
    token: int = Field(0, description="fence token of its present or latest open")
    sequence: int = Field(0, description="of its latest open, chosen by the service")
    pid: int | None = Field(None, description="the procedure that moves it")
    sources: list[int] = Field([], description="regions in whose data its own begins, until it is independent of them")
    pinned: str | None = Field(None, description="name of the server at which an operator wants it")
    state_age_s: float = Field(0.0, description="since the latest change of its state, or since this daemon is active")
    waits_for: str = Field("", description="in transition, or where its server crashed")
    size_bytes: int | None = Field(None, description="of its data, where its server has reported that since the open")
    files: int | None = None
    reads_per_s: float | None = Field(None, description="between two reports, half a minute apart or more")
    writes_per_s: float | None = None
    load_age_s: float | None = Field(None, description="since the latest report")


class RegionTransition(Region):
    """A region in transition, and what it waits for."""

    age_s: float = Field(description="since its procedure began, over all attempts; else since its last change")
    overdue: bool
    kind: str = Field("", description="of its procedure")
    step: str = ""
    attempts: int = 0
    reason: str = Field("", description="of its procedure")
    cause: str = Field("", description="why the latest attempt of its procedure failed")


class RegionQuery(NamedTuple):
    """A query of regions; filters together mean all of them. ``after`` is the ``next`` of the page before."""

    limit: int
    after: str | None = None
    table: str | None = None
    server: str | None = None
    state: str | None = None
    in_transition: bool = False
    stranded: bool = False


class RegionPage(NamedTuple):
    """Some regions, and the begin of the next page (None: this is the last). A page may be short, or empty."""

    items: list[Region]
    next: str | None


class RegionView:
    """Shows the regions of the active term."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def list_regions(self, query: RegionQuery) -> RegionPage:
        """Lists regions by table and start key."""
        return region_page(active_term(self._domain).env, query)

    def describe_region(self, region: int) -> Region:
        """Describes one region."""
        env = active_term(self._domain).env
        return region_item(region_of(env.model, region), env)

    async def list_transitions(self, limit: int) -> list[RegionTransition]:
        """Lists regions in transition, the oldest first."""
        term = active_term(self._domain)
        found, _ = await oldest(term.env, term.engine.records, limit)
        warning_ms = term.options.transit_warning_ms
        return [transition_item(one, term.env, overdue=one.age_ms > warning_ms) for one in found]


def add_region_routes(app: FastAPI, regions: RegionView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/list", response_model=Document[Region])
    async def listed(
        table: Filter = None,
        server: Filter = None,
        state: Filter = None,
        in_transition: InTransition = False,
        stranded: bool = False,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Response:
        page = regions.list_regions(RegionQuery(limit, after, table, server, state, in_transition, stranded))
        return document("Region", page.items, page.next)

    @app.get("/v1/regions/transitions", response_model=Document[RegionTransition])
    async def transitions(limit: Limit = PAGE_DEFAULT) -> Response:
        return document("RegionTransition", await regions.list_transitions(limit))

    @app.get("/v1/regions/{region:int}", response_model=Document[Region])
    async def described(region: int) -> Response:
        return document("Region", [regions.describe_region(region)])


# -- items


def region_item(region: ModelRegion, env: RegionsEnv) -> Region:
    """Describes a region."""
    return Region(**_fields(region, env))


def _fields(region: ModelRegion, env: RegionsEnv) -> dict[str, Any]:
    server = region.server
    return {
        "id": region.id,
        "table": region.table.name,
        "start": key_text(region.start),
        "end": key_text(region.end),
        "state": WAITING if awaits_crash(region) else region.state.name,
        "server": server.name if server is not None else None,
        "incarnation": server.incarnation if server is not None else None,
        "address": server.address if server is not None else None,
        "token": region.token,
        "sequence": region.sequence,
        "pid": region.pid or None,
        "state_age_s": max(0, env.now_ms() - region.changed_ms) / 1000,
        "sources": [one.region for one in env.model.sources.get(region.id, ())],
        "pinned": env.model.marks.pinned(region.id) or None,
        "waits_for": _waits_for(region, env),
        **_load(region, env),
    }


def _load(region: ModelRegion, env: RegionsEnv) -> dict[str, Any]:
    load = env.loads.of(region)
    if load is None:
        return {}
    rates = {"reads_per_s": load.reads_per_s, "writes_per_s": load.writes_per_s}
    return {"size_bytes": load.size_bytes, "files": load.files, "load_age_s": load.age_s, **rates}


def _waits_for(region: ModelRegion, env: RegionsEnv) -> str:
    """Returns what a region in transition, or of a crashed process, waits for; empty for others."""
    if awaits_crash(region):
        return f"the crash of server {region.server}"
    moves = region.id in env.model.transit or region.state in IN_TRANSITION
    return wait_of(region, env).what if moves else ""


def transition_item(aged: Aged, env: RegionsEnv, *, overdue: bool) -> RegionTransition:
    """Describes a region in transition with its procedure."""
    region, age_ms, record = aged
    return RegionTransition(
        **(_fields(region, env) | {"waits_for": wait_of(region, env).what}),
        age_s=age_ms / 1000,
        overdue=overdue,
        kind=record.kind if record is not None else "",
        step=step_of(record) if record is not None else "",
        attempts=record.attempts if record is not None else 0,
        reason=why_of(record) if record is not None else "",
        cause=cause_of(record, env) if record is not None else "",
    )


# -- pages


def region_page(env: RegionsEnv, query: RegionQuery) -> RegionPage:
    """Returns a page of regions by table and start key. ``next`` names the last region that was scanned."""
    matches = _in_state(query.state)
    items: list[Region] = []
    last: ModelRegion | None = None
    whole = query.state is None and query.server is None and not (query.in_transition or query.stranded)
    gaps = _Gaps(env.model, _place(env.model, query.after), query.table) if whole and env.model.damages.gaps else None
    for scanned, region in enumerate(_after(env.model, query)):
        if len(items) >= query.limit or scanned >= SCANNED_ROWS_MAX:
            return RegionPage(items, f"{last.id}:{last.table.name}" if last is not None else None)
        if gaps is not None:
            items += map(_gap_item, gaps.before(region))
        last = region
        if matches(region) and (not query.stranded or is_stranded(region)):
            items.append(region_item(region, env))
    if gaps is not None:
        items += map(_gap_item, gaps.rest())
    return RegionPage(items, None)


class _Gaps:
    """Gaps in the keys of tables, in the order of the regions between which they are. ``table``: of it alone."""

    def __init__(self, model: Regions, place: Place | None, table: str | None) -> None:
        found = [one for one in model.damages.gaps if table is None or one.table == table]
        self._left = deque(one for one in found if place is None or (one.table, one.start) > place)

    def before(self, region: ModelRegion) -> Iterator[Gap]:
        """Yields those that begin before a region, or with it."""
        while self._left and (self._left[0].table, self._left[0].start) <= _place_of(region):
            yield self._left.popleft()

    def rest(self) -> Iterator[Gap]:
        """Yields those behind the last region."""
        while self._left:
            yield self._left.popleft()


def _gap_item(gap: Gap) -> Region:
    state = "OVERLAP" if gap.overlap else "HOLE"
    return Region(id=0, table=gap.table, start=key_text(gap.start), end=key_text(gap.end), state=state)


def _in_state(named: str | None) -> Callable[[ModelRegion], bool]:
    """Returns a check for the state that operators see."""
    if named is None:
        return lambda _: True
    name = named.upper().replace("-", "_")
    if name == WAITING:
        return awaits_crash
    try:
        state = RegionState[name]
    except KeyError:
        names = ", ".join((*(one.name for one in RegionState), WAITING))
        raise Invalid(f"state {named!r} is not a state of regions", f"give one of {names}") from None
    return lambda region: region.state is state and not awaits_crash(region)


def _after(model: Regions, query: RegionQuery) -> Iterator[ModelRegion]:
    """Yields regions behind the cursor, of the smallest set that a filter leaves."""
    table = table_of(model, query.table) if query.table is not None else None
    server = server_of(model, query.server) if query.server is not None else None
    place = _place(model, query.after)
    if server is None and not query.in_transition:
        yield from _of_tables(model, None if table is None else table.name, place)
        return
    some = model.transit.values() if server is None else server.regions.values()
    wanted = [
        one
        for one in some
        if (table is None or one.table is table) and (not query.in_transition or one.id in model.transit)
    ]
    for region in sorted(wanted, key=_place_of):
        if place is None or _place_of(region) > place:
            yield region


def _of_tables(model: Regions, table: str | None, place: Place | None) -> Iterator[ModelRegion]:
    names = sorted(model.tables) if table is None else [table]
    for name in names:
        regions = model.tables[name].regions
        if place is None or name > place[0]:
            yield from regions
        elif name == place[0]:
            for at in range(bisect_right(regions, place[1], key=start_of), len(regions)):
                yield regions[at]


def _place_of(region: ModelRegion) -> Place:
    return region.table.name, region.start


def _place(model: Regions, after: str | None) -> Place | None:
    """Returns the place of a cursor; of a region that is gone by now, the end of its table."""
    if after is None:
        return None
    number, _, table = after.partition(":")
    region = model.regions.get(int(number)) if number.isdecimal() else None
    if region is None:
        return f"{table}\0", b""
    return _place_of(region)
