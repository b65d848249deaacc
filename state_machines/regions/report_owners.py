"""Judges regions that no process serves, or that several processes list as their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from state_machines.regions.entities import Region, Server
from state_machines.regions.findings import Finding, FindingKind, Findings, Held, Scope
from state_machines.regions.model import Regions
from state_machines.regions.overlaps import opening_mend
from state_machines.regions.states import RegionState, ServerState, TableState
from state_machines.regions.transit import Way, way_of

NAMED_MAX: Final = 3
"""Processes that one sentence names."""
K = FindingKind
S = RegionState


def judge_owner(model: Regions, scope: Scope, found: Findings, region: Region, held: Held) -> None:
    """Judges a region that was not open at a process that serves."""
    server, id_ = region.server, region.id
    pid = region.pid or held.regions.get(id_, 0)
    lost = server is not None and (server.state is not ServerState.ONLINE or _is_stranger(model, server))
    if (pid and held.goes_on(pid)) or id_ in held.soon or (lost and _crash_goes_on(model, server, held)):
        if id_ in held.failing and not lost:
            found.add(K.NOT_OPEN, _failing, region, pid, held.failing[id_])
        else:
            found.in_work += lost or region.state is not S.OPEN
    elif id_ in scope.owners:
        found.add(K.UNKNOWN_SERVER, _without_row, region, scope.owners[id_])
    elif lost:
        found.add(K.UNKNOWN_SERVER, _left, model, region, held)
    elif region.table.state is TableState.ENABLED and (region.state is not S.OPEN or server is None):
        found.add(K.NOT_OPEN, _not_open, model, region, pid, scope)


def _is_stranger(model: Regions, server: Server) -> bool:
    return model.servers.get(server.key) is not server


def _crash_goes_on(model: Regions, server: Server | None, held: Held) -> bool:
    """Checks whether a procedure deals with the crash of a process, or is about to."""
    if server is None or _is_stranger(model, server):
        return False
    pid = held.servers.get(server.key, 0)
    return held.goes_on(pid) if pid else server.key in held.crashing


def _without_row(region: Region, owner: str) -> Finding:
    why = f"its owner {owner} is no process that the store knows"
    return _finding(K.UNKNOWN_SERVER, region, why, "start the daemon: it takes care of the region by itself", owner)


def _left(model: Regions, region: Region, held: Held) -> Finding:
    """Describes a region whose owner is gone, and with whose crash nothing goes on."""
    server = region.server
    assert server is not None
    pid = held.servers.get(server.key, 0)
    if _is_stranger(model, server):
        pid, why, mend = 0, "is no member any more", "restart the daemon: it picks the region up"
    elif pid:
        why = f"crashed, and procedure {pid}, its crash, is not run"
        bypass = f"'regent regions procedures bypass {pid}' has the crash begin anew"
        mend = f"restart the daemon, which tries it again; {bypass}"
    else:
        why, mend = (
            "crashed, and no procedure deals with that",
            "it begins within seconds; where not, restart the daemon",
        )
    return _finding(K.UNKNOWN_SERVER, region, f"its owner {server} {why}", mend, str(server), pid)


def _not_open(model: Regions, region: Region, pid: int, scope: Scope) -> Finding:
    """Describes a region of an enabled table that is not open. ``pid``: of a procedure that has it, and is not run."""
    assign = opening_mend(model, region)
    why = f"it is {region.state.name}"
    if not scope.serving:
        owner = None if region.server is None else region.server.state
        by_itself = way_of(region.state, owner, region.table.state) in (Way.ASSIGN, Way.CLOSE)
        assign = f"start the daemon: it opens it by itself, or {assign}" if by_itself else f"start the daemon: {assign}"
    if pid:
        why += f", and procedure {pid}, which has it, is not run"
        assign = f"restart the daemon, or 'regent regions procedures bypass {pid}' ends that, and then {assign}"
    elif region.state is S.FAILED_OPEN:
        why += ": no server could open it"
        assign = f"'regent regions explain {region.id}' has the cause; then {assign}"
    else:
        why += ", and no procedure opens it"
    return _finding(K.NOT_OPEN, region, why, assign, pid=pid)


def _failing(region: Region, pid: int, failed: str) -> Finding:
    """Describes a region whose opens fail, and are tried again."""
    why = f"it is {region.state.name}, and procedure {pid} tries its open again and again: {failed}"
    cause = f"remove the cause at its service, and it opens by itself; 'regent regions explain {region.id}' has more"
    mend = f"{cause}; where its data is lost or has another id, 'regent regions forget {region.id} --leave-hole'"
    return _finding(K.NOT_OPEN, region, why, mend, pid=pid)


def judge_claim(model: Regions, scope: Scope, found: Findings, id_: int, processes: Sequence[tuple[str, int]]) -> None:
    """Judges a region that processes list against the model. One without an owner, at one process, is a stray."""
    region = model.regions.get(id_)
    if region is None or not scope.has(region.table.name) or (region.server is None and len(processes) < 2):
        return
    found.add(K.CLAIMED_TWICE, _claimed, region, processes)


def _claimed(region: Region, processes: Sequence[tuple[str, int]]) -> Finding:
    names = [f"{name},{incarnation}" for name, incarnation in sorted(processes)]
    owner = f"{region.server} has it" if region.server is not None else "it has no owner"
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    list_it = "lists" if len(names) == 1 else "list"
    why = f"{owner}, and {', '.join(names[:NAMED_MAX])}{more} {list_it} it"
    mend = f"it is closed there by itself; where that hangs, 'regent servers expire {names[0].rpartition(',')[0]}'"
    return _finding(K.CLAIMED_TWICE, region, why, mend, names[0])


def _finding(kind: FindingKind, region: Region, why: str, mend: str, server: str = "", pid: int = 0) -> Finding:
    has = server or str(region.server or "")
    keys = region.start, region.end
    about = region.table.name, (region.id,), *keys, has
    return Finding(kind, f"region {region}: {why}", mend, *about, pid or region.pid)
