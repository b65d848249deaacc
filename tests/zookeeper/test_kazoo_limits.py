"""The size of requests is learned from a real server with a small ``jute.maxbuffer``."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata_store.errors import Code, NotConnected
from metadata_store.port import REQUEST_BYTES_MAX
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.contracts.support import CONNECTED
from tests.polling import eventually
from tests.zookeeper.test_kazoo_faults import connected


@pytest.mark.kafka("KafkaZkClientTest.testJuteMaxBuffer")
async def test_a_small_buffer_is_learned_and_after_a_larger_one_was_set_forgotten(tmp_path: Path) -> None:
    small = EmbeddedZooKeeper(tmp_path, tick_ms=500, jute_maxbuffer=100_000)
    await small.boot()
    s = await connected(small.connect, 10_000)
    absent = [f"/{'x' * 500}{n}" for n in range(1_000)]
    for _ in range(2):
        with pytest.raises(NotConnected):
            await s.zk.read_many(absent)
        await eventually(lambda: s.zk.state is CONNECTED)
    assert await s.zk.read_many(absent) == [Code.NO_NODE] * 1_000
    await small.kill()
    large = EmbeddedZooKeeper(tmp_path, tick_ms=500, port=small.port)
    await large.boot()
    await eventually(lambda: s.zk.state is CONNECTED)
    await s.zk.create("/a", b"x" * 520_000)
    assert s.zk.request_bytes_max == REQUEST_BYTES_MAX
    await s.zk.close()
    await large.kill()
