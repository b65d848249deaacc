"""Takes requests to store the row of a lost region again, and to forget what cannot be right of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, ViewRefused, document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.process.wording import named
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator.records import CODECS, WHAT, message_of
from controller.regions.operator.requests import (
    Change,
    Name,
    acting_term,
    caller_of,
    known,
    needs_reason,
    refuse,
    start,
    table_of,
)
from controller.regions.procedures import adopting, discard, fixing, forgetting
from controller.regions.procedures.messages import SHAPE, TABLE_TASK, Shape, TableTask
from controller.regions.procedures.repair import REPAIR, Repair
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.regions.adopted_keys import adopted_keys, said, told_of
from state_machines.regions.damage import RowKind
from state_machines.regions.entities import Table
from state_machines.regions.findings import Refusal
from state_machines.regions.heirs import Range
from state_machines.regions.layout import KEY_BYTES_MAX, NotAKey, count_of, key_of
from state_machines.regions.misnamed import heirs_without_sources
from state_machines.regions.repairs import Forgotten, adoption_problem, forgettable

KEY_CHARS_MAX: Final = 4 * KEY_BYTES_MAX
"""Characters of a key as text."""
HOLE: Final = "its row, and its keys have no region until 'regent regions adopt' or 'regent tables fix-keys'"
PARENTS_NAMED: Final = 5
"""Regions whose data goes that a sentence names."""
RESERVING: Final = frozenset(kind for kind, codec in CODECS.items() if codec in (SHAPE, TABLE_TASK))
"""Kinds that reserve ids of regions before they store these."""
KeyText = Annotated[str | None, Field(max_length=KEY_CHARS_MAX)]


class Adoption(Change):
    r"""A region whose row is stored again, in its table. ``start``, ``end``: its keys, within a hole of the table.

    A bound that is absent is that of its damaged row, else the one of the hole; an empty text is the begin, or the
    end, of all keys. Keys are text: printable ASCII as it is, any other byte, and the backslash, as ``\xNN``.
    """

    table: Name
    start: KeyText = None
    end: KeyText = None


class Forgetting(Change):
    """A region that the catalog forgets. ``leave_hole``: also where no other one has its keys."""

    leave_hole: bool = False


class Repairs:
    """Starts these repairs on the active daemon."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def adopt(self, region: int, request: Adoption, principal: str) -> Procedure:
        """Stores the row of a region again that the catalog has lost."""
        needs_reason(request)
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, adopting.NAME, str(region))) is not None:
            return again
        env, table = term.env, table_of(term.env.model, request.table)
        start_key, end_key = _key_of("start", request.start), _key_of("end", request.end)
        keys = await _keys(term, region, table, start_key, end_key)
        _refuse(_problem(term, region, table, [keys]))  # behind the await
        task = Repair(region, table.name, request.reason, *keys)
        told = told_of(env.model, region, table.name, keys)
        about = f"region {table.name}#{region} with the keys {said(keys)}{told}{_waits(env, region)}"
        return await start(term, adopting.NAME, REPAIR.encode(task), caller, request, about)

    async def forget(self, region: int, request: Forgetting, principal: str) -> Procedure:
        """Removes what the catalog has of a region that cannot be right."""
        needs_reason(request)
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, forgetting.NAME, str(region))) is not None:
            return again
        env = term.env
        if (one := env.model.regions.get(region)) is not None and forgettable(env.model, region) == Forgotten.REGION:
            others = await forgetting.others_of(env, one)
            _refuse(forgetting.uncovered(others, one, leaves_hole=request.leave_hole))
        found = forgettable(env.model, region)
        if isinstance(found, Refusal):
            raise ViewRefused(*found)
        table, leaves = forgetting.table_of(env, region), request.leave_hole
        task = Repair(region, table, request.reason, what=found, leaves_hole=leaves)
        where = f"{task.table}#{region}" if task.table else f"#{region}"
        waits = _waits(env, region) if found is Forgotten.DAMAGED else ""
        what = HOLE if leaves and found is Forgotten.REGION else WHAT[found]
        about = f"region {where}: {what}{waits}{_discarded(env, region, found)}"
        return await start(term, forgetting.NAME, REPAIR.encode(task), caller, request, about)


