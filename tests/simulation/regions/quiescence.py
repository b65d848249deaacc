"""Decides whether all is in order once no fault is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.regions.term import RegionsTerm
from state_machines.regions.changes import partly_made
from state_machines.regions.entities import Region
from state_machines.regions.findings import FindingKind
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import RegionState, ServerState, TableState
from tests.simulation.regions import znodes
from tests.simulation.regions.damaging import found_in

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

S = RegionState


def unsettled(world: SimulatedRegions) -> str:
    """Returns what is not in order; empty where all is."""
    term = world.term
    if term is None:
        return "no daemon serves"
    if why := _procedures(world, term):
        return why
    for process in world.processes:
        if process.alive and process.node.current is not process:
            return f"{process.key} is a zombie, and lives on"
    for name, table in term.env.model.tables.items():
        if table.state not in (TableState.ENABLED, TableState.DISABLED):
            return f"table {name} is {table.state.name}"
        for region in table.regions:
            if why := _wrong(world, term, region):
                return why
    if marks := [str(one) for one in term.env.model.marks if one.kind is not MarkKind.LEVEL]:
        return f"marks are left: {marks[:3]}"
    return _servers(world, term) or _shapes(term) or _found(term) or znodes.left(world)


def _shapes(term: RegionsTerm) -> str:
    """Regions of tables that are disabled stay as they are: nobody copies what they refer to."""
    model = term.env.model
    held = {id_ for id_ in model.sources if model.regions[id_].table.state is TableState.DISABLED}
    if left := model.sources.keys() - held:
        return f"regions {sorted(left)} refer to others still"
    needed = {source.region for id_ in held for source in model.sources[id_] if not source.snapshot}
    if parents := model.parents.keys() - needed:
        return f"regions {sorted(parents)} are remembered, and none refers to them"
    return ""


def _found(term: RegionsTerm) -> str:
    """A report finds nothing, but a table that was disabled before all of its regions were made."""
    tables = term.env.model.tables
    found = [one for one in found_in(term) if one.kind is not FindingKind.HOLE or not partly_made(tables[one.table])]
    return f"a report finds {[one.what for one in found[:3]]}" if found else ""


def _procedures(world: SimulatedRegions, term: RegionsTerm) -> str:
    live = [f"{one.pid} {one.kind} step {one.step} {one.error}" for one in term.engine.live()]
    if live:
        return f"procedures go on: {live[:3]}"
    if term.engine.locks():
        return f"locks are held: {term.engine.locks()[:3]}"
    if term.engine.unusable:
        return f"records cannot be used: {term.engine.unusable}"
    strange = world.disk.bodies.keys() ^ term.engine.records.keys()
    return f"records {sorted(strange)[:5]} are in the store alone, or in memory alone" if strange else ""


def _wrong(world: SimulatedRegions, term: RegionsTerm, region: Region) -> str:
    serving = [one.key for one in world.processes if one.serves(region.id) is not None]
    if region.pid:
        return f"{region} is attached to pid {region.pid}"
    if region.table.state is TableState.DISABLED:
        wrong = serving or region.server is not None or region.state in (S.OPEN, S.OPENING, S.CLOSING)
        return f"{region} of a disabled table is {region.state.name}, served by {serving}" if wrong else ""
    if region.state is not S.OPEN or region.server is None:
        return f"{region} is {region.state.name} at {region.server}, served by {serving}"
    if region.server.state is not ServerState.ONLINE or serving != [region.server.key]:
        return f"{region} is at {region.server}, served by {serving}"
    [found] = [one.serves(region.id) for one in world.processes if one.key == region.server.key]
    if found is None or found.token != region.token:
        return f"{region} has token {region.token}, {region.server} has {found}"
    if region.version == region.table.version and found.options != region.table.options:
        return f"{region} has version {region.version}, {region.server} has {found.options}"
    return ""


def _servers(world: SimulatedRegions, term: RegionsTerm) -> str:
    alive = sorted(one.key for one in world.processes if one.alive)
    known = sorted(term.env.model.servers)
    return "" if alive == known else f"servers {alive} live, {known} are known"
