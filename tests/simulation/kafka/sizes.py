"""Counts events that need many partitions, so that a run without them is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from brokers.outbound.snapshot import Snapshots, Turn
from brokers.wire.versions import Api
from controller.kafka.path.controller import Controller
from controller.kafka.topics.topic_change import bring_in
from metadata_store.commits import state_commit
from metadata_store.commits.state_commit import Names, StateOutcome
from metadata_store.fencing.outcome import Fence
from metadata_store.port import ZooKeeper
from state_machines.model.decision import Change
from testing.simulated.values import Request
from tests.simulation.kafka import faults
from tests.simulation.kafka.limits import SimulationLimits

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka


def sent(world: SimulatedKafka, limits: SimulationLimits | None, request: Request) -> None:
    """Counts turns of a snapshot, which are smaller than a full request, and full requests, which were cut."""
    full = limits is not None and len(request.entries) == limits.rows > limits.turn
    if full and request.head.api is Api.LEADER_AND_ISR:
        world.happened(faults.SIZE_CUT)


@contextmanager
def counted(world: SimulatedKafka) -> Iterator[None]:
    """Counts for the time of a run; around all other patches of the same functions."""
    commit_states, turn = state_commit.commit_states, Snapshots.turn

    async def commit(
        zk: ZooKeeper, changes: Sequence[Change], names: Names, fence: Fence, writes_max: int
    ) -> AsyncGenerator[StateOutcome, None]:
        outcomes = list[StateOutcome]()
        try:
            async with aclosing(commit_states(zk, changes, names, fence, writes_max)) as found:
                async for outcome in found:
                    outcomes.append(outcome)
                    yield outcome
        finally:
            _committed(world, outcomes, names)

    async def bringing_in(c: Controller, topics: Any, *, loaded: bool) -> Any:
        if c.cluster.rows:
            world.happened(faults.SIZE_LOADED)
        return await bring_in(c, topics, loaded=loaded)

    def of_turn(self: Snapshots, broker: int, first: int) -> Turn:
        if first:
            world.happened(faults.SIZE_TURNS)
        return turn(self, broker, first)

    with ExitStack() as stack:
        stack.enter_context(mock.patch("metadata_store.kafka_store.commit_states", commit))
        stack.enter_context(mock.patch("controller.kafka.term.failover.bring_in", bringing_in))
        stack.enter_context(mock.patch.object(Snapshots, "turn", of_turn))
        yield


def _committed(world: SimulatedKafka, outcomes: Sequence[StateOutcome], names: Names) -> None:
    if len(outcomes) < 2:
        return
    world.happened(faults.SIZE_MULTIS)
    if any(outcome.applied for outcome in outcomes) and any(outcome.unknown for outcome in outcomes):
        world.happened(faults.SIZE_PARTLY)
    created = ({names(change.entity)[0] for change in outcome.applied if change.creates} for outcome in outcomes)
    if any(multis > 1 for multis in Counter(topic for topics in created for topic in topics).values()):
        world.happened(faults.SIZE_CHAIN)
