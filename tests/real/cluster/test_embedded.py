"""The embedded cluster, with load and reader, under Kafka's own controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.embedded import jvm
from testing.embedded.cluster import EmbeddedCluster
from testing.embedded.jars import jars
from testing.embedded.java import find_java
from testing.embedded.load import Load, Reader
from tests.kit.deadlines import eventually


def archive() -> Path:
    return jvm.archive(jvm.BROKER, find_java(), jars())


def maps_its_archive(pid: int) -> bool:
    return str(archive()) in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


async def test_brokers_come_back_on_their_ports_and_zookeeper_with_its_data() -> None:
    async with EmbeddedCluster(1, chroot="/kafka", racks=["a"]) as cluster:
        broker, address = cluster.brokers[1], cluster.bootstrap
        assert "Node count: " in await cluster.zookeeper.query("srvr")
        assert await cluster.registered() == {1}
        assert maps_its_archive(broker.pid) or not archive().exists()
        await broker.kill()
        await cluster.zookeeper.restart()
        await cluster.revive(1)
        assert cluster.bootstrap == address
        assert await cluster.registered() == {1}
        folder = cluster.folder
    assert not broker.running
    assert not cluster.zookeeper.running
    assert not folder.exists()


async def test_load_and_reader_end_without_brokers_and_count_no_record_without_a_response_as_acknowledged() -> None:
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
