"""Takes requests to assign, unassign, move or reopen a region: checks them, and starts their procedures.

Each refusal says what is in the way, and names the remedy.
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
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator import ways
from controller.regions.operator.requests import (
    NAME_MAX,
    Change,
    acting_term,
    caller_of,
    known,
    refuse,
    region_of,
    start,
)
from controller.regions.operator.table_checks import met_by, opening_remedy
from controller.regions.procedures import assign, close, move
from controller.regions.procedures.messages import MOVE, TRANSIT, Move, Transit
from controller.regions.term import RegionsTerm
from regent_agent.protocol import INHERIT
from state_machines.procedures.record import Record
from state_machines.regions.changes import awaits_crash
from state_machines.regions.choosing import is_of_crash
from state_machines.regions.entities import Region
from state_machines.regions.overlaps import opening_mend, served_beside
from state_machines.regions.states import FINAL, WANTED, RegionState, ServerState

RegionAct = Literal["assign", "unassign", "move", "reopen"]
REGION_KINDS: Final[Mapping[RegionAct, str]] = {
    "assign": assign.NAME,
    "unassign": close.NAME,
    "move": move.NAME,
    "reopen": move.NAME,
}
S = RegionState


class RegionChange(Change):
    """A region to assign, unassign, move or reopen. ``server``: name of the wanted one; empty: by the placement.

    ``force``: a move does not wait until the region has rested after the one before.
    """

    server: Annotated[str, Field(max_length=NAME_MAX)] = ""
    force: bool = False


class RegionChanges:
    """Starts the changes of regions on the active daemon."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def change_region(self, act: RegionAct, region: int, request: RegionChange, principal: str) -> Procedure:
        """Assigns, unassigns, moves or reopens a region."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, REGION_KINDS[act], str(region))) is not None:
            return again
        found = region_of(term.env.model, region)
        met = met_by(found.table, "enable", term.engine)
        refuse(
            region_problem(term.env, found, act, request.server, force=request.force),
            region_remedy(term, found, act, request.server, met),
        )
        kind, data = _of_region(act, found, request)
        return await start(term, kind, data, caller, request, f"region {found}: {act}")


def add_region_change_route(app: FastAPI, changes: RegionChanges) -> None:
    """Adds the route to the surface of a daemon."""

    @app.post("/v1/regions/{region:int}/{act}", response_model=Document[Procedure])
    async def change(region: int, act: RegionAct, wanted: RegionChange, request: Request) -> Response:
        return document("Procedure", [await changes.change_region(act, region, wanted, principal_of(request))])


def _of_region(act: RegionAct, region: Region, request: RegionChange) -> tuple[str, bytes]:
    """Returns the kind and the message of a change of a region."""
    table, why = region.table.name, request.reason
    match act:
        case "assign":
            return assign.NAME, TRANSIT.encode(Transit(region.id, table, why, to=request.server))
        case "unassign":
            return close.NAME, TRANSIT.encode(Transit(region.id, table, why))
        case "move":
            return move.NAME, MOVE.encode(Move(region.id, table, request.server, why))
        case "reopen":
            return move.NAME, MOVE.encode(Move(region.id, table, "", why, reopens=True))


def _goes_on_with_crash(term: RegionsTerm, region: Region) -> str:
    """Returns what goes on with the crash of a region's server; empty where that has not crashed."""
    server = region.server
    if server is None or server.state is ServerState.ONLINE:
        return ""
    return "; ".join(ways.of_crash(server, term.env, term.engine))


# -- checks


