"""Checks changes that operators request, before a procedure is started: each refusal says what is in the way."""

from __future__ import annotations

from controller.http.region_ports import RegionAct, TableAct
from controller.regions.environment import RegionsEnv
from state_machines.regions.changes import change_problem
from state_machines.regions.model import Region, Regions, Server, Table, namespace_of
from state_machines.regions.states import FINAL, WANTED, RegionState, ServerState, TableState

S = RegionState
BEGINS = {"enable": TableState.ENABLING, "disable": TableState.DISABLING, "delete": TableState.DELETING}


def region_problem(env: RegionsEnv, region: Region, act: RegionAct, server: str, *, force: bool = False) -> str | None:
    """Returns why a region cannot be changed now; None where it can."""
    if server and act in ("unassign", "reopen"):
        return f"{act} takes no server: the region is closed, or opened again, where it is"
    if act == "move" and not server:
        return "a move needs the name of a server"
    if region.pid:
        return f"region {region} is in transition: procedure {region.pid} moves it"
    if region.state not in FINAL and (why := _left_problem(region, act)) is not None:
        return why
    if act != "unassign" and region.table.state not in WANTED:
        return f"table {region.table.name} is {region.table.state.name.lower()}: its regions are not to be open"
    if act == "assign" and region.state is S.OPEN:
        return f"region {region} is open at {region.server} already"
    if act != "assign" and region.state is not S.OPEN:
        return f"region {region} is {region.state.name}, and must be OPEN to {act}"
    left_ms = 0 if force or act != "move" else env.cooldown.left_ms(region.id, env.now_ms())
    if left_ms:
        return (
            f"region {region} was moved a moment ago: it rests for {left_ms / 1000:.1f} s more "
            "(regions.move_cooldown_ms), move it then, or with --force"
        )
    return _target_problem(env.model, region, server) if server else None


def _left_problem(region: Region, act: RegionAct) -> str | None:
    """Returns why a region that no procedure moves, and that is in transition, cannot be changed."""
    server = region.server
    if server is not None and server.state is not ServerState.ONLINE:
        return f"region {region} is {region.state.name}: the crash of {server} is being dealt with"
    if server is not None:
        return (
            f"region {region} is {region.state.name} at {server}, which may have it, and no procedure moves it: "
            f"'regent servers expire {server}' makes sure that it does not"
        )
    return None if act == "assign" else f"region {region} is {region.state.name}: assign it first"


def _target_problem(model: Regions, region: Region, server: str) -> str | None:
    target = model.current(server)
    if target is None:
        return f"server {server!r} is not online"
    if model.marks.is_cordoned(server):
        return f"server {server} is cordoned, and gets no regions: 'regent servers uncordon {server}' ends that"
    if target.leaving:
        return f"server {target} is leaving: its regions are moved away; a next process of it gets regions again"
    if region.server is target:
        return f"region {region} is at {target} already"
    return None


def region_remedy(model: Regions, region: Region, server: str) -> str:
    """Returns where an operator finds what lets the change of a region begin."""
    absent = bool(server) and model.current(server) is None
    return "see 'regent servers list'" if absent else f"regent regions explain {region.id}"


def creation_problem(model: Regions, table: str) -> str | None:
    """Returns why a table cannot be created; None where it can."""
    if table in model.tables:
        return f"table {table!r} exists already"
    if namespace_of(table) not in model.namespaces:
        return f"namespace {namespace_of(table)!r} does not exist"
    return None


def creation_remedy(model: Regions, table: str) -> str:
    """Returns what lets the creation of a table begin."""
    missing = namespace_of(table) not in model.namespaces
    return f"regent namespaces create {namespace_of(table)}" if missing else "see 'regent tables list'"


def table_problem(table: Table, act: TableAct) -> str | None:
    """Returns why a table cannot be changed; None where it can."""
    return change_problem(table.name, table.state, BEGINS[act])


def table_remedy(table: Table, act: TableAct) -> str:
    """Returns what lets the change of a table begin."""
    if act == "delete" and table.state is TableState.ENABLED:
        return f"regent tables disable {table.name} --wait"
    return f"see 'regent tables describe {table.name}'"


def drain_problem(model: Regions, server: Server) -> str | None:
    """Returns why a server cannot be drained; None where it can."""
    if server.state is not ServerState.ONLINE:
        return f"server {server} is {server.state.name.lower()}: its regions go elsewhere by themselves"
    if not any(one is not server for one in model.online()):
        return f"no server but {server} is online: its regions could go nowhere"
    return None
