"""Decides on repairs of rows by the ids of regions: which are stored again, and of which the catalog is to forget all.

A row that is lost says nothing. So a region is stored again only where its id may be one, and where no other row has it
or may have its keys. A row is forgotten only where it cannot be right, or cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from state_machines.regions.adopted_keys import own_row, said, table_problem
from state_machines.regions.changes import PROCESS_MEND, SETTLED, keys_problem
from state_machines.regions.damage import CLOSED, Damage, RowKind
from state_machines.regions.entities import Region, Table
from state_machines.regions.findings import FindingKind, Findings, Refusal, Scope
from state_machines.regions.heirs import Range
from state_machines.regions.layout import key_word
from state_machines.regions.left_out import free_of, in_the_way, may_share, obstacle, whole
from state_machines.regions.model import Regions
from state_machines.regions.report_rows import judge_parent
from state_machines.regions.shapes import end_of
from state_machines.regions.unusable import ACL, place_word

HEIRS_NAMED: Final = 3
"""Heirs that a sentence names."""
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


def adoption_problem(
    model: Regions, id_: int, table: Table, *, given: bool, keys: Sequence[Range] | None = None
) -> Refusal | None:
    """Returns why the row of a region cannot be stored again; None where it can.

    ``given``: the id was given out. ``keys``: those that it gets, empty before they are known; else any without a
    region.
    """
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
    if (refusal := table_problem(model, id_, table.name)) is not None:
        return refusal
    if (why := keys_problem(model, table, id_, keys)) is not None:
        settled = table.state in SETTLED
        see = f"see 'regent tables describe {table.name}'"
        return Refusal(why, _other_rows(model, table, id_, keys) if settled else see)
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


def _other_rows(model: Regions, table: Table, id_: int, keys: Sequence[Range] | None) -> str:
    """Returns what mends rows that may have the keys of a table, besides that of a region."""
    ranges = free_of(model, table) if keys is None else keys
    one = obstacle(model.damages, table.name, ranges, id_)
    if one is None:
        return ROW if in_the_way(model, table, ranges, id_) else PROCESS_MEND
    if one.name:
        return f"'regent servers recover {one.name}' comes first, then restart the daemon"
    if one.why.startswith(CLOSED):
        return ACL
    if not one.region:
        remove = f"'regent regions remove-row {place_word(one.place)}' removes the row"
        return f"{ROW}; where none has them, {remove}, and its region is adopted later, with its id and its keys"
    return f"{ROW}; where none has them, {_one_first(own_row(model, id_), one, table.name)}"


def _one_first(own: Damage | None, other: Damage, table: str) -> str:
    """Returns in which order regions are stored again whose rows may have the same keys. ``own``: of the wanted one.

    Where neither row tells its keys each is in the way of the other one, so the row of one goes first: its region is
    adopted without it. One that tells them is in the way of no keys apart from these.
    """
    one, told = other.region, whole(other)
    mine = None if own is None else whole(own)
    adopt = f"'regent regions adopt {one} --table {other.table or table}'"
    apart = "" if told is None else f"; or give keys apart from those of region {one}, {said(told)}"
    if own is not None and mine is None and told is not None:
        return f"give keys apart from those of region {one}, {said(told)}; or forget {one}, where its row is wrong"
    if mine is not None and told is None:
        return f"{adopt} comes first, with its keys as --start and --end, or forget {one}"
    if own is None or (mine is not None and not may_share(other, mine)):
        return f"{adopt} comes first, or forget {one}{apart}"
    forget = f"'regent regions forget {one}' removes the row of that one, whose own data stays at the service"
    again = f"{adopt} stores that one again, with its keys as --start and --end"
    return f"{forget}; then adopt region {own.region}, and then {again}{apart}"


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
