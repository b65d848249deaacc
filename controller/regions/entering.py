"""Enters what the catalog holds into the model of a new term; what cannot be entered becomes a damage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from controller.regions import admission, damaged
from metadata_store.catalog.rows import (
    Content,
    HeirRow,
    ParentRow,
    PublishedRow,
    RegionRow,
    Small,
    SnapshotPartRow,
    SnapshotRow,
)
from state_machines.regions.damage import Damage, Gap, RowKind, shown
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.shapes import Snapshot
from state_machines.regions.states import PARTIAL, RegionState, ServerState, TableKind, TableState

S = RegionState

_STATES: Final = {int(one): one for one in S}
_START, _END = (itemgetter(RegionRow._fields.index(name)) for name in ("start", "end"))
ROWS_TOGETHER: Final = 2_000
"""Rows that are entered in one go: the loop has other work, too."""


async def enter(model: Regions, content: Content, now_ms: int) -> None:
    """Enters what the catalog holds, and empties its regions: a million rows that end at once would stall the loop.

    What cannot be entered is left out, and noted in ``model.damages``. Leases of servers begin later, once everything
    is loaded.
    """
    for damage in content.damaged:
        model.damages.add(damage)
    model.namespaces.update(content.namespaces, ("default",))
    model.buried.update(content.buried)
    for mark in content.marks:
        if mark.kind in set(MarkKind):
            model.marks.put(Mark(MarkKind(mark.kind), *mark[1:]))
    found = admission.proofs_in(content.marks)
    for row in content.servers:
        server = Server(*row, ServerState.ONLINE, {}, proof=found.get(row[:2]))
        model.servers[server.key] = server
    model.proofs = {key: proof for key, proof in found.items() if key not in model.servers}
    damaged.keep_away(model, content.damaged)
    for table in content.tables:
        made = Table(table.name, TableKind(table.kind), TableState(table.state), dict(table.options), [])
        made.version = table.version
        model.add_table(made)
    rows = content.regions
    rows.reverse()  # the end of a list is where it gets shorter at no cost
    entry = _Entry(model, now_ms, damaged.Unknown.of(content.damaged))
    heirs = {one.region for one in content.damaged if one.kind is RowKind.HEIR}
    while rows:
        some = rows[-ROWS_TOGETHER:]
        del rows[-ROWS_TOGETHER:]
        some.reverse()
        entry.take(damaged.without_sources(model.damages, some, heirs) if heirs else some)
        await asyncio.sleep(0)
    entry.end()
    _enter_small(model, content.small)


class _Entry:
    """Enters regions that are in the order of their tables and keys."""

    def __init__(self, model: Regions, now_ms: int, unknown: damaged.Unknown) -> None:
        self._model = model
        self._now_ms = now_ms
        self._unknown = unknown
        self._joints = damaged.Joints(model.damages)
        self._table: Table | None = None
        self._before: RegionRow | None = None
        self._joint: bytes | None = None

    def take(self, rows: Sequence[RegionRow]) -> None:
        """Enters some regions."""
        model, now_ms, before, joint = self._model, self._now_ms, self._before, self._joint
        current = table = self._table
        tables, servers_, regions = model.tables, model.servers, model.regions
        joined = current is not None and not self._unknown and _are_joined(rows, current.name, joint)
        for row in rows:
            id_, name, start, end, number, server, incarnation, token, sequence, version, clean, former = row
            state = _STATES[number]
            if not joined:
                table = tables.get(name)
            if table is None:
                damaged.without_table(model.damages, row)
                continue
            owner = servers_.get((server, incarnation)) if server else None
            if owner is None and state is S.OPEN:
                if self._unknown and self._unknown.may_be(server):
                    damaged.without_server(model, row)
                    continue
                owner = damaged.unnamed(model, (server, incarnation), f"region {id_}")
                state = S.ABNORMALLY_CLOSED if owner is None else S.OPEN
            if not joined:
                if table is current and start == joint:
                    joint = end or None
                else:
                    joint, current = self._joints.next(table, row, before), table
                before = row
            region = Region(
                id_, table, start, end, state, owner, token, sequence, 0, now_ms, 0, True, version, clean == 1
            )
            if owner is not None:
                owner.regions[id_] = region
            elif former:
                model.former[id_] = former
            if version > table.version:  # an older daemon has stored the table since, without its version
                table.version = version
            regions[id_] = region
            table.regions.append(region)
            table.counts[state] += 1
        if joined:
            before, joint = rows[-1], rows[-1].end or None
        self._before, self._joint, self._table = before, joint, current

    def end(self) -> None:
        """Ends the last table, and finds those of which no region is left."""
        self._joints.end_table(self._before)
        for table in self._model.tables.values():
            if not table.regions and table.state not in (*PARTIAL, TableState.DISABLED):
                self._model.damages.add_gap(Gap(table.name, b"", b"", False, ()))


def _are_joined(rows: Sequence[RegionRow], table: str, joint: bytes | None) -> bool:
    """Checks whether regions, in the order of tables and keys, are of one table, and each begins where one ends.

    Compares whole lists: most tables are far longer than what is entered in one go.
    """
    if rows[0].table != table or rows[-1].table != table or rows[0].start != joint:
        return False
    starts = list(map(_START, rows))[1:]
    return starts == list(map(_END, rows))[:-1] and all(starts)


def _enter_small(model: Regions, rows: Sequence[Small]) -> None:
    """Enters the rows that come one at a time. A snapshot that lacks a part is left out, and noted."""
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
