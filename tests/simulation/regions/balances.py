"""Looks at what the moves of a balance have to keep.

PlanFirst: no move of a balance is stored unless an earlier write has stored the plan with it, and its region is where
the plan has found it. BalanceKeepsPins: no region that is pinned moves by a balance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from controller.regions.procedures import balance, move
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask
from controller.regions.procedures.messages import MOVE, Move
from metadata_store.records import codec
from state_machines.procedures.record import Record
from state_machines.regions.marks import MarkKind

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

Planned = dict[tuple[int, str], str]
"""Where a plan has found regions, by region and the name of the server that gets it."""


class Balances:
    """Looks at the moves of balances as they are stored, by what was durable before that write."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self._plans: dict[int, Planned] = {}
        self._begun: set[int] = set()
        self._owners: dict[int, str] = {}
        self._pinned: set[int] = set()
        self.moved: dict[int, str] = {}
        """Names of the servers to which balances move regions."""

    def restored(self) -> None:
        """Forgets what was durable: the store was restored from a copy."""
        self._plans.clear()
        self._begun.clear()
        for pid, body in self._world.disk.bodies.items():
            try:
                self._note(codec.unsealed(pid, body))
            except codec.Unreadable:
                continue
        self._remember()

    def written(self, puts: Iterable[Record]) -> None:
        """Looks at the moves that a write begins."""
        some = tuple(puts)
        parents = self._plans.keys() | {one.pid for one in some if one.kind == balance.NAME}
        for one in some:
            if one.kind == move.NAME and one.parent in parents and one.pid not in self._begun:
                self._look(one)
        for one in some:
            self._note(one)
        self._remember()

    def _look(self, record: Record) -> None:
        task: Move = MOVE.decode(record.data)
        self.moved[task.region] = task.to
        self._world.counts["balanced"] += 1
        source = self._plans.get(record.parent, {}).get((task.region, task.to))
        what = f"pid {record.pid} of balance {record.parent} moves region {task.region} to {task.to}"
        if source is None:
            self._world.violated("PlanFirst", f"{what}, and no plan is stored with it")
        elif (owner := self._owners.get(task.region, "")) != source:
            self._world.violated("PlanFirst", f"{what}: it is at {owner or 'no server'}, the plan has it at {source}")
        elif task.region in self._pinned:
            self._world.violated("BalanceKeepsPins", f"{what}, and it is pinned")

    def _note(self, record: Record) -> None:
        """Keeps the plan of a balance, or that a move has begun."""
        if record.kind == move.NAME and record.parent:
            self._begun.add(record.pid)
        if record.kind != balance.NAME:
            return
        try:
            task: BalanceTask = BALANCE_TASK.decode(record.data)
        except msgspec.DecodeError:
            return
        self._plans[record.pid] = {(one.region, task.names[one.to]): task.names[one.source] for one in task.moves}

    def _remember(self) -> None:
        disk = self._world.disk
        self._owners = {row.id: row.server for row in disk.regions.values()}
        self._pinned = {int(subject) for kind, subject in disk.marks if kind == MarkKind.PIN}
