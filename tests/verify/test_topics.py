"""Topics of real brokers that were rewritten, removed by hand, or given up."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid

import pytest

from cli.exit_codes import Exit
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from testing.znodes import create_topic, read_topic, remove_by_hand
from tests.kit.cluster.scene import TOPIC, Scene, agreed, leaders, regent, scene, succeeds
from tests.kit.deadlines import eventually
from tests.real.cluster.test_topics import mark, started


async def test_the_wait_for_a_dead_broker_ends_by_command_and_its_logs_go_when_it_returns() -> None:
    async with scene() as stage:
        topic = f"abandoned-{uuid.uuid4().hex[:6]}"
        await started(stage, topic, {0: [1, 2, 3], 1: [3, 1, 2]})
        await stage.w.cluster.brokers[3].kill()
        await stage.w.leads_nothing(3)
        await mark(stage, topic)
        left = {(3, 0), (3, 1)}
        await eventually(lambda: stage.w.hosting(topic) == left, 60.0)
        told = await succeeds(stage.daemon, "status")
        assert f"regent deletions give-up {topic} --broker 3" in " ".join(told.split())
        assert "its topic is being deleted" in await succeeds(stage.daemon, "explain", topic, "0")
        await succeeds(stage.daemon, "deletions", "give-up", topic, "--broker", "3", "--yes")
        assert await stage.w.zk.exists(paths.topic(topic)) is None
        assert stage.w.hosting(topic) == left
        await create_topic(stage.w.zk, topic, {0: [1, 2]})
        await stage.w.cluster.revive(3)
        await eventually(lambda: stage.w.hosting(topic) == {(1, 0), (2, 0)}, 60.0)
        await stage.delete(topic)
        await stage.proven()


REFUSED = "INCONSISTENT_TOPIC_ID"


async def rewrite(stage: Scene) -> None:
    """Writes the assignment alone, in the first version of the format, as CMAK does."""
    found = await read_topic(stage.w.zk, TOPIC)
    partitions = {str(p): assignment.replicas for p, assignment in found.partitions.items()}
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    await stage.w.zk.set(paths.topic(TOPIC), data, ANY_VERSION)


async def topic_id(stage: Scene) -> bytes | None:
    return (await read_topic(stage.w.zk, TOPIC)).topic_id


async def bounce_leader(stage: Scene, broker: int) -> None:
    """Kills a broker that leads partitions; other replicas lead until it is back in every ISR."""
    assert broker in leaders(await stage.w.states()).values()
    await stage.w.cluster.brokers[broker].kill()
    await stage.w.leads_nothing(broker)
    await stage.flows()
    await stage.w.cluster.revive(broker)
    await stage.proven()


@pytest.mark.seed("S4-85", "S4-44", "S4-65")
async def test_a_topic_that_loses_its_id_keeps_it_through_deaths_of_leaders_and_a_failover() -> None:
    """Daemons hold the role: Kafka's controller would give a topic without an id another one than its logs have."""
    async with scene(request_s_max=120) as stage:
        await stage.restart_with(stage.w.hold())
        known = await topic_id(stage)
        assert known is not None

        async def restored() -> bool:
            return await topic_id(stage) == known

        # while the daemon runs, it writes back the id that it knows
        await rewrite(stage)
        await eventually(restored, 30.0)
        one, another, _ = stage.w.cluster.brokers
        await bounce_leader(stage, another)

        # while no daemon runs and all brokers but one restart, the next term has the id from that one
        await stage.daemon.kill()
        await rewrite(stage)
        assert await topic_id(stage) is None
        for broker in set(stage.w.cluster.brokers) - {one}:
            await stage.w.cluster.brokers[broker].kill()
            await stage.w.cluster.revive(broker)
        await stage.daemon.boot()
        await stage.active()
        await eventually(restored, 30.0)
        await stage.proven()
        await bounce_leader(stage, one)
        logs = [broker.log_text() for broker in stage.w.cluster.brokers.values()]
        assert [line for log in logs for line in log.splitlines() if REFUSED in line] == []


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
