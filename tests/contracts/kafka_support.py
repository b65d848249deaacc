"""A small Kafka cluster's znodes, and changes of its partitions, for the tests of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from metadata_store import paths
from metadata_store.codecs.topic import encode_state
from metadata_store.commits.state_commit import StateOutcome
from metadata_store.errors import NotConnected
from metadata_store.fencing.outcome import Fence, Fenced
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from metadata_store.port import Create, Op
from state_machines.model.decision import Change
from state_machines.model.types import Assignment, Leadership, PartitionRow, PartitionState
from tests.contracts.support import Backend, Session, session

ASSIGNMENT = Assignment((1, 2, 3))


class ContractWorld:
    """A connected store; row ``i`` is partition ``i % per_topic`` of topic ``i // per_topic``."""

    def __init__(self, s: Session, epoch_version: int, per_topic: int) -> None:
        self.s = s
        self.zk = s.zk
        self.store = KafkaStore(s.zk)
        self.fence = Fence(epoch_version)
        self.per_topic = per_topic

    def name(self, row: int) -> tuple[str, int]:
        return f"t{row // self.per_topic}", row % self.per_topic

    def path(self, row: int) -> str:
        return paths.state(*self.name(row))

    async def make_topics(self, rows: int, *, parents: bool = True, states: bool = True) -> None:
        """Topic znodes; with ``parents`` those above the states, with ``states`` these too (leader 1, version 0)."""
        ops: list[Op] = []
        for row in range(rows):
            topic, partition = self.name(row)
            if partition == 0:
                ops.append(Create(paths.topic(topic), b"{}"))
                ops += [Create(paths.partitions(topic), None)] * parents
            ops += [Create(paths.partition(topic, partition), None)] * parents
            ops += [Create(self.path(row), encode_state(1, 0, (1, 2, 3), 1))] * states
        await self.zk.apply(ops)

    async def commit(self, changes: Sequence[Change], **options: Any) -> tuple[list[StateOutcome], Exception | None]:
        """All outcomes, and what was raised after them."""
        outcomes: list[StateOutcome] = []
        try:
            async for outcome in self.store.commit(changes, self.name, self.fence, **options):
                outcomes.append(outcome)  # noqa: PERF401 - those before an error count too
        except (NotConnected, Fenced) as error:
            return outcomes, error
        return outcomes, None

    async def states(self, rows: Iterable[int]) -> list[Any]:
        return await self.store.load_states([self.name(row) for row in rows])

    async def set_raw(self, row: int, data: bytes, version: int = 0) -> None:
        await self.zk.set(self.path(row), data, version)


@asynccontextmanager
async def kafka(backend: Backend, per_topic: int = 10, **options: Any) -> AsyncIterator[ContractWorld]:
    """A chroot with the top-level znodes and ``/controller_epoch`` at version 0."""
    async with session(backend, **options) as s:
        await ensure_top_level_paths(s.zk)
        made = await s.zk.create(paths.CONTROLLER_EPOCH, b"1")
        yield ContractWorld(s, made.stat.version, per_topic)


def elected(row: int, leader: int = 2, version: int = 0) -> Change:
    """Partition ``row``, led by 1 with ``version``, gets another leader."""
    before = PartitionRow(0, row, ASSIGNMENT, PartitionState.ONLINE, 1, 0, (1, 2, 3), 1, version)
    after = PartitionRow(0, row, ASSIGNMENT, PartitionState.ONLINE, leader, 1, (2, 3), 1, version + 1)
    return Change(row, before, after, "elected")


def created(row: int) -> Change:
    """Partition ``row`` gets its first leader."""
    before = PartitionRow(0, row, ASSIGNMENT, PartitionState.NEW)
    after = PartitionRow(0, row, ASSIGNMENT, PartitionState.ONLINE, 1, 0, (1, 2), 1, 0)
    return Change(row, before, after, "created", is_new=True)


def after_election(version: int = 1, leader: int = 2) -> Leadership:
    return Leadership(leader, 1, (2, 3), 1, version)


def merged(outcomes: Iterable[StateOutcome]) -> StateOutcome:
    total = StateOutcome()
    for outcome in outcomes:
        total.add(outcome)
    return total


def rows_of(changes: Iterable[Change]) -> list[int]:
    return sorted(change.entity for change in changes)
