"""The embedded cluster under Kafka's own controller: the ground that every other cluster test stands on."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.embedded.cluster import EmbeddedCluster
from brokers.embedded.load import Load, Reader
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


async def test_brokers_come_back_on_their_ports_and_zookeeper_with_its_data() -> None:
    async with EmbeddedCluster(1, chroot="/kafka", racks=["a"]) as cluster:
        broker, address = cluster.brokers[1], cluster.bootstrap
        assert "Node count: " in await cluster.zookeeper.ask("srvr")
        assert await cluster.registered() == {1}
        await broker.kill()
        await cluster.zookeeper.restart()
        await cluster.revive(1)
        assert cluster.bootstrap == address
        assert await cluster.registered() == {1}
        folder = cluster.folder
    assert not broker.running
    assert not cluster.zookeeper.running
    assert not folder.exists()


async def test_load_and_reader_end_without_brokers_and_nothing_unanswered_counts_as_acknowledged() -> None:
    async with (
        EmbeddedCluster(1) as cluster,
        Load(cluster.bootstrap, {"orders": 1}, idempotent=True) as load,
        Reader(cluster.bootstrap, load) as reader,
    ):
        await eventually(lambda: reader.records > 100)
        await cluster.brokers[1].kill()
        acknowledged = len(load.ledger.acknowledged[load.spots[0]])
        await eventually(lambda: load.ledger.sent > acknowledged + 100)
        await load.stop(drain_s=0.1)
        verdict = await reader.verdict(within_s=0.1)
        assert verdict.failed == verdict.sent - verdict.acknowledged
        assert verdict.failed >= 100


async def test_failing_block_keeps_the_logs_and_names_them() -> None:
    cluster = EmbeddedCluster(0)
    with pytest.raises(KeyError) as failure:
        async with cluster:
            raise KeyError("a test failed")
    assert str(cluster.folder) in failure.value.__notes__[0]
    assert (cluster.folder / "zookeeper" / "zookeeper.log").read_text() != ""
    remove(cluster.folder)


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
