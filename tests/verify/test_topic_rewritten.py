"""Topic znodes that an older tool rewrites, or that cannot be read for a while, on real brokers and under load."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from metadata_store import paths
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Leadership, TopicAssignment
from testing.znodes import read_topic
from tests.cluster.scene import TOPIC, Scene, leaders, scene
from tests.polling import eventually

REFUSED = "INCONSISTENT_TOPIC_ID"


@asynccontextmanager
async def held() -> AsyncIterator[Scene]:
    """Nobody else is controller meanwhile: Kafka's would give a topic without an id another one than its logs have."""
    async with scene() as stage:
        hold = {"controller.on_absence": "hold", "zookeeper.digest_file": str(stage.w.digest_file())}
        await stage.daemon.stop()
        stage.daemon.configure(hold)
        await stage.daemon.boot()
        await stage.active()
        yield stage


async def znode(stage: Scene) -> TopicAssignment:
    return await read_topic(stage.w.zk, TOPIC)


async def rewrite(stage: Scene) -> None:
    """As CMAK does it: the assignment alone, in the first version of the format."""
    partitions = {str(p): list(found.replicas) for p, found in (await znode(stage)).partitions.items()}
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    await stage.w.zk.set(paths.topic(TOPIC), data, ANY_VERSION)


async def states(stage: Scene) -> dict[int, Leadership]:
    found = {p: state for (topic, p), (_, state) in (await stage.w.states()).items() if topic == TOPIC}
    return {p: state for p, state in found.items() if state is not None}


async def has_id(stage: Scene, topic_id: bytes) -> bool:
    return (await znode(stage)).topic_id == topic_id


async def leader_dies(stage: Scene, broker: int) -> None:
    """Others take over what it leads, records flow, and it comes back into every ISR."""
    assert broker in leaders(await stage.w.states()).values()
    await stage.w.cluster.brokers[broker].kill()
    await stage.w.leads_nothing(broker)
    await stage.flows()
    await stage.w.cluster.revive(broker)
    await stage.proven()


def refusals(stage: Scene) -> list[str]:
    """Lines of brokers' logs in which a topic id is refused."""
    logs = [broker.log_text() for broker in stage.w.cluster.brokers.values()]
    return [line for log in logs for line in log.splitlines() if REFUSED in line]


@pytest.mark.seed("S4-85", "S4-44", "S4-65")
async def test_a_topic_that_loses_its_id_keeps_it_through_deaths_of_leaders_and_a_failover() -> None:
    async with held() as stage:
        topic_id = (await znode(stage)).topic_id
        assert topic_id is not None

        # while the daemon runs: the id that it knows is written back
        await rewrite(stage)
        await eventually(lambda: has_id(stage, topic_id), 30.0)
        await leader_dies(stage, 1)

        # while none runs: the next term has the id from the brokers
        await stage.daemon.kill()
        await rewrite(stage)
        assert (await znode(stage)).topic_id is None
        await stage.daemon.boot()
        await stage.active()
        await eventually(lambda: has_id(stage, topic_id), 30.0)
        await leader_dies(stage, 2)
        assert refusals(stage) == []


@pytest.mark.seed("S4-85")
async def test_an_id_that_one_broker_alone_knows_is_found() -> None:
    """The others restarted while no daemon ran; the term sends none metadata without the id before it is written."""
    async with held() as stage:
        topic_id = (await znode(stage)).topic_id
        assert topic_id is not None
        await stage.daemon.kill()
        await rewrite(stage)
        one, *others = stage.w.cluster.brokers
        for broker in others:
            await stage.w.cluster.brokers[broker].kill()
            await stage.w.cluster.revive(broker)
        await stage.daemon.boot()
        await stage.active()
        await eventually(lambda: has_id(stage, topic_id), 30.0)
        await stage.proven()
        await leader_dies(stage, one)
        assert refusals(stage) == []


@pytest.mark.seed("S4-67")
async def test_a_topic_that_could_not_be_read_when_the_term_began_is_led_on_with_its_records() -> None:
    """Kafka's controller would write such a znode anew, without partitions and with another id."""
    async with held() as stage:
        await stage.daemon.kill()
        content = await stage.w.zk.get(paths.topic(TOPIC))
        assert content is not None
        before = await states(stage)
        await stage.w.zk.set(paths.topic(TOPIC), b"{", ANY_VERSION)
        await stage.daemon.boot()
        await stage.active()

        async def led_on() -> bool:
            after = await states(stage)
            return all(after[p].leader_epoch == state.leader_epoch + 1 for p, state in before.items())

        await stage.w.zk.set(paths.topic(TOPIC), content.data, ANY_VERSION)
        await eventually(led_on, 30.0)
        after = await states(stage)
        assert {p: (s.leader, s.isr) for p, s in after.items()} == {p: (s.leader, s.isr) for p, s in before.items()}
        await leader_dies(stage, 3)
