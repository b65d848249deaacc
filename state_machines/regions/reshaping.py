"""Enters splits and merges that are committed, and says whether there is room for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from state_machines.regions.entities import Region, place_of
from state_machines.regions.model import Regions
from state_machines.regions.shapes import HEIRS_MAX, ParentRow, Source
from state_machines.regions.states import RegionState


def reshape(
    model: Regions,
    parents: Sequence[ParentRow],
    heirs: Sequence[Region],
    sources: Mapping[int, tuple[Source, ...]],
    now_ms: int,
) -> None:
    """Replaces regions that lie side by side by others with the same keys; raises ``ValueError`` for other keys.

    All come in the order of their keys. The parents are closed; no procedure is attached to them afterwards.
    """
    if _bounds(parents) != _bounds(heirs):
        raise ValueError(f"regions {[one.id for one in heirs]} have other keys than {[one.id for one in parents]}")
    table = model.tables[parents[0].table]
    lowest = model.regions.get(parents[0].id)
    first = None if lowest is None else place_of(lowest)
    gone = [] if first is None else table.regions[first : first + len(parents)]
    if first is None or [one.id for one in gone] != [one.id for one in parents]:
        raise ValueError(f"{[one.id for one in parents]} do not lie side by side in table {table.name}")
    for parent, region in zip(parents, gone, strict=True):
        model.move(region, RegionState(parent.state), None, now_ms)
        model.detach(region, region.pid)
        table.counts[region.state] -= 1
        del model.regions[region.id]
        model.sources.pop(region.id, None)
        model.former.pop(region.id, None)
        model.parents[parent.id] = parent
    table.regions[first : first + len(parents)] = heirs
    for heir in heirs:
        model.regions[heir.id] = heir
        table.counts[heir.state] += 1
    model.sources.update(sources)


def _bounds(some: Sequence[ParentRow | Region]) -> list[bytes]:
    """Returns the first and the last key; raises ``ValueError`` where one does not begin at the end of another."""
    if any(one.end != after.start or not one.end for one, after in pairwise(some)):
        raise ValueError(f"the keys of {[one.id for one in some]} have a hole")
    return [some[0].start, some[-1].end]


def no_room(model: Regions, heirs: int, parents: int = 0) -> str | None:
    """Returns why so many more regions cannot refer to others, or be remembered for them; None where they can."""
    for there, more, what in (
        (len(model.sources), heirs, "regions have no data of their own yet"),
        (len(model.parents), parents, "regions wait until their data is discarded"),
    ):
        if there + more > HEIRS_MAX:
            return f"{there:,} {what}, and {more:,} more would be more than {HEIRS_MAX:,}: wait until fewer do"
    return None
