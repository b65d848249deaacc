"""Real brokers with one listener for clients and brokers reach the daemon through the endpoint."""

from __future__ import annotations

from pathlib import Path

from aiokafka import AIOKafkaProducer

from testing.embedded.tools import Tools
from testing.znodes import create_topic
from tests.kit.polling import eventually
from tests.real.cluster.endpoint import EndpointProcess, endpoint
from tests.real.cluster.world import World, world

SHARED = {"inter.broker.listener.name": "CLIENT"}
FOUND = "Recorded new ZK controller, from now on will use node 127.0.0.1:{port}"
"""Line in a broker's log when the broker looks its controller up for AlterPartition."""
SHUT_DOWN = "Controlled shutdown request returned successfully"


def uses(w: World, broker: int, port: int) -> bool:
    """Returns whether a broker's requests for ISRs go to a port."""
    lines = [line for line in w.cluster.brokers[broker].log_text().splitlines() if "Recorded new ZK controller" in line]
    return bool(lines) and FOUND.format(port=port) in lines[-1]


async def bounced(w: World, broker: int) -> None:
    """Kills a broker and boots it again: leaders shrink and expand ISRs."""
    await w.cluster.brokers[broker].kill()

    async def gone() -> bool:
        return broker not in (await w.store.load_brokers()).brokers

    await eventually(gone, 60.0)
    await w.leads_nothing(broker)
    await w.cluster.brokers[broker].boot()
    await w.healed()


async def test_calls_of_brokers_with_one_listener_reach_the_daemon_through_the_endpoint(tmp_path: Path) -> None:
    async with world(3, properties=SHARED) as w:
        for topic in ("t", "u"):
            await create_topic(w.zk, topic, {p: [1 + p, 1 + (p + 1) % 3] for p in range(3)})
        await w.healed()
        own = {"brokers.inter_broker_listener": "CLIENT"}
        daemon = w.daemon(flags=["--takeover"], settings=own)
        await daemon.boot()
        await bounced(w, 2)
        async with endpoint(daemon) as at:
            await _through(w, at, tmp_path)
        await bounced(w, 1)
        assert w.violations() == []


async def _through(w: World, at: EndpointProcess, folder: Path) -> None:
    await bounced(w, 3)
    await eventually(lambda: uses(w, 3, at.port), 30.0)
    async with AIOKafkaProducer(bootstrap_servers=at.address, acks="all", enable_idempotence=True) as producer:
        await producer.send_and_wait("t", b"x", partition=0)
    tools = Tools(w.cluster.bootstrap[0], folder)
    done = await tools.run("kafka-topics", "--create", "--topic", "new", "--replication-factor", "2")
    assert done.code == 0, done
    await w.cluster.brokers[1].stop()
    assert SHUT_DOWN in w.cluster.brokers[1].log_text()
    await w.cluster.brokers[1].boot()
    await w.healed()
