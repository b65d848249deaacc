"""Shows tables, and takes requests to create, enable, disable and delete them: checks these, and starts procedures."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, NamedTuple

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, ViewRefused, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.procedures.engine import DATA_BYTES_MAX, Engine
from controller.process.wording import counted
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator import growth, ways
from controller.regions.operator.counts import OfTables, of_tables
from controller.regions.operator.progress import holders, waits_behind
from controller.regions.operator.records import message_of
from controller.regions.operator.requests import (
    PAGE_DEFAULT,
    After,
    Change,
    Limit,
    Name,
    acting_term,
    active_term,
    caller_of,
    known,
    refuse,
    start,
    table_of,
)
from controller.regions.operator.table_checks import (
    TableAct,
    check_creation,
    met_by,
    table_problem,
    table_remedy,
)
from controller.regions.procedures import tables
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.procedures.record import Record
from state_machines.regions.changes import OPTIONS_MAX, is_outdated
from state_machines.regions.damage import Damages
from state_machines.regions.entities import Table as ModelTable
from state_machines.regions.growth import option_problem
from state_machines.regions.layout import NotAKey, count_of, key_of, layout_problem, name_problem
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, TableKind

TABLE_KINDS: Final[Mapping[TableAct, str]] = {
    "enable": "enable_table",
    "disable": "disable_table",
    "delete": "delete_table",
}
SPLITS_MAX: Final = 10_000
"""Split keys of one request."""
KEY_CHARS_MAX: Final = 4_096
"""Characters of a key of 1,024 bytes, all of them escaped."""
GAPS_SHOWN_MAX: Final = 3
"""Gaps in the keys of a table that its item describes; the others are counted."""
SCANNED_ROWS_MAX: Final = 20_000
"""Regions of the tables of one page, at most, unless one alone has more."""
S = RegionState
Key = Annotated[str, Field(max_length=KEY_CHARS_MAX)]
OptionValue = Annotated[str, Field(max_length=1_000)]


class Table(Item):
    """A table, and its regions in numbers."""

    name: str
    namespace: str
    kind: str = Field(description="meta, system or user: the order in which regions are assigned")
    state: str
    regions: int
    open_regions: int
    waiting_regions: int = Field(0, description="open at a process that crashed: they wait for that crash")
    in_transition: int
    failed_regions: int
    stranded_regions: int = Field(0, description="of an enabled table, not open, and moved by no procedure")
    gaps: int = Field(0, description="ranges of keys that no region has, or several: no route is given there")
    damage: str = Field("", description="a row of the table that is left out, and the first gaps")
    outdated_regions: int = Field(0, description="of one table alone: open with options that it had before")
    options: dict[str, str] = {}
    growth: str = Field("", description="of one table alone: when its regions are split and merged by themselves")
    note: str = Field("", description="of one table alone: the lock that a change of it waits for, and what ends that")


class TablePage(NamedTuple):
    """Some tables, and the begin of the next page (None: this is the last)."""

    items: list[Table]
    next: str | None


class TableCreation(Change):
    """A table to create: with ``splits``, its regions begin at these keys; or with ``uniform`` regions.

    Uniform regions divide the keys of eight hexadecimal digits evenly. Without either the table has one region.
    """

    name: Name
    splits: Annotated[list[Key], Field(max_length=SPLITS_MAX)] = []
    uniform: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    kind: Literal["meta", "system", "user"] = "user"
    options: Annotated[dict[Name, OptionValue], Field(max_length=OPTIONS_MAX)] = {}


class TableView:
    """Shows the tables of the active term, and starts changes of them."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def list_tables(self, limit: int, after: str | None) -> TablePage:
        """Lists tables by name."""
        return table_page(active_term(self._domain).env.model, limit, after)

    def describe_table(self, table: str) -> Table:
        """Describes one table."""
        term = active_term(self._domain)
        env, engine = term.env, term.engine
        found = table_item(table_of(env.model, table), of_tables(env.model), env.model.damages)
        locks = engine.locks()
        notes = (
            f"procedure {record.pid} ({record.kind}): {waits}; "
            f"{ways.behind(holders(record, locks, engine), env, engine)}"
            for record in changing(table, engine)
            if (waits := waits_behind(record, locks, engine))
        )
        grows = growth.of_table(env.model.tables[table], term.growth, env)
        outdated = sum(map(is_outdated, env.model.tables[table].regions))
        update = {"growth": grows, "outdated_regions": outdated, "note": "; ".join(notes)}
        return found.model_copy(update=update)

    async def create_table(self, request: TableCreation, principal: str) -> Procedure:
        """Creates a table."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, tables.CREATE, request.name)) is not None:
            return again
        try:
            splits = tuple(map(key_of, request.splits))
        except NotAKey as error:
            raise Invalid(f"splits: {error}", "write other bytes than printable ASCII as \\xNN") from error
        if (problem := name_problem(request.name)) is not None:
            raise Invalid(problem, "give another name")
        if (problem := layout_problem(splits, request.uniform)) is not None:
            raise Invalid(problem, "correct it; keys are text, other bytes in them \\xNN")
        if (problem := option_problem(request.options)) is not None:
            raise Invalid(problem, "correct it, or leave it out: the settings hold then")
        check_creation(term.env.model, request.name)
        kind = TableKind[request.kind.upper()]
        task = TableTask(request.name, kind, request.options, splits, request.uniform, why=request.reason)
        count = count_of(splits, request.uniform)
        about = f"table {request.name} with {counted(count, 'region')}"
        if len(data := TABLE_TASK.encode(task)) > DATA_BYTES_MAX:
            why = f"the table has {len(data):,} bytes of split keys and options, at most {DATA_BYTES_MAX:,} are stored"
            raise ViewRefused(why, "give fewer or shorter split keys or options")
        return await start(term, tables.CREATE, data, caller, request, about)

    async def change_table(self, act: TableAct, table: str, request: Change, principal: str) -> Procedure:
        """Enables, disables or deletes a table."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, TABLE_KINDS[act], table)) is not None:
            return again
        model, found = term.env.model, table_of(term.env.model, table)
        met = met_by(found, act, term.engine)
        refuse(table_problem(model, found, act, met), table_remedy(model, found, act, met))
        data = TABLE_TASK.encode(TableTask(table, why=request.reason))
        about = f"table {table} with {counted(len(found.regions), 'region')}: {act}"
        return await start(term, TABLE_KINDS[act], data, caller, request, about)


