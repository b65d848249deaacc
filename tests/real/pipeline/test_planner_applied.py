"""A plan of the planner, applied by the controller to simulated brokers."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="NumPy is not installed")
pytest.importorskip("numba", reason="Numba is not installed")

from pipeline.planner import output
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.procedures.states import State
from tests.kit.kafka.plans import applied, finished, running
from tests.kit.kafka.reassignments import written
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.real.pipeline.planner_kit import after, cluster, plan

pytestmark = pytest.mark.timeout(600)


@in_world(1, 2, 3, 4)
async def test_the_controller_carries_a_plan_out(w: KafkaWorld) -> None:
    """Topics a and b are on brokers 1 and 2; the plan empties broker 1 and evens the others."""
    await running(w)
    racks = {broker: str(broker) for broker in (1, 2, 3, 4)}
    found = plan(cluster(racks, {"a": [(1, 2)] * 3, "b": [(1, 2)] * 3}, retire=[1]))
    moves = tuple(PlannedMove(m.topic, m.partition, m.origin, m.target) for m in output.moves_of(found))
    assert len(moves) == 6
    ended = await finished(w, await applied(w, ReassignPlan(moves)))
    assert ended.state is State.SUCCESS
    for name, replicas in after(found).items():
        topic, _, number = name.rpartition("-")
        assert written(w, topic, int(number)).replicas == replicas
        assert 1 not in replicas
