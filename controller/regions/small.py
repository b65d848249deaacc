"""Enters the rows that come one at a time: what regions refer to, parents, snapshots and published values."""

from __future__ import annotations

from collections.abc import Sequence

from metadata_store.catalog.rows import HeirRow, ParentRow, PublishedRow, Small, SnapshotPartRow, SnapshotRow
from state_machines.regions.damage import Damage, RowKind, shown
from state_machines.regions.model import Regions
from state_machines.regions.shapes import Snapshot


def enter(model: Regions, rows: Sequence[Small]) -> None:
    """Enters rows behind the regions. A snapshot that lacks a part is left out, and noted."""
    snapshots: list[SnapshotRow] = []
    parts: dict[str, list[SnapshotPartRow]] = {}
    for row in rows:
        match row:
            case HeirRow(id_, sources):
                model.sources[id_] = sources
            case ParentRow(id_):
                model.parents[id_] = row
            case PublishedRow(name):
                model.published[name] = row
            case SnapshotRow():
                snapshots.append(row)
            case SnapshotPartRow(name, number, regions):
                parts.setdefault(name, []).append(row)
                model.drafts.setdefault(name, {})[number] = regions
    for row in snapshots:
        mine = sorted(parts.get(row.name, ()))
        if [one.number for one in mine] == list(range(row.parts)):
            model.snapshots[row.name] = Snapshot(row, tuple(one.regions for one in mine))
            model.drafts.pop(row.name, None)
        else:
            why = f"it has {len(mine)} parts that can be read: delete it, and make another one"
            place = f"snapshot {row.name}"
            model.damages.add(Damage(RowKind.SNAPSHOT, place, "parts", shown(row.parts), why, row.name))
