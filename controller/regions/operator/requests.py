"""Takes requests of operators: finds in the model what they are about, and starts procedures, once for each nonce.

``nonce``: the same caller's same nonce never starts a second procedure; the response describes the first one then. For
another kind of request, or another subject, it is refused. A dry run checks the request and changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Final, TypeVar

from fastapi import Query
from msgspec.structs import replace
from pydantic import Field

from controller.http.documents import Invalid, NotActive, NotFound, ViewRefused
from controller.http.models import RequestItem, Words
from controller.http.procedures import Procedure
from controller.procedures import requests
from controller.procedures.refusals import forgotten
from controller.process.wording import named
from controller.regions.damaged import REMEDY
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.operator.records import detail_of, procedure_item, subject_of
from controller.regions.term import RegionsTerm
from metadata_store.records.port import StoreFailed
from state_machines.procedures.record import Caller, Record
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.levels import lacking
from state_machines.regions.model import Regions
from state_machines.regions.shapes import end_of

NAME_MAX: Final = 200
"""Characters of a name."""
QUERY_CHARS_MAX: Final = 300
"""Characters of a name in a query."""
PAGE_DEFAULT: Final = 500
PAGE_MAX: Final = 5_000
CLIENT: Final = "regent"
PROCEDURES_COMMAND: Final = "regent regions procedures"
T = TypeVar("T")

Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[str | None, Query(max_length=QUERY_CHARS_MAX)]
Filter = Annotated[str | None, Query(max_length=QUERY_CHARS_MAX)]


class Change(RequestItem):
    """A change that needs nothing but its reason."""

    reason: Words = ""
    nonce: Words = ""
    dry_run: bool = False


# -- terms and subjects


def active_term(domain: RegionsDomain) -> RegionsTerm:
    """Returns the present term; raises ``NotActive`` on a daemon that has none."""
    if domain.term is None:
        remedy = "send the request to the active daemon of the store, where that is named, or try again in some seconds"
        if domain.mode is RegionsMode.FAILING:
            remedy = "remove the cause: the daemon tries again by itself, and its log has more"
        raise NotActive(f"the regions' domain of this daemon is {domain.mode.value}: {domain.why}", remedy)
    return domain.term


def acting_term(domain: RegionsDomain) -> RegionsTerm:
    """Returns the present term for a request; raises ``NotActive`` also where it would wait for the store."""
    term = active_term(domain)
    if why := term.suspended():
        raise NotActive(f"the regions' domain of this daemon is suspended: {why}", "try again once it is active")
    return term


def region_of(model: Regions, region: int) -> Region:
    """Returns a region by its id."""
    found = model.regions.get(region)
    if found is None and (why := model.damages.of_region(region)):
        raise NotFound(f"region {region} is left out: {why}", REMEDY)
    if found is None and (parent := model.parents.get(region)) is not None:
        did, heirs = end_of(parent).lower(), named(f"#{one}" for one in parent.heirs)
        remedy = "name these; 'regent regions parents' says what its data waits for"
        raise NotFound(f"region {region} was {did}: {heirs} got its keys", remedy)
    if found is None:
        remedy = f"see 'regent regions list'; 'regent events show --region {region}' says what became of it"
        raise NotFound(f"region {region} does not exist", remedy)
    return found


def table_of(model: Regions, table: str) -> Table:
    """Returns a table by its name."""
    found = model.tables.get(table)
    if found is None and (why := model.damages.of_table(table)):
        raise NotFound(f"table {table!r} is left out: {why}", REMEDY)
    if found is None:
        raise NotFound(f"table {table!r} does not exist", "see 'regent tables list'")
    return found


def named_server(named: str) -> str:
    """Returns the name of ``name`` or ``name,incarnation``."""
    return named.partition(",")[0]


def server_of(model: Regions, named: str) -> Server:
    """Returns a process by ``name`` (the latest one) or ``name,incarnation``."""
    name, _, incarnation = named.partition(",")
    found = [
        one
        for one in model.servers.values()
        if one.name == name and (not incarnation or str(one.incarnation) == incarnation)
    ]
    if not found and incarnation.isdecimal() and model.is_buried((name, int(incarnation))):
        raise NotFound(f"server {named} was fenced and is no member any more", "nothing is left to do about it")
    if not found:
        raise NotFound(f"server {named!r} is not known", "see 'regent servers list'")
    return max(found, key=lambda one: one.incarnation)


# -- procedures


def caller_of(request: Change, principal: str) -> Caller:
    """Returns the caller of a request, with its reason on one line."""
    return Caller(principal, CLIENT, " ".join(request.reason.split()), request.nonce)


def needs_reason(request: Change) -> None:
    """Refuses a repair without a reason, unless it is a dry run: the journal keeps why a catalog was changed."""
    if not request.dry_run and not request.reason.strip():
        raise Invalid("reason is empty: a repair of the catalog needs one", "say why it is made, the journal keeps it")


def known(term: RegionsTerm, caller: Caller, request: Change, kind: str, subject: str) -> Procedure | None:
    """Returns the procedure that the caller's nonce has started: a repeated request is not judged anew.

    One that is not durable yet has done nothing: the request is submitted again, and has its pid once it is stored.
    Raises :class:`ViewRefused` where it is of another kind, or about another subject.
    """
    pid = None if request.dry_run else term.engine.pid_of(caller)
    record = None if pid is None else term.engine.records.get(pid)
    return None if record is None else _same(record, kind, subject)


async def start(
    term: RegionsTerm, kind: str, data: bytes, caller: Caller, request: Change, about: str, expires_ms: int = 0
) -> Procedure:
    """Starts a procedure; in a dry run describes the one that would be started.

    ``expires_ms``: time at which it fails, 0: never. Raises :class:`ViewRefused` where the store's level is too low.
    """
    if (lacks := lacking(term.env.model.marks.level, kind)) is not None:
        raise ViewRefused(lacks.what, lacks.remedy)
    if request.dry_run:
        return planned(kind, about)
    pid = await requested(term.engine.submit(kind, data, caller, expires_ms=expires_ms))
    record = term.engine.records.get(pid)
    if record is None:
        raise NotFound(*forgotten(pid))
    return _same(record, kind, subject_of(replace(record, kind=kind, data=data)))


def _same(record: Record, kind: str, subject: str) -> Procedure:
    """Returns the procedure with the nonce of a request, unless that nonce was given to another request."""
    if (record.kind, subject_of(record)) != (kind, subject):
        raise ViewRefused(
            f"the nonce {record.caller.nonce!r} is that of procedure {record.pid} ({record.kind}, {detail_of(record)})",
            "give another nonce, or none",
        )
    return procedure_item(record)


def planned(kind: str, about: str) -> Procedure:
    """Describes a procedure that was judged and not started."""
    return Procedure(pid=0, kind=kind, state="planned", detail=about)


async def requested(work: Awaitable[T]) -> T:
    """Waits for a request to the engine; turns its refusal into a response."""
    try:
        return await work
    except requests.Unusable as unusable:
        raise ViewRefused(str(unusable), f"'regent regions procedures remove {unusable.pid}' removes it") from unusable
    except requests.Unknown as unknown:
        raise unknown_procedure(unknown.pid) from unknown
    except requests.ProcedureRefused as refused:
        raise ViewRefused(str(refused), "see 'regent regions procedures list'") from refused
    except StoreFailed as failed:
        raise failed_store(failed) from failed


def unknown_procedure(pid: int) -> NotFound:
    """Returns the response to a request about a procedure that has no record."""
    why = f"procedure {pid} is not known: it never was, or its result was removed after its time"
    return NotFound(why, f"'regent events show --regions --pid {pid}' has what it did")


def failed_store(failed: StoreFailed) -> NotActive:
    """Returns the response to a request whose store has failed."""
    return NotActive(f"the regions' store failed: {failed}", "see the daemon's log, then try again")


def refuse(problem: str | None, remedy: str) -> None:
    """Refuses a request that has a problem."""
    if problem is not None:
        raise ViewRefused(problem, remedy)
