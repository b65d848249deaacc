"""Reports on all regions: what is wrong with the catalog, which procedure has that, and the command that mends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import FastAPI, Query, Response
from pydantic import Field

from controller.http.documents import NotActive, ViewRefused, document
from controller.http.models import Document, Item
from controller.process.wording import counted
from controller.regions.domain import RegionsDomain
from controller.regions.operator.counts import halted
from controller.regions.operator.records import message_of, step_of
from controller.regions.operator.requests import PAGE_DEFAULT, Filter, Limit, active_term, table_of
from controller.regions.procedures import assign, crash
from controller.regions.procedures.messages import Crash, Many, Move, RegionWork, Shape, TableTask, Transit
from controller.regions.procedures.repair import Repair
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.regions.findings import Finding, FindingKind, Findings, Held, Scope
from state_machines.regions.layout import key_text
from state_machines.regions.report import Judge
from state_machines.regions.transit import RETRIES_AT_ONCE

ROWS_TOGETHER: Final = 2_000
"""Procedures, or regions that are about to be picked up, that one turn of the loop looks at."""
DESCRIBED_TOGETHER: Final = 500
"""Findings that one turn describes: that takes longer than to judge them."""
T = TypeVar("T")
OfKind = Annotated[FindingKind | None, Query()]


class RegionFinding(Item):
    """One thing that is wrong. ``mend``: the command, or what else mends it."""

    kind: str
    what: str
    mend: str
    table: str = ""
    regions: list[int] = []
    start: str = Field("", description="first of the keys that it is about, as text")
    end: str = Field("", description="the key behind the last one; empty without an end")
    server: str = Field("", description="the process that it is about, or that has the region")
    pid: int | None = Field(None, description="the procedure that has the region or the table")
    procedure: str = Field("", description="kind of that procedure")
    step: str = ""


class RegionsReport(Item):
    """What is wrong with the regions. ``findings``: the first of them; the others are counted."""

    findings: list[RegionFinding]
    total: int = Field(description="findings, of all kinds")
    counts: dict[str, int] = Field(description="findings by kind; kinds without one are absent")
    in_work: int = Field(description="regions that are not open, or whose server crashed, and that a procedure has")
    tables: int
    regions: int


class ReportView:
    """Makes reports at the request of operators, one at a time."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain
        self._running = False

    async def report(self, scope: Scope) -> RegionsReport:
        """Judges the model of the active term in parts; other work goes on between them."""
        term = active_term(self._domain)
        if scope.table and scope.table not in term.env.model.damages.tables:
            table_of(term.env.model, scope.table)
        if self._running:
            raise ViewRefused("a report is being made already", "wait some seconds, then try again")
        self._running = True
        try:
            return await self._judged(term, scope)
        finally:
            self._running = False

    async def _judged(self, term: RegionsTerm, scope: Scope) -> RegionsReport:
        judge = Judge(term.env.model, scope._replace(had=_had(term)))
        for _ in judge.of_keys():
            await self._turn(term)
        about, records = About(), term.engine.records
        for some in _in_parts(list(records)):
            about.take(record for pid in some if (record := records.get(pid)) is not None)
            await self._turn(term)
        for left in _in_parts(list(term.env.left)):
            about.soon.update(one.region.id for one in left)
            await self._turn(term)
        for _ in judge.of_rest(held_of(term, about)):
            await self._turn(term)
        items: list[RegionFinding] = []
        for findings in _in_parts(judge.found.listed, DESCRIBED_TOGETHER):
            items += described(findings, about, records.get)
            await self._turn(term)
        return report_item(judge.found, items)

    async def _turn(self, term: RegionsTerm) -> None:
        """Lets other work go on. The model of a term that has ended comes apart: nothing can be said about it."""
        await asyncio.sleep(0)
        if self._domain.term is not term:
            raise NotActive("the term ended while it was judged", "try again in some seconds")


