"""Looks at what becomes of regions whose keys others get, at snapshots, and at what refers to the data of others.

Where the store goes back to a copy after regions were reshaped, the edits of what it does not know are not looked for:
the runbook has servers end, and data that was discarded is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from controller.regions.procedures import merge, modification, snapshots
from controller.regions.procedures.messages import SHAPE, SNAPSHOT_TASK, TABLE_TASK, Shape, SnapshotTask, TableTask
from metadata_store.catalog.rows import (
    Drop,
    DropRegions,
    HeirRow,
    ParentRow,
    Put,
    Reshape,
    SnapshotPartRow,
    SnapshotRow,
    Source,
)
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.changes import is_outdated, may_be_outdated
from state_machines.regions.entities import Region
from state_machines.regions.shapes import name_in
from state_machines.regions.states import TableState
from testing.simulated.regions.storage import Edit, is_in

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import SimulatedRegions


class Staging(NamedTuple):
    """What clients knew to be written as a snapshot began, by region."""

    pid: int
    edits: dict[int, list[Edit]]


class Shapes:
    """Judges the shapes of tables of one run."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self._staging: dict[str, Staging] = {}
        self._snapshots: dict[str, dict[int, list[Edit]]] = {}
        """What complete snapshots must have, by identity and region."""
        self._replaced: dict[int, tuple[int, ...]] = {}
        """Heirs, by the region whose keys they got."""
        self._versions: dict[str, dict[int, int]] = {}
        """Versions with which regions were opened, by table and region."""
        self._leaving: list[tuple[RegionsTerm, Region, int]] = []
        """Regions that have left their table, with the number of the last change of routes before."""
        self._reshaped = 0
        self._copied = 0
        world.storage.discarding = self._discards

    def copied(self) -> None:
        """Notes that the store is copied."""
        self._copied = self._reshaped

    def restored(self) -> None:
        """Notes that the copy takes the place of the store."""
        if self._copied != self._reshaped:
            self._world.storage.acknowledged.clear()
            self._replaced.clear()
        self._versions.clear()
        self._staging.clear()

    # -- what clients may do

    def is_replaced(self, region: int) -> bool:
        """Checks whether others have the keys of a region."""
        return region in self._replaced and region not in self._world.disk.regions

    def _discards(self, region: int) -> None:
        disk, world = self._world.disk, self._world
        if world.restored:
            return  # the daemon before had discarded it
        if region in disk.regions:
            world.violated("ParentsKept", f"the data of region {region} is discarded, which is in the catalog")
        if needs := [heir.id for heir in self._heirs() if any(_refers(one, region) for one in heir.sources)]:
            world.violated("ParentsKept", f"the data of region {region} is discarded, {needs} refer to it")
        world.counts["discarded"] += 1

    def _heirs(self) -> Iterator[HeirRow]:
        return (one for one in self._world.disk.small.values() if isinstance(one, HeirRow))

    # -- what followers are told

    def leaves(self, term: RegionsTerm, region: Region) -> None:
        """Notes that a region leaves its table, since others have its keys."""
        self._leaving.append((term, region, term.env.routes.change))

    def told(self) -> None:
        """Looks whether clients that follow routes are told of each region that has left since the last look."""
        for term, region, change in self._leaving:
            log = term.env.routes
            if not any(one is region for one in islice(reversed(log._changed), log.change - change)):
                self._fail("FollowersForget", f"{region} is {region.state.name}, and clients are not told")
        self._leaving.clear()

    # -- what is durable

    def written(self, puts: Iterable[Record], rows: Iterable[object]) -> None:
        """Looks at a write that is durable now."""
        reshaped = {heir for one in rows if isinstance(one, Reshape) for heir in (row.id for row in one.heirs)}
        for row in rows:
            match row:
                case Reshape():
                    self._reshape(row)
                case Put(HeirRow() as heir) if heir.id not in reshaped:
                    self._begins_as(heir)
                case Put(SnapshotRow() as snapshot):
                    self._snapshot(snapshot)
                case Drop(of, (int() as region,)) if of is HeirRow:
                    self._independent(region)
                case DropRegions():
                    self._reshaped += 1
        for record in puts:
            if record.kind == snapshots.MAKE and record.step >= snapshots.STAGE:
                self._stages(record)
            elif record.kind == modification.NAME and record.state is State.SUCCESS and not record.bypassed:
                self._modified(record)
            elif record.kind == merge.NAME and record.step == merge.OPEN and reshaped:
                self._merges(record)
        self._references()
        self._shrinks()

    def _reshape(self, row: Reshape) -> None:
        """Has heirs answer for the edits of those whose keys they get."""
        world, known = self._world, self._world.storage.acknowledged
        world.counts["reshaped"] += 1
        self._reshaped += 1
        edits = [edit for parent in row.parents for edit in known.pop(parent.id, ())]
        for heir in row.heirs:
            known[heir.id] = [edit for edit in edits if is_in(edit.key, heir.start, heir.end)]
        heirs = tuple(one.id for one in row.heirs)
        for parent in row.parents:
            self._replaced[parent.id] = heirs
            for process in world.processes:
                fenced = world.storage.logged and world.storage.is_fenced(process.key)
                if process.serves(parent.id) is not None and not fenced and not world.restored:
                    world.violated(
                        "SplitAtomicity", f"{process.key} serves region {parent.id}, whose keys {heirs} have"
                    )

    def _begins_as(self, heir: HeirRow) -> None:
        """Has a region of a clone, or of a table that is restored, answer for the edits as which it begins."""
        world = self._world
        world.counts["cloned"] += 1
        for source in heir.sources:
            if source.snapshot:
                edits = self._snapshots.get(source.snapshot, {}).get(source.region, [])
            else:
                edits = world.storage.acknowledged[source.region]
            world.storage.acknowledged[heir.id] += edits

    def _independent(self, region: int) -> None:
        """Looks whether a region that refers to nothing any more has a copy."""
        world = self._world
        if region in world.disk.regions and not world.storage.has_copy(region) and not world.restored:
            world.violated("IndependentHasCopy", f"region {region} is stored as independent, and has no copy")
        world.counts["independent"] += 1
        self._reshaped += 1

    def _stages(self, record: Record) -> None:
        task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
        before = self._staging.get(task.name)
        if before is None or before.pid != record.pid:
            known = self._world.storage.acknowledged
            regions = [row.id for row in self._world.disk.regions.values() if row.table == task.table]
            self._staging[task.name] = Staging(record.pid, {one: list(known[one]) for one in regions})

    def _snapshot(self, row: SnapshotRow) -> None:
        """Looks whether a snapshot has each edit that was acknowledged before it began, once."""
        world, staging = self._world, self._staging.pop(row.name, None)
        world.counts["snapshots made"] += 1
        if staging is None or world.restored:
            return  # the store went back to a copy since, and it goes on from there
        small = world.disk.small
        parts = [small.get((SnapshotPartRow, (row.name, number))) for number in range(row.parts)]
        listed = [one for part in parts if isinstance(part, SnapshotPartRow) for one in part.regions]
        if (
            not listed
            or listed[0].start
            or listed[-1].end
            or any(one.end != two.start for one, two in pairwise(listed))
        ):
            self._fail("SnapshotExact", f"snapshot {row.name} lists {listed}")
        wanted = [edit for edits in staging.edits.values() for edit in edits]
        identity = listed[0].snapshot
        self._snapshots[identity] = {}
        for one in listed:
            has = world.storage.staged(identity, one.region, one.token)
            mine = self._snapshots[identity][one.region] = [e for e in wanted if is_in(e.key, one.start, one.end)]
            if has is None or not set(mine) <= set(has) or len(set(has)) != len(has):
                self._fail("SnapshotExact", f"snapshot {row.name}: {one} has {has}, {mine} were acknowledged before")

    def _modified(self, record: Record) -> None:
        """Looks whether no region is open with former options once their change is over, or is about to be.

        A procedure that came after the change opens with present ones, also a region whose open an operator has ended.
        """
        task: TableTask = TABLE_TASK.decode(record.data)
        term = self._world.term
        table = None if term is None else term.env.model.tables.get(task.table)
        if table is None or record.result or table.state is not TableState.ENABLED:
            return
        opening = {one for one in table.regions if may_be_outdated(one) and one.pid < record.pid}
        if left := [str(one) for one in table.regions if is_outdated(one) or one in opening]:
            self._fail("ReopenShrinks", f"the options of {table.name} have changed, {left} have former ones")

    def _merges(self, record: Record) -> None:
        """Looks whether regions were closed by one server where none of them had to be opened once more for that."""
        task: Shape = SHAPE.decode(record.data)
        term = self._world.term
        if term is None or task.tries or self._world.restored:
            return
        formers = {one: term.env.model.former.get(one, "") for one in task.parents}
        if set(formers.values()) != {task.server}:
            self._fail("MergedTogether", f"pid {record.pid} merges {formers}, which {task.server} was to close")

    def _references(self) -> None:
        """Looks whether all that regions refer to is there (NoOrphanHeirs, ParentsKept)."""
        disk = self._world.disk
        for key, small in disk.small.items():
            if isinstance(small, HeirRow):
                if small.id not in disk.regions and small.id not in self._world.damage.lost:
                    self._fail("NoOrphanHeirs", f"{small} is of a region that is gone")
                for one in small.sources:
                    if not self._is_there(one):
                        self._fail("ParentsKept", f"{small} refers to {one}, which is gone")
            elif isinstance(small, ParentRow) and small.id in disk.regions:
                self._fail("SplitAtomicity", f"{key} is remembered, and a region of its table still")

    def _is_there(self, source: Source) -> bool:
        disk = self._world.disk
        if source.snapshot:
            return self._has_snapshot(source.snapshot)
        lost = self._world.damage.lost
        return source.region in disk.regions or source.region in lost or (ParentRow, (source.region,)) in disk.small

    def _has_snapshot(self, identity: str) -> bool:
        small, name = self._world.disk.small, name_in(identity)
        part = small.get((SnapshotPartRow, (name, 0)))
        names_it = isinstance(part, SnapshotPartRow) and part.regions[0].snapshot == identity
        return names_it and (SnapshotRow, (name,)) in small

    def _shrinks(self) -> None:
        """Looks whether no region gets options that its table had before (ReopenShrinks)."""
        disk, known, self._versions = self._world.disk, self._versions, {}
        for name, version in ((name, table.version) for name, table in disk.tables.items() if table.version):
            of_region = {row.id: row.version for row in disk.regions.values() if row.table == name}
            before = known.get(name, {})
            self._versions[name] = of_region
            if lower := [one for one, found in of_region.items() if found < before.get(one, found)]:
                self._fail("ReopenShrinks", f"{lower} are opened with options that {name} {version} had before")

    def _fail(self, invariant: str, what: str) -> None:
        self._world.violated(invariant, what)


def _refers(source: Source, region: int) -> bool:
    return source.region == region and not source.snapshot
