"""Judges the rows beside those of regions: what splits and clones leave behind, and rows that are left out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.entities import Table, start_of
from state_machines.regions.findings import COPY, RESTORE, Finding, FindingKind, Findings, Scope
from state_machines.regions.model import Regions
from state_machines.regions.shapes import ParentRow, Source, end_of, name_in
from state_machines.regions.states import PARTIAL
from state_machines.regions.table_rows import Stored
from state_machines.regions.unusable import mend_of

NAMED_MAX: Final = 3
"""Regions that one sentence names."""
K = FindingKind


# -- regions that others took the place of


def judge_parent(model: Regions, scope: Scope, found: Findings, parent: ParentRow) -> None:
    """Judges a region that was split, merged or truncated: others have its keys, be it in later splits."""
    if not scope.has(parent.table):
        return
    table = model.tables.get(parent.table)
    if table is None and parent.table not in model.damages.tables:
        _without_heirs(found, parent, "its table is not there")
    if table is None or table.state in PARTIAL:
        return
    lost = [one for one in parent.heirs if one not in model.regions and one not in model.parents]
    if lost and model.damages.regions.isdisjoint(lost) and not _is_covered(table, parent):
        heirs = ", ".join(f"#{one}" for one in lost[:NAMED_MAX])
        why = f"of its heirs {heirs} no row tells, and some of its keys have no region"
        adopts = f"'regent regions adopt {lost[0]} --table {parent.table}' stores an heir again, "
        _without_heirs(found, parent, why, adopts)


def _without_heirs(found: Findings, parent: ParentRow, why: str, adopts: str = "") -> None:
    what = f"region #{parent.id} of {parent.table} is {end_of(parent)}, and {why}"
    keys = parent.start, parent.end
    forgets = f"{adopts and 'or '}'regent regions forget {parent.id}' forgets this one"
    found.add(K.NO_HEIRS, Finding, K.NO_HEIRS, what, f"{COPY}{adopts}{forgets}", parent.table, (parent.id,), *keys)


def _is_covered(table: Table, parent: ParentRow) -> bool:
    """Checks whether regions have the first and the last of the keys that a region had."""
    first = bisect_right(table.regions, parent.start, key=start_of) - 1
    last = (bisect_left(table.regions, parent.end, key=start_of) if parent.end else len(table.regions)) - 1
    if first < 0 or last < 0:
        return False
    begins, ends = table.regions[first].end, table.regions[last].end
    return (not begins or begins > parent.start) and (not ends or (bool(parent.end) and ends >= parent.end))


# -- regions whose data begins in that of others


class Told:
    """Checks whether a row tells of a source, also one that is left out."""

    def __init__(self, model: Regions) -> None:
        self._model = model
        rows = model.damages.rows
        self._parents = {one.region for one in rows if one.kind is RowKind.PARENT}
        of = (one for one in rows if one.kind in (RowKind.SNAPSHOT, RowKind.SNAPSHOT_PART))
        self._snapshots = {one.name.rpartition(" ")[2] for one in of}

    def __contains__(self, source: Source) -> bool:
        if source.snapshot:
            name = name_in(source.snapshot)
            found = self._model.snapshots.get(name)
            return name in self._snapshots or (found is not None and found.identity == source.snapshot)
        known = source.region in self._model.parents or source.region in self._model.ids
        return known or source.region in self._parents


def judge_heir(model: Regions, scope: Scope, found: Findings, heir: int, sources: Sequence[Source], told: Told) -> None:
    """Judges what a region refers to: a region that is remembered or of a table, or a snapshot."""
    region = model.regions.get(heir)
    if region is None:
        if heir not in model.damages.regions and not scope.table:
            what = f"a row says where the data of region #{heir} begins, and there is no such region"
            adopts = f"'regent regions adopt {heir} --table TABLE' stores the region again"
            mend = f"{COPY}{adopts}, or 'regent regions forget {heir}' removes this row, or gives it away"
            found.add(K.NO_REGION, Finding, K.NO_REGION, what, mend, "", (heir,))
        return
    gone = [one for one in sources if one not in told] if scope.has(region.table.name) else []
    if gone:
        of = ", ".join(f"snapshot {one.snapshot}" if one.snapshot else f"#{one.region}" for one in gone[:NAMED_MAX])
        what = f"region {region}: its data begins as that of {of}, of which no row tells"
        mend = f"its server says that it is independent where it finds the data; else {RESTORE}"
        about = region.table.name, (heir,), region.start, region.end, str(region.server or "")
        found.add(K.NO_PARENT, Finding, K.NO_PARENT, what, mend, *about, region.pid)


# -- rows that are left out


def damages(model: Regions, scope: Scope, found: Findings) -> Iterator[Damage]:
    """Yields the rows that are left out, once each is noted; those that are too many to be described are counted."""
    left_out = model.damages
    described = list(left_out.rows)
    for one in described:
        table = one.name if one.kind is RowKind.TABLE else one.table
        if scope.has(table):
            found.add(K.DAMAGED, _described, one, table, left_out.stored)
        yield one
    if not scope.table:
        found.count(K.DAMAGED, max(0, sum(left_out.count.values()) - left_out.sound - len(described)))


def _described(damage: Damage, table: str, stored: Stored) -> Finding:
    regions = (damage.region,) if damage.region else ()
    return Finding(K.DAMAGED, str(damage), mend_of(damage, stored), table, regions)
