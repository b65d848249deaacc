"""Finds the regions that a row of sources is about, where it names a region that is not there.

Another tool may have changed the id of the row. Were it only removed, the data of a region that was split or merged
would be discarded, although an heir needs it that has no row by now.
"""

from __future__ import annotations

from state_machines.regions.model import Region, Regions
from state_machines.regions.repairs import known_keys


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