def _had(term: RegionsTerm) -> dict[int, str]:
    """Returns the regions without a row that processes have listed in this term, with the names of these."""
    model = term.env.model
    return {
        id_: name
        for id_, (name, _) in term.env.claimants.had.items()
        if id_ not in model.regions and id_ not in model.parents
    }


def _in_parts(rows: Sequence[T], together: int = ROWS_TOGETHER) -> Iterator[Sequence[T]]:
    return (rows[at : at + together] for at in range(0, len(rows), together))


def add_report_route(app: FastAPI, view: ReportView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/regions/report", response_model=Document[RegionsReport])
    async def report(table: Filter = None, kind: OfKind = None, limit: Limit = PAGE_DEFAULT) -> Response:
        return document("RegionsReport", [await view.report(Scope(table or "", kind, limit))])


# -- what goes on


class About:
    """The regions, tables and processes that live procedures are about, with their pids.

    ``soon``: regions that the daemon is about to have picked up. ``failing``: those whose opens fail again and again,
    with what the latest server said.
    """

    def __init__(self) -> None:
        self.regions: dict[int, int] = {}
        self.tables: dict[str, int] = {}
        self.servers: dict[tuple[str, int], int] = {}
        self.soon: set[int] = set()
        self.failing: dict[int, str] = {}

    def take(self, records: Iterable[Record]) -> None:
        """Takes procedures; those that have ended are left out."""
        for record in records:
            if not record.state.is_final:
                self._take(record)

    def _take(self, record: Record) -> None:
        match message_of(record):
            case Transit(region) as task if record.kind == assign.NAME and task.retries > RETRIES_AT_ONCE:
                self.regions.setdefault(region, record.pid)
                self.failing[region] = task.failed or f"{counted(task.retries, 'attempt')} failed"
            case Transit(region) | Move(region) | RegionWork(region) | Repair(region):
                self.regions.setdefault(region, record.pid)
            case Shape(parents=parents, heirs=heirs):
                self.regions |= dict.fromkeys((*parents, *heirs), record.pid)
            case Many(ids=ids):
                self.regions = dict.fromkeys(ids, record.pid) | self.regions
            case TableTask(table):
                self.tables[table] = record.pid
            case Crash(server, incarnation) if record.kind == crash.NAME:
                self.servers[server, incarnation] = record.pid
            case _:
                pass


def held_of(term: RegionsTerm, about: About) -> Held:
    """Returns what goes on in a term."""
    env, engine = term.env, term.engine

    def goes_on(pid: int) -> bool:
        record = engine.records.get(pid)
        return record is not None and not record.state.is_final and pid not in engine.parked

    return Held(
        goes_on,
        about.regions,
        about.servers,
        env.crashing,
        about.soon,
        env.claimants.claimed(),
        halted(env.model, engine.records.values()),
        about.failing,
    )


# -- items


def report_item(found: Findings, items: list[RegionFinding]) -> RegionsReport:
    """Describes what was found. ``items``: what is listed of it."""
    return RegionsReport(
        findings=items,
        total=found.counts.total(),
        counts={kind.value: found.counts[kind] for kind in FindingKind if found.counts[kind]},
        in_work=found.in_work,
        tables=found.tables,
        regions=found.regions,
    )


def described(some: Iterable[Finding], about: About, record_of: Callable[[int], Record | None]) -> list[RegionFinding]:
    """Describes findings, with the procedures that have their regions or tables."""
    return [_item(one, about.tables, record_of) for one in some]


def _item(found: Finding, tables: Mapping[str, int], record_of: Callable[[int], Record | None]) -> RegionFinding:
    pid = found.pid or tables.get(found.table, 0)
    record = record_of(pid) if pid else None
    return RegionFinding(
        kind=found.kind.value,
        what=found.what,
        mend=found.mend,
        table=found.table,
        regions=list(found.regions),
        start=key_text(found.start),
        end=key_text(found.end),
        server=found.server,
        pid=pid or None,
        procedure=record.kind if record is not None else "",
        step=step_of(record) if record is not None else "",
    )
