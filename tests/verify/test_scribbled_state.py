"""The state znode of a running partition is overwritten with something else, and mended later."""

from __future__ import annotations

import pytest

from metadata_store import paths
from metadata_store.codecs.state import encode_state
from state_machines.model.types import Leadership
from testing.znodes import create_topic
from tests.cluster.scene import Scene, scene
from tests.polling import eventually

TOPIC = "scribbled"
GARBAGE = b'{"version":1,"leader":2,"leader_epoch":'


async def state(stage: Scene, partition: int) -> Leadership | None:
    [found] = await stage.w.store.load_states([(TOPIC, partition)])
    return found if isinstance(found, Leadership) else None


async def named(stage: Scene, partition: int) -> bool:
    [cluster] = (await stage.daemon.get("/v1/cluster"))["items"]
    return paths.state(TOPIC, partition) in {found["path"] for found in cluster["malformed"]}


@pytest.mark.seed("S4-44", "S4-45", "S4-65", "S4-67", "S4-77")
async def test_the_rest_goes_on_and_the_partition_is_taken_up_once_it_is_mended() -> None:
    async with scene() as stage:
        zk, epoch = stage.w.zk, await stage.active()
        await create_topic(stage.w.zk, TOPIC, {0: [2, 1, 3], 1: [2, 3, 1], 2: [2, 1, 3]})
        await eventually(lambda: state(stage, 2), 30.0)
        await stage.w.healed()
        before = await state(stage, 0)
        assert before is not None
        for partition in (0, 1):
            await zk.set(paths.state(TOPIC, partition), GARBAGE, before.version)

        # its leader dies: what can be read moves, what cannot is named
        await stage.w.cluster.brokers[2].kill()
        await eventually(lambda: _led_by_others(stage), 60.0)
        await eventually(lambda: named(stage, 0), 30.0)
        await stage.flows()
        mended = encode_state(before.leader, before.leader_epoch, before.isr, before.controller_epoch)
        await zk.set(paths.state(TOPIC, 0), mended, before.version + 1)
        await eventually(lambda: _elected(stage, 0), 30.0)
        assert not await named(stage, 0)
        assert await named(stage, 1)
        assert await stage.active() == epoch

        # a new term finds the other one; mended, it is taken up, too
        await stage.daemon.kill()
        await stage.daemon.boot()
        assert await named(stage, 1)
        await zk.set(paths.state(TOPIC, 1), mended, before.version + 1)
        await eventually(lambda: _elected(stage, 1), 30.0)
        await stage.w.cluster.revive(2)
        await stage.proven()


async def _led_by_others(stage: Scene) -> bool:
    states = await stage.w.states()
    return all(
        s is None or s.leader not in {2, -1} for (topic, p), (_, s) in states.items() if (topic, p) != (TOPIC, 0)
    )


async def _elected(stage: Scene, partition: int) -> bool:
    found = await state(stage, partition)
    return found is not None and found.leader in {1, 3}
