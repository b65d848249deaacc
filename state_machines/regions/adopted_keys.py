"""Chooses the keys of a region that is stored again: those that it had, as far as a row tells them, within one hole."""

from __future__ import annotations

from typing import Final

from state_machines.regions.damage import NO_TABLE, Damage, RowKind
from state_machines.regions.findings import Refusal
from state_machines.regions.heirs import Range
from state_machines.regions.layout import key_text
from state_machines.regions.left_out import may_be_within, whole
from state_machines.regions.model import Regions

HOLES_NAMED: Final = 3
"""Key ranges that a sentence names."""


# -- what the row of a region tells that is left out


def own_row(model: Regions, id_: int) -> Damage | None:
    """Returns the row of a region that is left out; None without one."""
    return next((one for one in model.damages.of_id(id_) if one.kind is RowKind.REGION), None)


def table_problem(model: Regions, id_: int, table: str) -> Refusal | None:
    """Returns why a region is not stored again in a table: its row tells that it is one of another table."""
    own = own_row(model, id_)
    if own is None or own.table in ("", table) or own.why == NO_TABLE:
        return None
    what = f"region {id_} is one of table {own.table}, and not of {table}: its row tells that, which is left out"
    if own.table in model.tables:
        return Refusal(what, f"'regent regions adopt {id_} --table {own.table}' stores it there")
    forget = f"where that name is wrong, 'regent regions forget {id_}' removes the row, and any table may have it then"
    return Refusal(what, f"'regent tables adopt {own.table}' comes first, then restart the daemon; {forget}")


def told_of(model: Regions, id_: int, table: str, keys: Range) -> str:
    """Returns the end of a sentence on a region that is stored again: what its row tells that is different."""
    own = own_row(model, id_)
    if own is None:
        return ""
    sure = f"its row tells no table that is there: make sure that it was one of {table}"
    parts = [] if own.table == table else [sure]
    if own.start not in (None, keys[0]) or own.end not in (None, keys[1]):
        parts.append(f"its row had other keys, {_told(own)}: make sure that these are right")
    return "".join(f"; {one}" for one in parts)


# -- keys of a region


def adopted_keys(
    model: Regions, id_: int, table: str, holes: list[Range], start: bytes | None, end: bytes | None
) -> Range | Refusal:
    """Returns the keys that a lost region gets: those given, else those of its row, else all of the only hole."""
    own, known = own_row(model, id_), known_keys(model, id_)
    if own is None or not holes:
        return chosen_keys(holes, start, end, table, known)
    fits = [one for one in holes if may_be_within(own, one)]
    if not fits and not own.table:
        return _of_no_table(own, table)
    if (start is None or end is None) and (refusal := _of_another(model, own, table, holes)) is not None:
        return refusal
    if fits or whole(own) is None:
        given = own.start if start is None else start, own.end if end is None else end
        return chosen_keys(holes, *given, table, known)
    if start is None or end is None:
        what = f"region {id_} had the keys {_told(own)} by its row, and regions of table {table} have some of these"
        named = "; ".join(map(said, holes[:HOLES_NAMED]))
        return Refusal(what, f"give its keys with --start and --end, within those that no region has: {named}")
    return chosen_keys(holes, start, end, table, known)


def _of_no_table(own: Damage, table: str) -> Refusal:
    what = f"region {own.region} had the keys {_told(own)} by its row, and no hole of table {table} has all of them"
    other = "name the table that has: 'regent regions report --kind hole' shows them"
    forget = f"where these keys are wrong, 'regent regions forget {own.region}' removes the row"
    return Refusal(what, f"{other}; {forget}, and adopt it then with --start and --end")


def _of_another(model: Regions, own: Damage, table: str, holes: list[Range]) -> Refusal | None:
    """Returns why a row that tells no table is one of another table rather: just its keys are missing there."""
    keys = whole(own)
    if own.table or keys is None or keys in holes:
        return None
    gaps = (one for one in model.damages.gaps if not one.overlap and one.table != table)
    other = next((one.table for one in gaps if (one.start, one.end) == keys), None)
    if other is None:
        return None
    what = f"the row of region {own.region} does not tell its table, and just its keys are missing in table {other}"
    adopt = f"'regent regions adopt {own.region} --table {other}' stores it there"
    return Refusal(what, f"{adopt}; where it was one of {table}, give its keys with --start and --end")


def _told(own: Damage) -> str:
    first = "a key that cannot be read" if own.start is None else key_text(own.start) or "the first key"
    last = "one that cannot be read" if own.end is None else key_text(own.end) or "the last one"
    return f"from {first} to {last}"


def known_keys(model: Regions, id_: int) -> Range | None:
    """Returns keys within which those of a lost region lie, by what it refers to; None where nothing tells."""
    sources = model.sources.get(id_)
    if not sources:
        return None
    ends = [one.end for one in sources]
    return min(one.start for one in sources), b"" if b"" in ends else max(ends)


def chosen_keys(
    holes: list[Range], start: bytes | None, end: bytes | None, table: str, known: Range | None = None
) -> Range | Refusal:
    """Returns the keys that a region gets: all of the only hole, or a part of one. None: the bound is the hole's.

    ``known``: keys within which they lie.
    """
    if (
        holes
        and known is not None
        and not (holes := [both for one in holes if (both := _both(one, known)) is not None])
    ):
        what = f"the region had keys within those {said(known)}, and each of these has a region"
        return Refusal(what, f"see 'regent regions report --table {table}'")
    if not holes:
        return Refusal(f"each key of table {table!r} has a region", f"see 'regent regions report --table {table}'")
    named = "; ".join(map(said, holes[:HOLES_NAMED]))
    count = f"table {table!r} has {len(holes)} key ranges without a region: {named}"
    if start is None and end is None:
        return holes[0] if len(holes) == 1 else Refusal(count, "say which keys the region had: --start and --end")
    for first, last in holes:
        found = first if start is None else start, last if end is None else end
        if is_within(*found, (first, last)):
            return found
    keys = said((start or b"", end or b""))
    return Refusal(f"keys {keys} are not wholly without a region: {count}", "give keys within one of these ranges")


def _both(one: Range, other: Range) -> Range | None:
    """Returns the keys that two ranges share; None without any."""
    start = max(one[0], other[0])
    end = min(one[1], other[1]) if one[1] and other[1] else one[1] or other[1]
    return (start, end) if not end or start < end else None


def is_within(start: bytes, end: bytes, hole: Range) -> bool:
    """Checks whether keys are some, and lie in a hole."""
    first, last = hole
    if end and end <= start:
        return False
    return start >= first and (not last or (bool(end) and end <= last))


def said(keys: Range) -> str:
    """Returns key bounds for a sentence."""
    return f"from {key_text(keys[0]) or 'the first key'} to {key_text(keys[1]) or 'the last one'}"