def add_table_routes(app: FastAPI, view: TableView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/tables", response_model=Document[Table])
    async def tables(limit: Limit = PAGE_DEFAULT, after: After = None) -> Response:
        page = view.list_tables(limit, after)
        return document("Table", page.items, page.next)

    @app.get("/v1/regions/tables/{table:path}", response_model=Document[Table])
    async def table(table: str) -> Response:
        return document("Table", [view.describe_table(table)])

    @app.post("/v1/regions/tables", response_model=Document[Procedure])
    async def create(wanted: TableCreation, request: Request) -> Response:
        return document("Procedure", [await view.create_table(wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/{act}", response_model=Document[Procedure])
    async def change(table: str, act: TableAct, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await view.change_table(act, table, wanted, principal_of(request))])


# -- items


def table_page(model: Regions, limit: int, after: str | None) -> TablePage:
    """Returns a page of tables by name."""
    names = sorted(model.tables)
    counts = of_tables(model)
    items: list[Table] = []
    scanned = 0
    for name in names if after is None else names[bisect_right(names, after) :]:
        if items and (len(items) >= limit or scanned >= SCANNED_ROWS_MAX):
            return TablePage(items, items[-1].name)
        table = model.tables[name]
        items.append(table_item(table, counts, model.damages))
        scanned += len(table.regions)
    return TablePage(items, None)


def table_item(table: ModelTable, counts: OfTables, damages: Damages) -> Table:
    """Describes a table."""
    waiting = counts.waiting[table.name]
    gaps = damages.of_keys(table.name)
    rows = [why] if (why := damages.of_table(table.name)) else []
    return Table(
        name=table.name,
        namespace=table.namespace,
        kind=table.kind.name.lower(),
        state=table.state.name.lower(),
        regions=len(table.regions),
        open_regions=table.count(S.OPEN) - waiting,
        waiting_regions=waiting,
        in_transition=counts.moving[table.name],
        failed_regions=table.count(S.FAILED_OPEN),
        stranded_regions=counts.stranded[table.name],
        gaps=len(gaps),
        damage="; ".join([*rows, *map(str, gaps[:GAPS_SHOWN_MAX])]),
        options=table.options,
    )


def changing(table: str, engine: Engine[RegionsEnv]) -> Iterator[Record]:
    """Yields the changes of a table that go on, those that wait among them."""
    for record in engine.live():
        task = message_of(record)
        if isinstance(task, TableTask) and task.table == table:
            yield record
