"""Looks in which order crashes assign the classes of tables (MetaFirst).

A crash decides by the regions that no procedure has at that moment. What an undone split gives back later comes once
the batches of that decision have ended (record 147).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from controller.regions.procedures import crash, many
from controller.regions.procedures.messages import CRASH, MANY, Crash
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region
from state_machines.regions.states import WANTED, RegionState
from testing.simulated.regions.storage import Key

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

S = RegionState


class Order:
    """Judges the batches of crashes of one run."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self._decided: dict[Key, set[int]] = {}
        """Regions that procedures had as the crash of a process last decided on batches."""
        self._had: dict[tuple[int, bytes], set[int]] = {}
        """The same by batch: regions that procedures had at its decision, or as it was seen first."""
        self._ended_in_transit: set[int] = set()
        """Regions whose procedure an operator ended in transition; after a failover the catalog has them as before."""

    def region(self, region: Region) -> None:
        """Notes whether a region is in transition without a procedure."""
        if region.pid:
            self._ended_in_transit.discard(region.id)
        elif region.state in (S.OPENING, S.CLOSING):
            self._ended_in_transit.add(region.id)

    def look(self, term: RegionsTerm, record: Record) -> None:
        """Looks whether a crash assigns a class of tables while one that others depend on waits."""
        model, parent = term.env.model, term.engine.records.get(record.parent)
        table = model.tables.get(MANY.decode(record.data).table)
        if parent is None or parent.kind != crash.NAME or table is None:
            return
        task: Crash = CRASH.decode(parent.data)
        server = model.servers.get((task.server, task.incarnation))
        regions = [] if server is None else list(server.regions.values())
        batch = record.pid, record.data
        if batch not in self._had:
            decided = self._decided.get((task.server, task.incarnation), set())
            self._had[batch] = decided | {one.id for one in regions if one.pid}
        for region in regions:
            left = region.id in self._ended_in_transit or region.state in (S.OPENING, S.CLOSING)
            waits = not region.pid and region.id not in self._had[batch] and not left
            wanted = region.table.state in WANTED and term.env.endings.of(region.table) is None
            if region.table.kind < table.kind and wanted and waits:
                what = f"{region} waits, pid {record.pid} assigns regions of {table.name}"
                self._world.violated("MetaFirst", what)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Notes what procedures have as crashes decide, for the time of a run."""
        of_regions = many.of_regions

        def decided(kind: str, regions: Sequence[Region], why: str) -> Iterator[Record]:
            owner = regions[0].server
            if owner is not None:
                self._decided[owner.key] = {one.id for one in owner.regions.values() if one.pid}
            return of_regions(kind, regions, why)

        with mock.patch.object(many, "of_regions", decided):
            yield
