"""Decides on regions whose keys others get: where a region is split, and which regions are merged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from state_machines.regions.entities import Region, place_of, start_of
from state_machines.regions.layout import KEY_BYTES_MAX, key_text

MERGED_MIN: Final = 2
MERGED_MAX: Final = 10
"""Regions of one merge: as many as the data of a region may begin in."""
Range = tuple[bytes, bytes]
"""First key, and the key behind the last one: empty without an end."""


def key_problem(region: Region, key: bytes) -> str | None:
    """Returns why a region cannot be split at a key; None where it can. The text names the key and what is expected."""
    if len(key) > KEY_BYTES_MAX:
        return f"key: {len(key)} bytes, at most {KEY_BYTES_MAX}"
    keys = f"from {key_text(region.start) or 'the first key'!r} to {key_text(region.end) or 'the last one'!r}"
    if key == region.start or key == region.end:
        return f"key: {key_text(key)!r} is a bound of region {region}, which is {keys}"
    if key < region.start or (region.end and key > region.end):
        return f"key: {key_text(key)!r} is outside of region {region}, which is {keys}"
    after = _after(region)
    if after is not None and after.start == region.start:
        return f"key: region {after} begins with the same key as region {region}: {_forgets(_inner(region, after))}"
    if after is not None and after.start < key:
        return (
            f"key: region {after} has keys before {key_text(key)!r}, too, from {key_text(after.start)!r}: give that one"
        )
    return None


def _after(region: Region) -> Region | None:
    """Returns the region behind another one of its table, which may begin with the same key."""
    return _beside(region, 1)


def _beside(region: Region, by: int) -> Region | None:
    """Returns the region at a place before or behind another one of its table; None without one."""
    at, regions = place_of(region), region.table.regions
    return None if at is None or not 0 <= at + by < len(regions) else regions[at + by]


def is_inner(one: Region, other: Region) -> bool:
    """Checks whether another region has all keys of a region."""
    return other.start <= one.start and (not other.end or (bool(one.end) and one.end <= other.end))


def _inner(region: Region, other: Region) -> Region:
    """Returns that of two regions with the same start key whose keys the other one has."""
    return region if is_inner(region, other) else other


def _forgets(region: Region) -> str:
    return f"'regent regions forget {region.id}' comes first, as the other one has its keys"


def way_to_part(region: Region, key: bytes) -> bytes | Region:
    """Returns the key at which a region is split on the way to a split at ``key``; else what is forgotten before."""
    before, after = _beside(region, -1), _after(region)
    for one in (before, after):
        if one is not None and one.start == region.start:
            return _inner(region, one)
    if after is None or after.start >= key:
        return key
    return after if is_inner(after, region) else after.start


def apart_problem(regions: Sequence[Region]) -> str | None:
    """Returns why the keys of regions cannot go to others: regions are between them, by start key. None: they can."""
    found = regions[0].table.regions
    first = min(regions, key=start_of)
    places = sorted(at for one in regions if (at := place_of(one)) is not None)
    between = found[places[0] : places[-1] + 1] if places else []
    twins = (one for by in (-1, 1) if (one := _beside(first, by)) is not None and one.start == first.start)
    beside = next((one for one in (*twins, *between) if one not in regions), None)
    return None if beside is None else f"region {regions[0]} shares keys with region {beside}"


def halves(region: Region, key: bytes) -> tuple[Range, Range]:
    """Returns the ranges of the two heirs of a split."""
    return (region.start, key), (key, region.end)


def whole(regions: Sequence[Region]) -> tuple[Range]:
    """Returns the range of the heir of a merge. ``regions``: in the order of keys."""
    return ((regions[0].start, regions[-1].end),)


def neighbours_problem(regions: Sequence[Region]) -> str | None:
    """Returns why regions cannot become one; None where they can. ``regions``: in the order of keys."""
    if not MERGED_MIN <= len(regions) <= MERGED_MAX:
        return f"regions: {len(regions)} given, expected {MERGED_MIN} to {MERGED_MAX} neighbours"
    for one, other in pairwise(regions):
        if one.table is not other.table:
            return f"regions: {one} and {other} are of different tables, and only regions of one table are merged"
        if one.end != other.start or not one.end:
            return (
                f"regions: {one} ends at {key_text(one.end)!r}, and {other} begins at {key_text(other.start)!r}: "
                "give neighbours, without a region between them"
            )
    return None
