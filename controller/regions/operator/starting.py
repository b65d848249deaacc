"""Starts the procedure of an operator's request, once for each nonce."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.http.errors import NotFound, Refused
from controller.http.procedures import Procedure
from controller.procedures.refusals import forgotten
from controller.regions.http.requests import Change
from controller.regions.operator.items import detail_of, procedure_item, subject_of
from controller.regions.operator.procedures import requested
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Caller, Record

CLIENT: Final = "regent"


def caller_of(request: Change, principal: str) -> Caller:
    """Returns the caller of a request, with its reason on one line."""
    return Caller(principal, CLIENT, " ".join(request.reason.split()), request.nonce)


def known(term: RegionsTerm, caller: Caller, request: Change, kind: str, subject: str) -> Procedure | None:
    """Returns the procedure that the caller's nonce has started: a repeated request is not judged anew.

    One that is not durable yet has done nothing: the request is submitted again, and has its pid once it is stored.
    Raises :class:`Refused` where it is of another kind, or about another subject.
    """
    pid = None if request.dry_run else term.engine.pid_of(caller)
    record = None if pid is None else term.engine.records.get(pid)
    return None if record is None else _same(record, kind, subject)


async def start(term: RegionsTerm, kind: str, data: bytes, caller: Caller, request: Change, about: str) -> Procedure:
    """Starts a procedure; in a dry run describes the one that would be started."""
    if request.dry_run:
        return planned(kind, about)
    pid = await requested(term.engine.submit(kind, data, caller))
    record = term.engine.records.get(pid)
    if record is None:
        raise NotFound(*forgotten(pid))
    return _same(record, kind, subject_of(replace(record, kind=kind, data=data)))


def _same(record: Record, kind: str, subject: str) -> Procedure:
    """Returns the procedure with the nonce of a request, unless that nonce was given to another request."""
    if (record.kind, subject_of(record)) != (kind, subject):
        raise Refused(
            f"the nonce {record.caller.nonce!r} is that of procedure {record.pid} ({record.kind}, {detail_of(record)})",
            "give another nonce, or none",
        )
    return procedure_item(record)


def planned(kind: str, about: str) -> Procedure:
    """Describes a procedure that was judged and not started."""
    return Procedure(pid=0, kind=kind, state="planned", detail=about)
