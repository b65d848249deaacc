"""ZooKeeper applied a write and the daemon never heard: everything is told all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaProducer

from metadata_store import paths
from metadata_store.codecs.cluster import ProducerIdBlock, decode_producer_ids
from testing.znodes import create_topic, expand_topic
from tests.cluster.lossy import LossyProxy, proxied
from tests.cluster.scene import Scene
from tests.polling import eventually


async def lost(proxy: LossyProxy, names: str, act: Callable[[], Awaitable[object]]) -> None:
    """``act`` leads to a multi that names the text; its reply is lost."""
    before = proxy.lost
    proxy.lose(names)
    await act()
    await eventually(lambda: not proxy.armed, 30.0)
    assert proxy.lost == before + 1, "the multi was applied"


@pytest.mark.seed("S4-76", "S4-77", "S4-80", "S4-86", "S4-87")
async def test_every_kind_of_write_survives_the_loss_of_its_reply() -> None:
    async with proxied() as (stage, proxy):
        epoch, store = await stage.active(), stage.w.store

        # the topic id, then the state znodes of a new topic
        await lost(proxy, "/brokers/topics/named", lambda: create_topic(store.zk, "named", {0: [1, 2, 3]}))
        await writes(stage, "named", 1)
        await lost(
            proxy, "/topics/born/partitions", lambda: create_topic(store.zk, "born", {0: [1, 2, 3], 1: [2, 3, 1]})
        )
        await writes(stage, "born", 2)

        # added partitions
        await lost(proxy, "/topics/born/partitions/2", lambda: expand_topic(store.zk, "born", (3, 1, 2)))
        await writes(stage, "born", 3)
        assert await stage.metric("regent_unknown_outcomes_total") >= 3

        # a controlled shutdown, the ISR changes at its end, and a broker's death
        stopping = stage.w.cluster.brokers[3]
        await lost(proxy, "/state", stopping.shut_down)
        assert stopping.controlled_shutdown().first_try, stopping.log_tail()
        await lost(proxy, "/state", stopping.boot)
        await stage.proven()
        await lost(proxy, "/state", stage.w.cluster.brokers[2].kill)
        await stage.w.leads_nothing(2)
        await stage.w.cluster.revive(2)
        await stage.proven()

        # a block of producer ids: the one whose write has an unknown outcome is never handed out
        before = await block(stage)
        await stage.w.cluster.brokers[1].shut_down()
        await stage.w.cluster.brokers[1].boot()
        await lost(proxy, paths.PRODUCER_IDS, lambda: produces_idempotently(stage, 1))
        assert (await block(stage)).start >= before.start + 2_000
        await stage.proven()
        assert await stage.active() == epoch, "nothing of it cost the role"

        # the claim: never adopted
        await stage.daemon.kill()
        await lost(proxy, "/controller_epoch", stage.daemon.boot)
        assert await stage.active() == epoch + 2
        await stage.proven()


async def writes(stage: Scene, topic: str, partitions: int) -> None:
    """Every partition of a topic takes records: its leader and its followers were told."""
    async with AIOKafkaProducer(bootstrap_servers=stage.w.cluster.bootstrap, acks="all") as producer:
        await eventually(lambda: _known(producer, topic, partitions), 30.0)
        for partition in range(partitions):
            await producer.send_and_wait(topic, b"x", partition=partition)


async def _known(producer: AIOKafkaProducer, topic: str, partitions: int) -> bool:
    await producer.client.force_metadata_update()
    return len(await producer.partitions_for(topic)) == partitions


async def produces_idempotently(stage: Scene, broker: int) -> None:
    """The broker needs a block of producer ids for that."""
    address = stage.w.cluster.brokers[broker].address
    async with AIOKafkaProducer(bootstrap_servers=[address], enable_idempotence=True) as producer:
        await producer.send_and_wait("named", b"x", partition=0)


async def block(stage: Scene) -> ProducerIdBlock:
    node = await stage.w.zk.get(paths.PRODUCER_IDS)
    assert node is not None
    found = decode_producer_ids(paths.PRODUCER_IDS, node.data)
    assert isinstance(found, ProducerIdBlock)
    return found


@pytest.mark.seed("S4-75", "S4-77", "S4-79")
async def test_what_happens_while_the_connection_is_cut_is_found_when_it_is_back() -> None:
    async with proxied() as (stage, proxy):
        epoch, store = await stage.active(), stage.w.store
        await create_topic(store.zk, "grows", {0: [1, 2, 3]})
        await eventually(lambda: _led(stage, "grows", 1), 30.0)
        proxy.suspend()
        await expand_topic(store.zk, "grows", (3, 1, 2))
        await create_topic(store.zk, "unseen", {0: [2, 1, 3]})
        await eventually(lambda: stage.daemon.log_has("is lost: writes and requests wait"), 10.0)
        proxy.resume()
        await eventually(lambda: _led(stage, "grows", 2), 30.0)
        await eventually(lambda: _led(stage, "unseen", 1), 30.0)
        assert await stage.active() == epoch
        assert stage.daemon.log_has("within the lease: epoch")
        await stage.proven()

        proxy.stall()  # half-open: nothing arrives, nothing is refused
        await eventually(lambda: stage.daemon.log_has("resigned|regent has stopped"), 30.0)
        holder = await stage.w.broker_controls(60.0)
        await stage.flows()
        assert holder in stage.w.cluster.brokers
        await proxy.stop()


async def _led(stage: Scene, topic: str, partitions: int) -> bool:
    states = {name: state for name, (_, state) in (await stage.w.states()).items() if name[0] == topic}
    return len(states) == partitions and all(state is not None and state.leader >= 0 for state in states.values())


@pytest.mark.seed("S4-75", "S4-77")
async def test_a_flapping_connection_ends_in_agreement() -> None:
    async with proxied() as (stage, proxy):
        for round_ in range(12):
            if round_ % 3 == 0:
                await create_topic(stage.w.zk, f"flap-{round_}", {0: [1, 2, 3], 1: [2, 3, 1]})
            if round_ == 4:
                await stage.w.cluster.brokers[3].kill()
            proxy.cut()
            await asyncio.sleep(0.4)  # the pace of the flapping
        await stage.active()
        for topic in ("flap-0", "flap-3", "flap-6", "flap-9"):
            await eventually(lambda t=topic: _led(stage, t, 2), 30.0)  # type: ignore[misc]
        await stage.w.cluster.revive(3)
        await stage.proven()
