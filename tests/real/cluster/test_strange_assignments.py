"""Assignments that name brokers that do not exist, or the daemon: real brokers receive the other partitions."""

from __future__ import annotations

import uuid

import pytest

from state_machines.model.types import TopicAssignment
from testing.znodes import create_topic, read_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import Scene, agreed

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def leader(stage: Scene, topic: str, partition: int = 0) -> int | None:
    """Reads the leader of a partition from ZooKeeper; None without a state znode."""
    [state] = await stage.w.store.load_states([(topic, partition)])
    return getattr(state, "leader", None)


@pytest.mark.seed("S4-88")
async def test_a_daemon_in_an_assignment_is_replaced_and_unknown_brokers_stay(
    stage: Scene,
) -> None:
    topic = f"strange-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, topic, {0: [1, 99], 1: [99], 2: [stage.daemon.id, 2], 3: [2, 3, 1]})
    await eventually(lambda: _is(stage, topic, {0: 1, 1: None, 3: 2}), 30.0)

    async def replaced() -> TopicAssignment | None:
        found = await read_topic(stage.w.zk, topic)
        return found if stage.daemon.id not in found.partitions[2].replicas else None

    found = await eventually(replaced, 30.0)
    assert found is not None
    assert len(set(found.partitions[2].replicas)) == 2
    assert [found.partitions[p].replicas for p in (0, 1, 3)] == [(1, 99), (99,), (2, 3, 1)], "nothing else is touched"
    await eventually(lambda: _is(stage, topic, {2: found.partitions[2].replicas[0]}), 30.0)
    explained = await stage.daemon.get(f"/v1/topics/{topic}/partitions/1/explanation")
    assert "99" in str(explained)
    await agreed(stage.daemon)


async def _is(stage: Scene, topic: str, wanted: dict[int, int | None]) -> bool:
    found = {partition: await leader(stage, topic, partition) for partition in wanted}
    assert found == wanted
    return True
