"""Finds the rows of regions that are left out and may have some keys of a table, by what can be read of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from state_machines.regions.damage import Damage, Damages, RowKind
from state_machines.regions.entities import Table
from state_machines.regions.heirs import Range
from state_machines.regions.model import Regions

VAGUE_MAX: Final = 3
"""Rows whose keys cannot be read that may have the keys of one hole."""
BY_START: Final = attrgetter("start", "region")


def whole(damage: Damage) -> Range | None:
    """Returns the keys that a row tells; None where it does not tell both bounds."""
    return None if damage.start is None or damage.end is None else (damage.start, damage.end)


def may_share(damage: Damage, keys: Range) -> bool:
    """Checks whether a row may have some keys, by what can be read of it."""
    start, end = keys
    if damage.start is not None and end and damage.start >= end:
        return False
    return not (damage.end and damage.end <= start)


def may_be_within(damage: Damage, keys: Range) -> bool:
    """Checks whether all keys of a row may be among others, by what can be read of it."""
    start, end = keys
    if damage.start is not None and damage.start < start:
        return False
    if damage.end is not None and end and not (damage.end and damage.end <= end):
        return False
    return may_share(damage, keys)


# -- what keeps keys from being given away


def obstacle(damages: Damages, table: str, ranges: Sequence[Range], but: int = 0) -> Damage | None:
    """Returns the row of a region that may have keys of a table. ``but``: id of a region whose own row is none."""
    for one in _rows_of(damages, table):
        if not (but and one.region == but) and any(may_share(one, keys) for keys in ranges):
            return one
    return None


def in_the_way(model: Regions, table: Table, ranges: Sequence[Range] | None = None, but: int = 0) -> str:
    """Returns the row that may have keys of a table, and is left out; empty where none may.

    ``ranges``: these keys, else all that no region has. ``but``: id of a region whose own row does not count.
    """
    damages, name = model.damages, table.name
    if damages.untold and (why := damages.of_rows(name, but)):
        return why
    keys = free_of(model, table) if ranges is None else ranges
    if (found := obstacle(damages, name, keys, but)) is not None:
        return str(found) if found.table else f"its keys have a gap, and {found} may be there"
    own = next((str(one) for one in damages.rows if one.kind is RowKind.TABLE and one.name == name), "")
    return own or (f"the row of table {name} is damaged" if damages.sound_of(name) else "")


def free_of(model: Regions, table: Table) -> list[Range]:
    """Returns the keys of a table that no region has, as far as the model knows them, and all behind its last region.

    A table may have a hole there that is not noted, where its creation was ended early.
    """
    found = [(gap.start, gap.end) for gap in model.damages.of_keys(table.name) if not gap.overlap]
    if not table.regions:
        return [(b"", b"")]
    last = table.regions[-1].end
    return [*found, (last, b"")] if last else found


def _rows_of(damages: Damages, table: str) -> Iterator[Damage]:
    """Yields the rows of regions that are left out of a table, or do not tell theirs."""
    return (one for one in damages.rows if one.kind is RowKind.REGION and one.table in ("", table))


# -- which rows a hole names


class LeftOut:
    """Finds rows that have the keys of a hole. Each of them fits into it, as far as its keys can be read."""

    def __init__(self, model: Regions, table: str) -> None:
        self.table = table
        rows = list(_rows_of(model.damages, table))
        others: set[Range] = set()
        if any(not one.table for one in rows):
            others = {(one.start, one.end) for one in model.damages.gaps if one.table != table and not one.overlap}
        told = [one for one in rows if whole(one) is not None]
        self._named = sorted((one for one in told if one.table), key=BY_START)
        self._nameless = sorted((one for one in told if not one.table), key=BY_START)
        self._elsewhere = others
        """Holes of other tables: a row that does not tell its table, and has just these keys, is of such a one."""
        vague = sorted((one for one in rows if whole(one) is None), key=lambda one: not one.table)
        self._started = sorted((one for one in vague if one.start is not None), key=BY_START)
        self._ended = sorted((one for one in vague if one.end is not None), key=_by_end)
        self._unread = [one for one in vague if one.start is None and one.end is None][:VAGUE_MAX]

    def of(self, keys: Range) -> list[Damage]:
        """Returns rows that may have keys which no region has: those that tell it alone, where they have all."""
        found = _within(self._named, keys)
        if not _cover(found, keys):
            found += [one for one in _within(self._nameless, keys) if self._is_here(one, keys)]
        if not _cover(found, keys):
            found += islice(self._of_vague(keys), VAGUE_MAX)
        return found

    def _of_vague(self, keys: Range) -> Iterator[Damage]:
        """Yields rows that do not tell both bounds, and may have keys: first those that tell one."""
        yield from _within(self._started, keys)
        first = bisect_right(self._ended, (not keys[0], keys[0]), key=_by_end) if keys[0] else 0
        last = bisect_right(self._ended, (not keys[1], keys[1]), key=_by_end)
        yield from self._ended[first:last]
        yield from self._unread

    def _is_here(self, damage: Damage, keys: Range) -> bool:
        told = whole(damage)
        return told == keys or told not in self._elsewhere


def _by_end(damage: Damage) -> tuple[bool, bytes]:
    """Orders rows by their ends: that of all keys is the last one."""
    return not damage.end, damage.end or b""


def _within(rows: Sequence[Damage], keys: Range) -> list[Damage]:
    """Returns the rows, in the order of their keys, that fit into others."""
    start, end = keys
    first = bisect_left(rows, start, key=attrgetter("start"))
    last = bisect_left(rows, end, key=attrgetter("start")) if end else len(rows)
    return [one for one in rows[first:last] if may_be_within(one, keys)]


def _cover(rows: Sequence[Damage], keys: Range) -> bool:
    """Checks whether rows together have all of some keys."""
    reached, end = keys
    for start, other in sorted(told for one in rows if (told := whole(one)) is not None):
        if start > reached:
            return False
        if not other:
            return True
        reached = max(reached, other)
    return bool(end) and reached >= end