def region_problem(env: RegionsEnv, region: Region, act: RegionAct, server: str, *, force: bool = False) -> str | None:
    """Returns why a region cannot be changed now; None where it can."""
    if server and act in ("unassign", "reopen"):
        return f"{act} takes no server: the region is closed, or opened again, where it is"
    if act == "move" and not server:
        return "a move needs the name of a server"
    if region.pid and region.id in env.model.transit:
        return f"region {region} is in transition: procedure {region.pid} moves it"
    if (is_of_crash(region) or region.state not in FINAL) and (why := _left_problem(region, act)) is not None:
        return why
    if act != "unassign" and region.table.state not in WANTED:
        return f"table {region.table.name} is {region.table.state.name.lower()}: its regions are not to be open"
    if act == "assign" and region.state is S.OPEN and not awaits_crash(region):
        return f"region {region} is open at {region.server} already"
    if act == "assign" and (beside := served_beside(env.model, region)) is not None:
        return f"region {region} shares keys with region {beside}, which {beside.server} has"
    if act == "unassign" and region.state in FINAL and region.state is not S.OPEN:
        return f"region {region} is {region.state.name} already: no server has it"
    if act in ("move", "reopen") and region.state is not S.OPEN:
        return f"region {region} is {region.state.name}, and must be OPEN to {act}"
    left_ms = 0 if force or act != "move" else env.cooldown.left_ms(region.id, env.now_ms())
    if left_ms:
        return (
            f"region {region} was moved a moment ago: it rests for {left_ms / 1000:.1f} s more "
            "(regions.move_cooldown_ms), move it then, or with --force"
        )
    return _target_problem(env, region, server) if server else None


def _left_problem(region: Region, act: RegionAct) -> str | None:
    """Returns why a region that no procedure moves, and that is in transition, cannot be changed.

    A server that may have it closes it first, whether it is then assigned or left.
    """
    if is_of_crash(region):
        state = "WAITING" if awaits_crash(region) else region.state.name
        return f"region {region} is {state}: the crash of {region.server} is dealt with, and sees to it itself"
    return None if act in ("assign", "unassign") else f"region {region} is {region.state.name}: assign it first"


def _target_problem(env: RegionsEnv, region: Region, server: str) -> str | None:
    model = env.model
    target = model.current(server)
    name = server.partition(",")[0]
    if target is None and name != server and model.current(name) is not None:
        return f"{server!r} names a process, and a region is wanted at a server, whatever its process: name {name!r}"
    if target is None:
        return f"server {server!r} is not online"
    if model.marks.is_cordoned(server):
        return f"server {server} is cordoned, and gets no regions: 'regent servers uncordon {server}' ends that"
    if target.leaving:
        drain = next((pid for pid, key in env.draining.items() if key == target.key), 0)
        uncordon = f"'regent servers uncordon {server}' ends that, and a next process of it gets regions again"
        abort = f"'regent regions procedures abort {drain}' ends that, unless the server itself asks to leave"
        return f"server {target} is leaving: its regions are moved away; {abort if drain else uncordon}"
    if region.server is target:
        return f"region {region} is at {target} already"
    if target.here and region.id in model.sources and INHERIT not in target.features:
        needs = f"{region} needs it until its data is its own: name another server, or wait until then"
        return f'server {target} lacks the feature "{INHERIT}": {needs}'
    if not target.here:
        return f"server {target} has not come to this daemon yet, and gets no regions before: try again in some seconds"
    return None


def region_remedy(term: RegionsTerm, region: Region, act: RegionAct, server: str, met: Record | None = None) -> str:
    """Returns what lets the change of a region begin, or where an operator finds that.

    ``met``: the change that an enabling of its table would meet.
    """
    model = term.env.model
    explains = f"'regent regions explain {region.id}'"
    if server and act in ("unassign", "reopen"):
        return "send it without a server"
    if region.pid and region.id in model.transit:
        bypass = f"'regent regions procedures bypass {region.pid}'"
        waits = ways.of_wait(region.pid, term.engine)
        return f"{waits}; {bypass} ends it as it is; {explains} says what else ends it"
    if is_of_crash(region):
        wait = f"wait for its end: {explains} says what that waits for"
        return f"{wait}; {of_crash}" if (of_crash := _goes_on_with_crash(term, region)) else wait
    if act != "unassign" and region.table.state not in WANTED:
        return opening_remedy(model, region.table, met)
    if act in ("move", "reopen") and region.state is not S.OPEN:
        return f"'regent regions assign {region.id}' opens it"
    if act == "assign" and region.state is S.OPEN:
        return f"'regent regions move {region.id} SERVER' moves it, 'regent regions reopen {region.id}' opens it again"
    if act == "assign" and served_beside(model, region) is not None:
        return opening_mend(model, region)
    absent = (act == "move" and not server) or (bool(server) and model.current(server) is None)
    return "see 'regent servers list', and name one that is online" if absent else f"see {explains}"
