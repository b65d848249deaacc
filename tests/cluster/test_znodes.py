"""Znodes that nobody should write: half-written, foreign, of unknown versions, naming who does not exist."""

from __future__ import annotations

import uuid

import pytest

from metadata_store import paths
from metadata_store.codecs.topic import encode_topic
from state_machines.model.types import Assignment
from testing.znodes import create_topic, read_topic
from tests.cluster.scene import Scene, agreed
from tests.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")

BAD_TOPICS = {
    "half": b'{"version":3,"partitions":{"0":[1,',
    "nothing": None,
    "future": b'{"version":9,"partitions":{"0":[1,2,3]}}',
    "twice": b'{"version":3,"partitions":{"0":[1,1]}}',
    "words": b'{"version":3,"partitions":{"0":["one"]}}',
}


async def malformed(stage: Scene) -> dict[str, str]:
    """What the daemon calls malformed, by path."""
    [cluster] = (await stage.daemon.get("/v1/cluster"))["items"]
    return {found["path"]: found["why"] for found in cluster["malformed"]}


async def leader(stage: Scene, topic: str, partition: int = 0) -> int | None:
    """Leader of a partition as ZooKeeper has it; None without a state znode."""
    [state] = await stage.w.store.load_states([(topic, partition)])
    return getattr(state, "leader", None)


async def test_what_cannot_be_read_is_named_and_holds_nothing_up(stage: Scene) -> None:
    zk, epoch = stage.w.zk, await stage.active()
    bad = {paths.topic(name): data for name, data in BAD_TOPICS.items()}
    for path, data in bad.items():
        await zk.create(path, data)
    registration = await zk.create(paths.broker(77), b'{"version":', ephemeral=True)
    notification = await zk.create(f"{paths.ISR_CHANGES}/isr_change_", b"\xff\x00{", sequential=True)
    sound = f"sound-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, sound, {0: [3, 1, 2]})

    async def named() -> bool:
        assert set(await malformed(stage)) >= {*bad, registration.path}
        return await leader(stage, sound) == 3 and await zk.exists(notification.path) is None

    await eventually(named, 30.0)
    assert "version 9 is unknown" in (await malformed(stage))[paths.topic("future")]
    await stage.flows()

    half, mended = paths.topic("half"), encode_topic({0: Assignment((2, 3, 1))}, None)
    await zk.set(half, mended, 0)
    for path in bad.keys() - {half}:
        await zk.delete(path, 0)
    await zk.delete(registration.path, 0)

    async def well() -> bool:
        assert await malformed(stage) == {}
        return await leader(stage, "half") == 2

    await eventually(well, 30.0)
    assert await stage.active() == epoch, "nothing of it cost the role"
    await stage.proven()


@pytest.mark.seed("S4-88")
async def test_assignments_that_name_unknown_brokers_or_the_daemon(stage: Scene) -> None:
    topic = f"strange-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, topic, {0: [1, 99], 1: [99], 2: [stage.daemon.id, 2], 3: [2, 3, 1]})
    await eventually(lambda: _is(stage, topic, {0: 1, 1: None, 3: 2}), 30.0)
    found = await read_topic(stage.w.zk, topic)
    assert stage.daemon.id not in found.partitions[2].replicas
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
