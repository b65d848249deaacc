"""Faults of the embedded parts under Kafka's own controller: what the ground itself withstands."""

from __future__ import annotations

from testing.embedded.cluster import EmbeddedCluster
from testing.embedded.load import Load, Reader
from tests.polling import eventually

PARTITIONS = 60


async def test_broker_killed_and_stopped_under_load_loses_nothing_acknowledged() -> None:
    async with (
        EmbeddedCluster(3, broker_options={"auto_create_partitions": PARTITIONS}) as cluster,
        Load(cluster.bootstrap, {"orders": PARTITIONS}, rate_per_s=500) as load,
        Reader(cluster.bootstrap, load) as reader,
    ):
        await eventually(lambda: len(load.ledger.acknowledged) == PARTITIONS, within_s=30)
        victim = cluster.brokers[2]
        await victim.kill()
        await writes_everywhere_again(load)
        await victim.boot()
        shutdown = await cluster.brokers[3].shut_down()
        assert shutdown.succeeded, cluster.brokers[3].log_tail()
        await writes_everywhere_again(load)
        await cluster.brokers[3].boot()
        await load.stop()
        verdict = await reader.verdict()
        assert verdict.lost == []
        assert verdict.acknowledged > PARTITIONS
        assert load.stall().spot is not None


async def writes_everywhere_again(load: Load) -> None:
    """Waits until each partition has acknowledged a record that was sent from now on."""
    begin = load.ledger.sent
    await eventually(
        lambda: all(max(load.ledger.acknowledged.get(spot, {0})) > begin for spot in load.spots), within_s=60
    )


async def test_frozen_broker_and_frozen_zookeeper_lose_nothing_acknowledged() -> None:
    async with (
        EmbeddedCluster(3, broker_options={"auto_create_partitions": PARTITIONS}) as cluster,
        Load(cluster.bootstrap, {"orders": PARTITIONS}, idempotent=True) as load,
        Reader(cluster.bootstrap, load) as reader,
    ):
        frozen = cluster.brokers[2]
        frozen.pause()
        await eventually(lambda: is_registered(cluster, 2, expected=False), within_s=30)
        frozen.resume()
        await eventually(lambda: is_registered(cluster, 2, expected=True), within_s=30)
        cluster.zookeeper.pause()
        begin = load.ledger.sent
        await eventually(lambda: load.ledger.sent > begin + 1_000, within_s=30)
        cluster.zookeeper.resume()
        await eventually(lambda: is_registered(cluster, 1, expected=True), within_s=30)
        await load.stop()
        verdict = await reader.verdict()
        assert (verdict.lost, verdict.duplicated) == ([], []), verdict


async def is_registered(cluster: EmbeddedCluster, broker: int, *, expected: bool) -> bool:
    return (broker in await cluster.registered()) is expected
