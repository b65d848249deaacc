"""Adds regent end: ends a procedure in the way that its kind and its state allow, and says which one that is."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from cli.commands.procedures import KAFKA, MEASURED_S_MAX, Pid, Why, Yes, name_families
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, confirmed

if TYPE_CHECKING:
    from cli.client import Json

SHOWN_MAX: Final = 20
"""Moves that are shown before they begin."""
PLANNED: Final = "planned"
NOTHING_QUEUED: Final = "queued moves do not begin, moves under way are completed, and moved replicas stay"


class WayBack(NamedTuple):
    """Moves that take a procedure back, and those that are refused, each with its cause."""

    moves: list[Json]
    refused: list[Json]


class Way(NamedTuple):
    """A way to end a procedure: what it does, the command that does the same, and the request; no path: nothing.

    ``moves_back``: a further plan takes back what it moved, after the request.
    """

    does: str
    same_as: str = ""
    path: str = ""
    body: Mapping[str, Any] = {}
    then: str = ""
    moves_back: bool = False


def register(app: typer.Typer) -> None:
    """Adds the command."""
    examples = ("regent end 12", 'regent end 12 --undo --reason "wrong rack"', "regent end 12 --undo --dry-run")
    command(app, panel=Panel.CHANGE, examples=examples)(end)


def end(
    session: Session,
    pid: Pid,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what it has done, where that is possible.")] = False,
    reason: Why = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")] = False,
    yes: Yes = False,
) -> None:
    """End a procedure in the right way: by cancel, abort, bypass, remove, throttle lift or undrain, and say which.

    A plan or an election stops with what it has done, a throttle is lifted, a restart names no further broker, and the
    brokers of a drain that has ended lead again. With --undo a plan or drain is taken back: one that has ended by a
    further plan, which gives partitions their former replicas.
    """
    client, output = session.client(), session.output
    items = client.get(KAFKA.path)["items"]
    found = next((one for one in items if one["pid"] == pid), None) or client.get(f"{KAFKA.path}/{pid}")["items"][0]
    way = way_of(found, items, undo=undo)
    back = way_back(session, pid) if way.moves_back else None
    if back is not None:
        way = _with_moves(way, pid, back, dry_run=dry_run)
    named = f"{found['kind']} {pid}: {way.does}{f' ({way.same_as})' if way.same_as else ''}"
    if dry_run:
        _foretell(session, named, found, back)
        return
    if not way.path and (back is None or not back.moves):
        output.detail("Procedure", found)
        output.message(way.does)
        return
    if back is not None and not output.for_programs:
        show(session, back)
    confirmed(yes, f"{named}?")
    _carry_out(session, way, pid, back, reason)
    output.message(named, style="green")
    if way.then:
        output.message(way.then)


def _foretell(session: Session, named: str, found: Json, back: WayBack | None) -> None:
    if back is not None:
        show(session, back)
    elif session.output.for_programs:
        session.output.detail("Procedure", found)
    session.output.message(f"{named}; nothing was done")


def _with_moves(way: Way, pid: int, back: WayBack, *, dry_run: bool) -> Way:
    """Words what the moves of a way back add; raises :class:`Failure` where there is nothing else to do, and none."""
    from controller.process.wording import counted

    stay = f"; {counted(len(back.refused), 'partition')} stay where they are" if back.refused else ""
    if back.moves:
        plan = f"a plan of {counted(len(back.moves), 'move')} gives partitions their former replicas{stay}"
        file = f"regent reassign plan --undo {pid} --out back.json, then regent reassign apply back.json"
        return way._replace(
            does=f"{way.does}, and then {plan}" if way.path else plan,
            same_as=f"{way.same_as}, {file}" if way.path else file,
        )
    if way.path:
        return way._replace(does=f"{way.does}; no replica is to be moved back{stay}")
    if back.refused and not dry_run:
        first = back.refused[0]
        why = f"{first['topic']}-{first['partition']}: {first['why']}"
        raise Failure(Exit.REFUSED, f"nothing of plan {pid} can be taken back{stay}", why)
    return way._replace(does=f"every partition has its former replicas already, or is gone{stay}: nothing was done")


def _carry_out(session: Session, way: Way, pid: int, back: WayBack | None, reason: str) -> None:
    """Sends the request that ends a procedure, then begins the plan that moves replicas back; shows both responses."""
    client, output, frees = session.client(), session.output, "brokers" in way.body
    moves = back if back is not None and back.moves else None
    if way.path:
        body = {**way.body, **({"reason": reason} if reason and not frees else {})}
        ended = client.post(way.path, body)["items"]
        if frees and (moves is None or not output.for_programs):
            output.listing("CordonedBroker", ended)
        elif not frees:
            output.detail("Procedure", ended[0])
            name_families(session, ended)
    if moves is not None:
        plan = begun(session, pid, moves, reason)
        output.detail("Procedure", plan)
        output.message(f"plan {plan['pid']} moves replicas back: regent procedures wait {plan['pid']}")


def way_of(found: Json, items: Iterable[Json], *, undo: bool) -> Way:
    """Returns how a procedure ends, from its kind and state; raises :class:`Failure` where ``undo`` is impossible."""
    pid, kind = found["pid"], found["kind"]
    if found.get("unusable"):
        return _acting("remove", pid, "its record cannot be used, and is removed with its family")
    if found["ended"]:
        return _after_its_end(found, undo=undo)
    if found.get("aborted") or found["state"] == "failed":
        stays = f"; 'regent procedures bypass {pid}' ends it as it is" if found.get("stuck") else ""
        return Way(f"it is being taken back already: regent procedures wait {pid}{stays}")
    if found.get("parked") and not undo:
        return _acting("bypass", pid, f"it is parked, and ends as it is; nothing is undone: {found['parked']}")
    if kind == "drain" and not undo:
        return _drain(pid, items)
    if kind == "elect" and undo:
        remedy = f"'regent end {pid}' stops it; 'regent elect preferred' gives preferred replicas their leaders"
        raise Failure(Exit.REFUSED, "leaders that were elected are not taken back", remedy)
    if kind == "reassign" and not undo:
        return _stopped(pid)
    if kind == "throttle":
        return Way(
            "it is lifted, and settings get their former values",
            f"regent throttle lift {pid}",
            "/v1/throttles/lift",
            {"pids": [pid]},
        )
    if kind == "elect":
        return _acting("cancel", pid, "no further leader is elected, and those that are stay")
    if kind == "restart":
        return _acting("abort", pid, "no further broker is named; nothing is undone")
    return _acting("abort", pid, "it is taken back, step by step")


def _acting(act: str, pid: int, does: str) -> Way:
    return Way(does, f"regent procedures {act} {pid}", f"{KAFKA.path}/{pid}/{act}")


def _stopped(pid: int, of: str = "") -> Way:
    same_as = f"regent reassign cancel {pid}"
    return Way(f"{of}{NOTHING_QUEUED}", same_as, f"/v1/reassignments/{pid}", {"stop": True})


def _drain(pid: int, items: Iterable[Json]) -> Way:
    """Stops the plan of a drain; one that moves leaders still has no gentle end, and is aborted."""
    plan = next((one["pid"] for one in items if one.get("parent") == pid and not one["ended"]), None)
    if plan is None:
        return _acting("abort", pid, "its marks go, its brokers lead again by the automatic balance")
    then = f"its brokers stay drained; once it has ended, 'regent end {pid}' lets them lead again"
    return _stopped(plan, f"its plan {plan} stops: ")._replace(then=then)


def _after_its_end(found: Json, *, undo: bool) -> Way:
    pid, kind, brokers = found["pid"], found["kind"], found.get("brokers") or []
    if kind == "drain" and found["state"] == "success":
        named = " ".join(map(str, brokers))
        does = f"it has ended; brokers {named} may lead again, and host replicas unless they are cordoned"
        return Way(does, f"regent undrain {named}", "/v1/drains/remove", {"brokers": brokers}, moves_back=undo)
    if undo and kind == "reassign" and found["state"] == "success":
        return Way("it has ended", moves_back=True)
    if undo:
        raise Failure(Exit.REFUSED, f"{kind} {pid} has ended ({found['state']})", "nothing of it is left to take back")
    return Way(f"{kind} {pid} has ended already ({found['state']}): nothing was done")


def way_back(session: Session, pid: int) -> WayBack:
    """Has the daemon plan the way back of a procedure; changes nothing."""
    items = session.client(MEASURED_S_MAX).get(f"/v1/procedures/{pid}/way-back")["items"]
    planned = [one for one in items if one["status"] == PLANNED]
    return WayBack(planned, [one for one in items if one["status"] != PLANNED])


def show(session: Session, back: WayBack) -> None:
    """Shows the first moves in rows, and what stays with its cause; programs get all moves."""
    output = session.output
    if output.for_programs:
        output.document("Move", [*back.moves, *back.refused])
        return
    if back.moves:
        output.listing("PlannedMove", back.moves[:SHOWN_MAX])
    if len(back.moves) > SHOWN_MAX:
        output.message(f"and {len(back.moves) - SHOWN_MAX} more moves")
    tell_refused(session, back)


def tell_refused(session: Session, back: WayBack) -> None:
    """Names partitions that stay where they are."""
    for one in back.refused[:SHOWN_MAX]:
        session.output.message(f"{one['topic']}-{one['partition']} stays: {one['why']}", style="yellow")
    if len(back.refused) > SHOWN_MAX:
        session.output.message(f"and {len(back.refused) - SHOWN_MAX} more stay", style="yellow")


def begun(session: Session, pid: int, back: WayBack, reason: str) -> Json:
    """Begins the plan that takes a procedure back; while it runs a second one is refused."""
    moves = [{name: one[name] for name in ("topic", "partition", "origin", "target")} for one in back.moves]
    request = {"moves": moves, "nonce": uuid.uuid4().hex, "reason": reason or f"takes back {pid}"}
    try:
        found: Json = session.client(MEASURED_S_MAX).post("/v1/reassignments", request)["items"][0]
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE:
            raise
        again = "the plan may have begun: see 'regent reassign list', then repeat the command, it begins no second one"
        raise Failure(failure.code, failure.message, again) from failure
    return found