def add_repair_routes(app: FastAPI, repairs: Repairs) -> None:
    """Adds the routes to the surface of a daemon; those of the other changes of regions come after them."""

    @app.post("/v1/regions/{region:int}/adopt", response_model=Document[Procedure])
    async def adopt(region: int, wanted: Adoption, request: Request) -> Response:
        return document("Procedure", [await repairs.adopt(region, wanted, principal_of(request))])

    @app.post("/v1/regions/{region:int}/forget", response_model=Document[Procedure])
    async def forget(region: int, wanted: Forgetting, request: Request) -> Response:
        return document("Procedure", [await repairs.forget(region, wanted, principal_of(request))])


# -- checks


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        refuse(refusal.what, refusal.remedy)


def _waits(env: RegionsEnv, region: int) -> str:
    return f"; it waits first: {why}" if (why := adopting.waits_for(env, region)) else ""


def _discarded(env: RegionsEnv, region: int, found: Forgotten) -> str:
    """Returns the end of a sentence: the regions that were, and whose data goes with what a region refers to."""
    if found is Forgotten.PARENT:
        return ""
    if found is Forgotten.SOURCES and (heirs := heirs_without_sources(env.model, region)):
        given = named((f"#{one.id}" for one in heirs), PARENTS_NAMED)
        return f"; regions {given} get it, which are heirs of the same regions and have no such row"
    freed = named((f"#{one}" for one in discard.freed_by(env.model, region)), PARENTS_NAMED)
    parts = [f"no region needs the data of {freed} then, and it is discarded"] if freed else []
    if any(one.kind is RowKind.HEIR for one in env.model.damages.of_id(region)):
        parts.append("what it refers to cannot be read: the data of such regions that no other one needs is discarded")
    return "".join(f"; {one}" for one in parts)


async def _keys(term: RegionsTerm, region: int, table: Table, start_key: bytes | None, end_key: bytes | None) -> Range:
    """Returns the keys of a lost region; raises ``ViewRefused`` where it cannot get them."""
    _refuse(_problem(term, region, table, ()))
    holes = await fixing.holes_of(term.env, table, adopting.HOLES_MAX)
    keys = adopted_keys(term.env.model, region, table.name, holes, start_key, end_key)
    if isinstance(keys, Refusal):
        raise ViewRefused(*keys)
    return keys


def _problem(term: RegionsTerm, region: int, table: Table, keys: Sequence[Range]) -> Refusal | None:
    """Returns why a region is not stored again; None where it may be. ``keys``: that it gets, empty before."""
    env = term.env
    if (refusal := adoption_problem(env.model, region, table, given=env.is_given(region), keys=keys)) is not None:
        return refusal
    if (ending := env.endings.of(table)) is not None:
        return Refusal(ending.why(), "wait for its end")
    if pids := [one.pid for one in term.engine.live() if one.kind in RESERVING and _reserves(one, region)]:
        what = f"region {region} is to be made by procedure {named(map(str, pids))}, which goes on"
        return Refusal(what, "wait for its end: see 'regent regions procedures show'")
    return None


def _reserves(record: Record, region: int) -> bool:
    """Checks whether a procedure has reserved an id for a region that it makes."""
    match message_of(record):
        case Shape(heirs=heirs):
            return region in heirs
        case TableTask(first_id=first) as task if first:
            return first <= region < first + (task.count or count_of(task.splits, task.uniform))
        case _:
            return False


def _key_of(field: str, text: str | None) -> bytes | None:
    try:
        found = None if text is None else key_of(text)
    except NotAKey as error:
        raise Invalid(f"{field}: {error}", "write it as 'regent regions describe' does") from error
    if found is not None and len(found) > KEY_BYTES_MAX:
        raise Invalid(f"{field}: {len(found)} bytes, at most {KEY_BYTES_MAX}", "give the key of a region")
    return found
