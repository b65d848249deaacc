"""Reads the sizes of partitions that other clients reassign, for the caps of a plan in bytes.

A leader is queried beside the event queue, once for each reassignment. Until it has responded the plan begins nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.replica_sizes import PARTITIONS_PER_REQUEST_MAX, ReplicaSize, sizes_on
from controller.kafka.path.controller import Controller
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.procedures")

REPORT_S_MAX: Final = 5.0
"""Longest wait for the report of one leader."""


class ForeignSizes:
    """Sizes by partition. One that no leader reports counts as 0 bytes: it holds up no plan."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, int] = {}
        self._reading = False

    def are_known(self, c: Controller, plan: ReassignPlan) -> bool:
        """Checks whether all sizes are known that the plan's caps need; begins to read those that are not."""
        if not plan.bytes_max and not plan.broker_bytes_max:
            return True
        own = {(move.topic, move.partition) for move in plan.moves}
        moving = {row: c.cluster.name(row) for row, written in c.cluster.reassigning.items() if written.kept.adding}
        foreign = {row: name for row, name in moving.items() if name not in own}
        names = set(foreign.values())
        self.known = {name: size for name, size in self.known.items() if name in names}
        unread = {row: name for row, name in foreign.items() if name not in self.known}
        if unread and not self._reading:
            self._reading = True
            c.spawn(self._read(c, dict(list(unread.items())[:PARTITIONS_PER_REQUEST_MAX])))
        return not unread

    async def _read(self, c: Controller, unread: dict[int, TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for row, name in unread.items():
            by_leader.setdefault(c.cluster.rows[row].leader, []).append(name)
        try:
            if c.dial is not None:
                found = await sizes_on(c.dial, c.cluster.brokers, by_leader, REPORT_S_MAX)
                self._enter(found)
        finally:
            self.known |= {name: self.known.get(name, 0) for name in unread.values()}
            self._reading = False

    def _enter(self, found: Mapping[int, dict[TopicPartition, ReplicaSize] | BrokerCallFailed]) -> None:
        for leader, sizes in found.items():
            if isinstance(sizes, BrokerCallFailed):
                why = f"broker {leader} sends no sizes of partitions that other clients reassign"
                log.warning("%s: they count as 0 bytes against the caps of plans (%s)", why, sizes)
            else:
                self.known |= {name: size.size_bytes for name, size in sizes.items()}
