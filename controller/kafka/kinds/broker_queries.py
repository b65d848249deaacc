"""Queries brokers beside the event queue for what plans and rolling restarts must know before they decide.

These are the sizes of partitions that other clients reassign, for a plan's caps in bytes, and
``min.insync.replicas``. The status for operators reads the latter, too, but may not have looked yet when a term begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.loads import PARTITIONS_PER_REQUEST_MAX, ReplicaSize, sizes_on
from brokers.queries import Dial
from controller.kafka.path.controller import Controller
from controller.kafka.path.gate import TermEnded
from controller.kafka.path.topic_settings import read_min_isr
from metadata_store.errors import SessionLost
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.model.facts import MinIsrRead
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.procedures")

REPORT_S_MAX: Final = 5.0
"""Longest wait for the report of one leader."""
LOOK_MS: Final = 500
"""Pause of a step while the brokers are queried."""


class ForeignSizes:
    """Sizes by partition. One that no leader reports counts as 0 bytes: it holds up no plan.

    A leader is queried once for each reassignment. Until it has responded the plan begins nothing.
    """

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


class MinIsrGuard:
    """Queries the brokers once in a term, beside its queue, where the term does not know the value yet."""

    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._looked = False

    def is_known(self, c: Controller, pid: int, wake: Callable[[int], None]) -> bool:
        """Checks whether a step may decide; else queries the brokers and wakes it. Without a response it goes on."""
        if self._looked or c.cluster.min_isr.default is not None or c.dial is None:
            return True
        if not self._waiting:
            c.spawn(self._look(c, c.dial))
        self._waiting[pid] = wake
        return False

    async def _look(self, c: Controller, dial: Dial) -> None:
        try:
            found = await c.until_read(lambda: read_min_isr(c.store, dial, c.cluster))
        except (TermEnded, SessionLost):
            return
        finally:
            self._looked = True
            waiting, self._waiting = self._waiting, {}
            for pid, wake in waiting.items():
                wake(pid)
        if c.cluster.min_isr.default is None:
            c.enter(MinIsrRead(found))
        if c.cluster.min_isr.default is None:
            log.warning(
                "no broker sends min.insync.replicas: plans and restarts go on without it; let this daemon's user "
                "describe the brokers' configurations"
            )
