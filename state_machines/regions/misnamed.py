"""Decides on rows whose id another tool has changed: which regions they are about, and which may leave their keys.

Were a row of sources only removed, the data of a region that was split or merged would be discarded, although an heir
needs it that has no row by now. A region under a wrong id finds no data, and no server opens it.
"""

from __future__ import annotations

from state_machines.regions.adopted_keys import known_keys
from state_machines.regions.entities import Region
from state_machines.regions.findings import Refusal
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, TableState


def heirs_without_sources(model: Regions, id_: int) -> list[Region]:
    """Returns the heirs of what a lost region refers to that refer to nothing, where it is none of these heirs.

    Each of them gets the row. One that has copied its data before keeps that, and says again that it is independent.
    """
    sources, keys = model.sources.get(id_, ()), known_keys(model, id_)
    parents = [model.parents.get(one.region) for one in sources if not one.snapshot]
    heirs = {heir for one in parents if one is not None for heir in one.heirs}
    if keys is None or id_ in heirs:
        return []
    start, end = keys
    free = (model.regions[one] for one in sorted(heirs) if one in model.regions and one not in model.sources)
    return [one for one in free if one.start >= start and (not end or (bool(one.end) and one.end <= end))]


def may_leave_hole(region: Region) -> Refusal | None:
    """Returns why a region is not forgotten that is the only one with its keys; None where it may be.

    One that is open is served. Of a table that is disabled no report shows a hole behind its last region.
    """
    if region.state is RegionState.OPEN:
        what = f"region {region} is open, and the only one with some of its keys"
        return Refusal(what, f"'regent regions unassign {region.id}' closes it first")
    if region.table.state is not TableState.ENABLED:
        state = region.table.state.name.lower()
        what = f"table {region.table.name!r} is {state}: no report shows a hole behind its last region then"
        return Refusal(what, f"'regent tables enable {region.table.name}' comes first")
    return None
