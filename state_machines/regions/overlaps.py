"""Finds the region that serves keys of another one, and names what parts the two. Clients get no route until then."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Final

from state_machines.regions.damage import Gap
from state_machines.regions.entities import Region, place_of, start_of
from state_machines.regions.findings import COPY
from state_machines.regions.heirs import is_inner, way_to_part
from state_machines.regions.layout import key_word
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, TableState

NEAR: Final = 16
"""Regions on each side of one that may cover it together."""
WAITS: Final = "one of the regions is on its way: wait for the end of that, then see 'regent regions report'"


def served_beside(model: Regions, region: Region) -> Region | None:
    """Returns a region that a server has, or may have, and that shares keys with another one; None without one.

    Of three and more that share the same keys it may miss one; a split since the start of the daemon hides none.
    """
    if not model.damages.overlapping:
        return None
    return next((one for one in _near(model, region) if one.server is not None and shares(one, region)), None)


def shares(one: Region, other: Region) -> bool:
    """Checks whether two regions of a table are different ones with some keys in common."""
    return one is not other and (not other.end or one.start < other.end) and (not one.end or other.start < one.end)


def _near(model: Regions, region: Region) -> Iterator[Region]:
    """Yields the regions beside another one, and those that overlaps name which begin within its keys."""
    found, at = region.table.regions, place_of(region)
    if at is not None:
        yield from found[max(0, at - 1) : at + 2]
    for gap in _within(model, region):
        yield from (one for id_ in gap.regions if (one := model.regions.get(id_)) is not None)


def _within(model: Regions, region: Region) -> Iterator[Gap]:
    gaps = model.damages.of_keys(region.table.name)
    first = bisect_left(gaps, region.start, key=attrgetter("start"))
    for gap in islice(gaps, first, None):
        if region.end and gap.start >= region.end:
            return
        if gap.overlap:
            yield gap


# -- what parts them


def opening_mend(model: Regions, region: Region) -> str:
    """Returns what opens a region; where another one serves keys of it, what comes before."""
    beside = served_beside(model, region) or _grown_beside(model, region)
    if beside is None:
        return f"'regent regions assign {region.id}' opens it"
    return pair_mend(model, *sorted((region, beside), key=start_of))


def _grown_beside(model: Regions, region: Region) -> Region | None:
    """Returns a region that nothing serves, and that has grown over another one: it is parted before that opens."""
    if not model.damages.overlapping:
        return None
    near = (one for one in _near(model, region) if shares(one, region))
    return next((one for one in near if (key := grown_from(one)) is not None and region.start >= key), None)


def pair_mend(model: Regions, first: Region, second: Region) -> str:
    """Returns the mend of two regions: one goes whose keys others have, or first a part of one becomes such.

    One that is open, or was written more often, has the data more likely: it is not named, or last. One that has grown
    over others that join without it is parted first: no data of these is given up for it.
    """
    for large, small in ((first, second), (second, first)):
        if (joint := _grown_over(large, small)) is not None:
            return _grown_mend(model, large, small, joint)
    both = sorted((first, second), key=_likely)
    inner = [one for one in both if is_inner(one, second if one is first else first)]
    if found := inner or [one for one in both if _is_covered(one)]:
        one, kept = found[0], second if found[0] is first else first
        forget = f"'regent regions forget {one.id}' removes the row of {_described(one)}, whose keys others have"
        beside = f": region {_described(kept)} stays; what was written to {one.id} is not served then"
        other = f"; else 'regent regions forget {kept.id}', where that one has no data" if len(found) > 1 else ""
        return f"{COPY}{forget}{beside}{other}"
    if first.table.state is TableState.DISABLED:
        return f"'regent tables enable {first.table.name}' comes first: a region is split that is open"
    region, key = (first, second.start) if first.state is RegionState.OPEN else (second, first.end)
    if region.state is not RegionState.OPEN:
        return _opening(model, first, second)
    way = way_to_part(region, key)
    if isinstance(way, Region):
        return f"'regent regions forget {way.id}' comes first: another region has its keys"
    split = f"'regent regions split {region.id} --key {key_word(way)}' parts a region"
    return f"{split}; then 'regent regions forget' removes the part whose keys another one has"


def grown_from(region: Region) -> bytes | None:
    """Returns the key from which other regions that join have the keys of a region to its end; None without one.

    Of those at its first key there are several: of two with the same keys each may be the right one. It looks at a few
    regions, and takes it that the ones behind these go on.
    """
    found, end = region.table.regions, region.end
    first = bisect_left(found, region.start, key=start_of)
    some = [one for one in found[first : first + NEAR + 1] if one is not region]
    if not some or (end and some[0].start >= end):
        return None
    key = reached = some[0].start
    for number, one in enumerate(some):
        if one.start != reached:
            return None
        reached = one.end
        if not reached or (end and reached >= end):
            return key if number or key > region.start else None
    return key if first + NEAR + 1 < len(found) else None


def _grown_over(region: Region, other: Region) -> bytes | None:
    """Returns the key from which a region has grown over another one, and maybe more; None where it has not.

    Another one that begins in front of them is none of these, nor is one that yet others have to its end.
    """
    key = grown_from(region)
    if key is None or other.start < key or not (is_inner(other, region) or not _is_covered(other)):
        return None
    return key


def _grown_mend(model: Regions, region: Region, other: Region, key: bytes) -> str:
    """Returns the mend of a region that has grown over others: the part goes whose keys these have from a key on."""
    name, id_ = region.table.name, region.id
    other_way = f"; else 'regent regions forget {other.id}' removes {_described(other)}, where the others have no data"
    end = other_way if is_inner(other, region) else ""
    if key == region.start or _is_covered(region):
        forget = f"'regent regions forget {id_}' removes the row of {_described(region)}, whose keys others have"
        return f"{COPY}{forget} that join without it{end}"
    split = f"'regent regions split {id_} --key {key_word(key)}' parts a region, whose keys others have from there on"
    then = f"{split}; then 'regent regions forget' removes that part{end}"
    if region.table.state is TableState.DISABLED:
        return f"{COPY}'regent tables enable {name}' comes first: a region is split that is open; {then}"
    if region.state is RegionState.OPEN:
        return f"{COPY}{then}"
    if (served := served_beside(model, region)) is None:
        return f"{COPY}'regent regions assign {id_}' comes first: a region is split that is open; {then}"
    if served.state is not RegionState.OPEN:
        return WAITS
    return f"{COPY}'regent regions unassign {served.id}' comes first, until no other one has keys of {id_}; {then}"


def _likely(region: Region) -> tuple[bool, bool, int]:
    """Orders regions by how likely they have the data of their keys."""
    return region.state is RegionState.OPEN, region.server is not None, region.sequence


def _described(region: Region) -> str:
    return f"{region.id}, {region.state.name} with sequence {region.sequence}"


def _is_covered(region: Region) -> bool:
    """Checks whether some regions near another one together have all of its keys; it may miss those that begin far."""
    at = place_of(region)
    if at is None:
        return False
    reached, found = region.start, region.table.regions
    for one in islice(found, max(0, at - NEAR), at + NEAR):
        if one is region or one.start > reached:
            continue
        if not one.end:
            return True
        reached = max(reached, one.end)
    return bool(region.end) and reached >= region.end


def _opening(model: Regions, first: Region, second: Region) -> str:
    """Returns what lets one of two regions be opened, so that it can be split."""
    beside = [served_beside(model, one) for one in (first, second)]
    for one, other in zip((first, second), beside, strict=True):
        if other is None:
            return f"'regent regions assign {one.id}' comes first: a region is split that is open"
    other = beside[1]
    if other is None or other.state is not RegionState.OPEN:
        return WAITS
    return pair_mend(model, *sorted((second, other), key=start_of))
