"""A topic's znodes are removed by hand and its name comes again: real brokers refuse it, and every view says so."""

from __future__ import annotations

import asyncio
import shutil
import uuid

from cli.exit_codes import Exit
from testing.znodes import create_topic, remove_by_hand
from tests.kit.polling import eventually
from tests.real.cluster.scene import Scene, agreed, regent, scene, succeeds
from tests.real.cluster.test_deletion import started


async def again(stage: Scene, topic: str) -> None:
    """Creates a topic, removes its znodes by hand, and creates it anew."""
    await started(stage, topic, {0: [1, 2, 3]})
    await remove_by_hand(stage.w.zk, topic)
    await create_topic(stage.w.zk, topic, {0: [1, 2, 3]})


async def refusing(stage: Scene, topic: str) -> list[int]:
    """Returns the brokers that refuse partition 0."""
    [found] = (await stage.daemon.get(f"/v1/topics/{topic}/partitions/0"))["items"]
    return list(found["refusedBy"])


async def without_old_log(stage: Scene, broker: int, topic: str) -> None:
    """Does what the explanation says: stops the broker, moves the old log out of the way, starts the broker."""
    process = stage.w.cluster.brokers[broker]
    await process.stop()
    for at in process.folder.glob(f"data-*/{topic}-0"):
        await asyncio.to_thread(shutil.move, at, process.folder / f"kept-{topic}")
    await stage.w.cluster.revive(broker)


async def test_what_brokers_refuse_is_in_every_view_until_they_accept() -> None:
    async with scene() as stage:
        topic = f"again-{uuid.uuid4().hex[:6]}"
        await again(stage, topic)
        await eventually(lambda: has_all(stage, topic), 30.0)
        [status] = (await stage.daemon.get("/v1/status"))["items"]
        told = [line for line in status["health"] if "refuses 1 partition" in line]
        assert len(told) == 3, status["health"]
        assert f"with INCONSISTENT_TOPIC_ID (103), the first is {topic}-0: regent explain {topic} 0" in told[0]
        assert topic in await succeeds(stage.daemon, "list", "partitions", "--refused")
        explained = await succeeds(stage.daemon, "explain", topic, "0")
        assert "nobody leads" in explained
        assert f"move the directory {topic}-0 out of its log directories" in explained
        code, out, _ = await regent(stage.daemon, "verify")
        assert (code, out.count("refused with INCONSISTENT_TOPIC_ID")) == (Exit.REFUSED, 3), out
        assert set((await stage.daemon.metric("regent_broker_refused_partitions")).values()) == {1.0}
        for broker in (3, 1, 2):
            await without_old_log(stage, broker, topic)
        await eventually(lambda: has_none(stage, topic), 60.0)
        await stage.w.healed()
        await agreed(stage.daemon)
        await stage.delete(topic)
        await stage.proven()


async def has_all(stage: Scene, topic: str) -> bool:
    return await refusing(stage, topic) == [1, 2, 3]


async def has_none(stage: Scene, topic: str) -> bool:
    return await refusing(stage, topic) == []
