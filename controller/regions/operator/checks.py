"""Checks changes that operators request, before a procedure is started: each refusal says what is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.regions.damaged import REMEDY
from controller.regions.environment import RegionsEnv
from controller.regions.http.ports import RegionAct, TableAct
from state_machines.regions.changes import awaits_crash, change_problem, partly_made
from state_machines.regions.model import Region, Regions, Server, Table, namespace_of
from state_machines.regions.states import FINAL, WANTED, RegionState, ServerState, TableState

S = RegionState
ENDS: Final[Mapping[TableAct, TableState]] = {"enable": TableState.ENABLED, "disable": TableState.DISABLED}
BEGINS: Final[Mapping[TableAct, TableState]] = {
    "enable": TableState.ENABLING,
    "disable": TableState.DISABLING,
    "delete": TableState.DELETING,
}


def region_problem(env: RegionsEnv, region: Region, act: RegionAct, server: str, *, force: bool = False) -> str | None:
    """Returns why a region cannot be changed now; None where it can."""
    if server and act in ("unassign", "reopen"):
        return f"{act} takes no server: the region is closed, or opened again, where it is"
    if act == "move" and not server:
        return "a move needs the name of a server"
    if region.pid:
        return f"region {region} is in transition: procedure {region.pid} moves it"
    if (_is_of_crash(region) or region.state not in FINAL) and (why := _left_problem(region, act)) is not None:
        return why
    if act != "unassign" and region.table.state not in WANTED:
        return f"table {region.table.name} is {region.table.state.name.lower()}: its regions are not to be open"
    if act == "assign" and region.state is S.OPEN and not awaits_crash(region):
        return f"region {region} is open at {region.server} already"
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
    if _is_of_crash(region):
        state = "WAITING" if awaits_crash(region) else region.state.name
        return f"region {region} is {state}: the crash of {region.server} is dealt with, and sees to it itself"
    return None if act in ("assign", "unassign") else f"region {region} is {region.state.name}: assign it first"


def _is_of_crash(region: Region) -> bool:
    """Checks whether the crash of its owner sees to a region: no request about it is accepted before.

    One that was open at a process that is fenced, and that a hold keeps, may be moved before the hold ends.
    """
    owner = None if region.server is None else region.server.state
    return owner is ServerState.CRASHED or (owner is ServerState.FENCED and region.state not in FINAL)


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
    if not target.here:
        return f"server {target} has not come to this daemon yet, and gets no regions before: try again in some seconds"
    return None


def region_remedy(model: Regions, region: Region, act: RegionAct, server: str, of_crash: str = "") -> str:
    """Returns what lets the change of a region begin, or where an operator finds that.

    ``of_crash``: what goes on with the crash of its server, where that crashed.
    """
    explains = f"'regent regions explain {region.id}'"
    if server and act in ("unassign", "reopen"):
        return "send it without a server"
    if region.pid:
        bypass = f"'regent regions procedures bypass {region.pid}'"
        return f"wait for its end, or end it as it is: {bypass}; {explains} says what else ends it"
    if _is_of_crash(region):
        wait = f"wait for its end: {explains} says what that waits for"
        return f"{wait}; {of_crash}" if of_crash else wait
    if act != "unassign" and region.table.state not in WANTED:
        return table_remedy(model, region.table, "enable")
    if act in ("move", "reopen") and region.state is not S.OPEN:
        return f"'regent regions assign {region.id}' opens it"
    if act == "assign" and region.state is S.OPEN:
        return f"'regent regions move {region.id} SERVER' moves it, 'regent regions reopen {region.id}' opens it again"
    absent = (act == "move" and not server) or (bool(server) and model.current(server) is None)
    return "see 'regent servers list', and name one that is online" if absent else f"see {explains}"


def creation_problem(model: Regions, table: str) -> str | None:
    """Returns why a table cannot be created; None where it can."""
    if table in model.tables:
        return f"table {table!r} exists already"
    if why := model.damages.of_table(table):
        return f"table {table!r} is stored already, and left out ({why})"
    if namespace_of(table) not in model.namespaces:
        return f"namespace {namespace_of(table)!r} does not exist"
    return None


def creation_remedy(model: Regions, table: str) -> str:
    """Returns what lets the creation of a table begin."""
    if model.damages.of_table(table) and table not in model.tables:
        return REMEDY
    if namespace_of(table) not in model.namespaces:
        return f"'regent namespaces create {namespace_of(table)}' creates it"
    if (found := model.tables.get(table)) is not None and found.state is TableState.CREATING:
        return f"'regent tables enable {table}' goes on with its creation, 'regent tables delete {table}' takes it back"
    return f"give another name; 'regent tables describe {table}' has what is there"


def table_problem(model: Regions, table: Table, act: TableAct, opens: int = 0) -> str | None:
    """Returns why a table cannot be changed; None where it can. ``opens``: pid of a change that opens its regions."""
    if act == "delete" and (left_out := model.damages.of_rows(table.name)):
        return f"table {table.name!r} cannot be deleted whole: {left_out}"
    if table.state is ENDS.get(act):
        return f"table {table.name!r} is {table.state.name.lower()} already"
    if act == "enable" and opens:
        return f"table {table.name!r} is {table.state.name.lower()}: procedure {opens} opens its regions"
    why = change_problem(table.name, table.state, BEGINS[act])
    return partly_made(table) if why is None and act == "enable" else why


def table_remedy(model: Regions, table: Table, act: TableAct) -> str:
    """Returns what lets the change of a table begin: where it is on its way to another state, it goes there first."""
    name = table.name
    if act == "delete" and model.damages.of_rows(name):
        return REMEDY
    match table.state:
        case TableState.CREATING | TableState.ENABLING if act == "enable":
            delete = f" or 'regent tables delete {name}'" if table.state is TableState.CREATING else ""
            return f"wait for its end; 'regent tables disable {name}'{delete} ends it before"
        case TableState.DELETING:
            return f"'regent tables delete {name} --wait' goes on with that"
        case TableState.DISABLING if act != "disable":
            return f"'regent tables disable {name} --wait' goes on with that; then repeat this"
        case TableState.ENABLED | TableState.ENABLING if act == "delete":
            return f"regent tables disable {name} --wait"
        case TableState.DISABLED if act == "enable":
            return f"'regent tables enable {name}' opens its regions"
        case _:
            return f"see 'regent tables describe {name}'"


def drain_problem(model: Regions, server: Server) -> str | None:
    """Returns why a server cannot be drained; None where it can."""
    if server.state is not ServerState.ONLINE:
        return f"server {server} is {server.state.name.lower()}: its regions go elsewhere by themselves"
    if not any(one is not server for one in model.online()):
        return f"no server but {server} may get regions: its own could go nowhere"
    return None


def drain_remedy(model: Regions, server: Server) -> str:
    """Returns what lets the drain of a server begin."""
    if server.state is not ServerState.ONLINE:
        return "see 'regent regions procedures list --kind crash --live'"
    cordoned = sorted(one.name for one in model.servers.values() if model.marks.is_cordoned(one.name))
    others = [one for one in cordoned if one != server.name]
    return f"start another server, or 'regent servers uncordon {others[0]}'" if others else "start another server"
