"""Decides on repairs of rows by the ids of regions: which are stored again, and of which the catalog is to forget all.

A row that is lost says nothing. So a region is stored again only where its id may be one, and where no other row has it
or may have its keys. A row is forgotten only where it cannot be right, or cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from state_machines.regions.changes import PROCESS_MEND, SETTLED, keys_problem
from state_machines.regions.damage import CLOSED, RowKind
from state_machines.regions.findings import FindingKind, Findings, Refusal, Scope
from state_machines.regions.heirs import Range
from state_machines.regions.layout import key_text, key_word
from state_machines.regions.model import Region, Regions, Table
from state_machines.regions.report_rows import judge_parent
from state_machines.regions.shapes import end_of

HEIRS_NAMED: Final = 3
"""Heirs that a sentence names."""
HOLES_NAMED: Final = 3
"""Key ranges that a sentence names."""
ROW: Final = "restore the rows from a copy of the store, with the daemon stopped"


class Forgotten(StrEnum):
    """What the catalog has of a region that is to be forgotten."""

    REGION = "region"
    """A region whose keys others have."""
    PARENT = "parent"
    """A region that was split, merged or truncated, and whose heirs are lost."""
    SOURCES = "sources"
    """What a region refers to that is lost itself."""
    DAMAGED = "damaged"
    """Rows that are left out."""


# -- regions that are stored again


def adoption_problem(model: Regions, id_: int, table: Table, *, given: bool) -> Refusal | None:
    """Returns why the row of a region cannot be stored again; None where it can. ``given``: the id was given out."""
    if not given:
        what = f"region {id_} never was: this store has not given out that id"
        return Refusal(what, f"'regent events show --table {table.name}' has the ids of its regions: name one of these")
    if (region := model.regions.get(id_)) is not None:
        return Refusal(f"region {region} is there: it is {region.state.name}", f"see 'regent regions explain {id_}'")
    if (parent := model.parents.get(id_)) is not None:
        heirs = ", ".join(f"#{one}" for one in parent.heirs[:HEIRS_NAMED])
        what = f"region {id_} is {end_of(parent)}: its heirs {heirs} got its keys"
        return Refusal(what, "adopt the heir whose row is lost")
    if (refusal := _left_out(model, id_)) is not None:
        return refusal
    if (refusal := _had_heirs(model, id_, table)) is not None:
        return refusal
    if (why := keys_problem(model, table, but=id_)) is not None:
        settled = table.state in SETTLED
        return Refusal(why, _other_rows(model, table, id_) if settled else f"see 'regent tables describe {table.name}'")
    return None


def _had_heirs(model: Regions, id_: int, table: Table) -> Refusal | None:
    """Returns why a region that others of its table begin in is not stored again, also where their rows are lost."""
    for heir in heirs_of(model, id_):
        region = model.regions.get(heir)
        if region is not None and region.table is table:
            what = f"region {id_} was split or merged: the data of region {region} begins as its data"
            return Refusal(what, "adopt the heir whose row is lost, or give the keys to an empty region by fix-keys")
        if region is None:
            what = f"the data of region {heir} begins as that of region {id_}, and the row of {heir} is lost"
            return Refusal(what, f"'regent regions adopt {heir}' with its table comes first; or forget {heir}")
    return None


def known_keys(model: Regions, id_: int) -> Range | None:
    """Returns keys within which those of a lost region lie, by what it refers to; None where nothing tells."""
    sources = model.sources.get(id_)
    if not sources:
        return None
    ends = [one.end for one in sources]
    return min(one.start for one in sources), b"" if b"" in ends else max(ends)


def _left_out(model: Regions, id_: int) -> Refusal | None:
    """Returns why rows of an id that are left out keep its region from being stored again; its own row does not."""
    damages = model.damages.of_id(id_)
    for one in damages:
        if (refusal := _untouched(id_, one.kind, one.why, one.name)) is not None:
            return refusal
        if one.kind is RowKind.PARENT:
            what = f"region {id_} was split, merged or truncated, and that row is left out ({one})"
            return Refusal(what, f"{ROW}; where none has them, 'regent regions forget {id_}' removes the row")
        if one.kind is RowKind.HEIR:
            what = f"what region {id_} refers to cannot be read ({one}), and it would open without that data"
            forget = f"'regent regions forget {id_}' comes first where the service has all of its data below this id"
            return Refusal(what, f"{ROW}; {forget}")
    if id_ in model.damages.regions and not damages:
        return Refusal(f"region {id_} is left out because its table is", f"{ROW}: that of its table")
    return None


def _untouched(id_: int, kind: RowKind, why: str, owner: str) -> Refusal | None:
    """Returns why a row that is left out is neither replaced nor removed; None where it may be."""
    if kind is RowKind.REGION and owner:
        what = f"server {owner} may have region {id_}, and no row of a server names that process"
        return Refusal(what, f"'regent servers recover {owner}', then restart the daemon")
    if why.startswith(CLOSED):
        return Refusal(f"the row of region {id_} is closed to this daemon ({why})", "repair its ACL first")
    return None


def _other_rows(model: Regions, table: Table, id_: int) -> str:
    """Returns what mends rows that may have the keys of a table, besides that of a region."""
    if not model.damages.of_rows(table.name, id_):
        return PROCESS_MEND
    rows = (one for one in model.damages.rows if one.kind is RowKind.REGION and one.table in ("", table.name))
    first = next((one.region for one in rows if one.region not in (0, id_)), 0)
    adopt = f"; where none has them, 'regent regions adopt {first} --table {table.name}' comes first, or forget {first}"
    return f"{ROW}{adopt if first else ''}"


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


# -- rows that are forgotten


def forgettable(model: Regions, id_: int) -> Forgotten | Refusal:
    """Returns what is to be forgotten of an id. Of a region it is not judged yet whether others have its keys."""
    if (region := model.regions.get(id_)) is not None:
        return _region(model, region)
    if damages := model.damages.of_id(id_):
        for one in damages:
            if (refusal := _untouched(id_, one.kind, one.why, one.name)) is not None:
                return refusal
        return _needed(model, id_) or Forgotten.DAMAGED
    if id_ in model.damages.regions:
        return Refusal(f"region {id_} is left out because its table is", f"{ROW}: that of its table")
    if id_ in model.parents:
        return _parent(model, id_)
    if id_ in model.sources:
        return Forgotten.SOURCES
    return Refusal(f"the catalog has nothing of region {id_}", "'regent regions report' names what is wrong")


def _region(model: Regions, region: Region) -> Forgotten | Refusal:
    table = region.table
    if table.state not in SETTLED:
        what = f"table {table.name!r} is {table.state.name.lower()}, and must be enabled or disabled"
        return Refusal(what, f"see 'regent tables describe {table.name}'")
    return _needed(model, region.id) or Forgotten.REGION


def _parent(model: Regions, id_: int) -> Forgotten | Refusal:
    parent, found = model.parents[id_], Findings(Scope(kind=FindingKind.NO_HEIRS))
    judge_parent(model, Scope(), found, parent)
    if not found.counts:
        what = f"region {id_} is {end_of(parent)}, and regions have its keys"
        return Refusal(what, "it is forgotten by itself: 'regent regions parents' says what it waits for")
    return _needed(model, id_) or Forgotten.PARENT


def _needed(model: Regions, id_: int) -> Refusal | None:
    heir = next(heirs_of(model, id_), 0)
    if not heir:
        return None
    what = f"the data of region {heir} begins as that of region {id_}"
    if (region := model.regions.get(heir)) is not None:
        remedy = f"wait until its server has said that it is independent, or delete table {region.table.name}"
        return Refusal(what, remedy)
    return Refusal(what, f"'regent regions adopt {heir}' stores its row again; or forget {heir} first")


def heirs_of(model: Regions, id_: int) -> Iterator[int]:
    """Yields the regions whose data begins as that of another one, also those that are lost."""
    for heir, sources in model.sources.items():
        if any(one.region == id_ and not one.snapshot for one in sources):
            yield heir


def alone(region: Region, keys: Range) -> Refusal:
    """Returns why a region is not forgotten: no other one has some of its keys."""
    start, end = keys
    what = f"region {region} is the only one with the keys {said(keys)}"
    if start == region.start and end == region.end:
        hole = f"'regent regions forget {region.id} --leave-hole' removes one whose data is lost, or has another id"
        return Refusal(what, f"'regent regions unassign {region.id}' closes it, and it stays in the catalog; {hole}")
    key = end if start == region.start else start
    split = f"'regent regions split {region.id} --key {key_word(key)}' parts it"
    return Refusal(what, f"{split}; then forget the part whose keys others have")
