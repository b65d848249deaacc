"""Starts the procedure of an operator's request, once for each nonce."""

from __future__ import annotations

from typing import Final

from controller.http.ports import NotFound
from controller.http.procedure_models import Procedure
from controller.http.region_requests import Change
from controller.procedures.refusals import forgotten
from controller.regions.operator.items import procedure_item
from controller.regions.operator.procedures import requested
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Caller

CLIENT: Final = "regent"


def caller_of(request: Change, principal: str) -> Caller:
    """Returns the caller of a request, with its reason on one line."""
    return Caller(principal, CLIENT, " ".join(request.reason.split()), request.nonce)


def known(term: RegionsTerm, caller: Caller, request: Change) -> Procedure | None:
    """Returns the procedure that the caller's nonce has started: a repeated request is not judged anew.

    One that is not durable yet has done nothing: the request is submitted again, and has its pid once it is stored.
    """
    pid = None if request.dry_run else term.engine.pid_of(caller)
    record = None if pid is None else term.engine.records.get(pid)
    return None if record is None else procedure_item(record)


async def start(term: RegionsTerm, kind: str, data: bytes, caller: Caller, request: Change, about: str) -> Procedure:
    """Starts a procedure; in a dry run describes the one that would be started."""
    if request.dry_run:
        return planned(kind, about)
    pid = await requested(term.engine.submit(kind, data, caller))
    record = term.engine.records.get(pid)
    if record is None:
        raise NotFound(*forgotten(pid))
    return procedure_item(record)


def planned(kind: str, about: str) -> Procedure:
    """Describes a procedure that was judged and not started."""
    return Procedure(pid=0, kind=kind, state="planned", detail=about)
