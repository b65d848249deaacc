"""A dry run of a removal says for each kind of row what is lost with it."""

from __future__ import annotations

import asyncio

from controller.regions.procedures import rows
from metadata_store.catalog.judging import damage_of, fault_of
from metadata_store.catalog.rows import (
    HeirRow,
    MarkRow,
    ParentRow,
    PublishedRow,
    RegionRow,
    ServerRow,
    SnapshotPartRow,
    SnapshotRow,
    TableRow,
)
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow, Row
from state_machines.regions.damage import RowKind
from testing.memory.region_store import RegionDisk
from tests.kit.regions.repairs import changed
from tests.kit.regions.world import virtual
from tests.simulation.regions.test_repaired_rows import removes

NAMELESS: list[tuple[RowKind, Row]] = [
    (RowKind.NAMESPACE, NamespaceRow("")),
    (RowKind.TABLE, TableRow("", 2, 0, (("ttl", "60"),))),
    (RowKind.REGION, RegionRow(0, "", b"", b"", 1, "", 0, 0)),
    (RowKind.SERVER, ServerRow("", 1, "")),
    (RowKind.BURIED, BuriedRow("", 1)),
    (RowKind.MARK, MarkRow("", "", "")),
    (RowKind.HEIR, HeirRow(0, ())),
    (RowKind.PARENT, ParentRow(0, "", b"", b"", 1, (), 0, 0)),
    (RowKind.SNAPSHOT, SnapshotRow("", "t", 2, (), 0, 0, 0)),
    (RowKind.SNAPSHOT_PART, SnapshotPartRow("", 0, ())),
    (RowKind.PUBLISHED, PublishedRow("", 0, b"")),
]
"""A row of each kind that does not say what it is about."""


@virtual
async def test_a_dry_run_says_for_each_kind_of_row_what_is_lost_with_it() -> None:
    assert [one for one, _ in NAMELESS] == list(RowKind)
    said = dict[RowKind, str]()
    async with changed(RegionDisk(), lambda *_: None) as (term, _):
        await asyncio.sleep((rows.lease_left_s(term.env) or 0.0) + 0.1)
        for kind, row in NAMELESS:
            fault = fault_of(row)
            assert fault is not None
            damage = damage_of(row, f"row 9 of table {kind}", fault)
            term.env.model.damages.add(damage)
            detail = (await removes(term, damage.place, dry_run=True)).detail
            assert detail.startswith(f"{damage}; ")
            said[kind] = detail.removeprefix(f"{damage}; ")
    assert all(said.values())
    assert said[RowKind.TABLE].endswith(
        "; its former row still has kind user, state enabled, options ttl=60, version 0"
    )
    assert "'regent namespaces create NAME' makes it again" in said[RowKind.NAMESPACE]
    assert "'regent published put NAME VALUE' stores one" in said[RowKind.PUBLISHED]
