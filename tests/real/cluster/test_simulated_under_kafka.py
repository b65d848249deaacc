"""Simulated brokers under Kafka's own controller have the same metadata as ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.embedded.cluster import EmbeddedCluster
from tests.contracts.simulated_process import all_is_sent, brokers


@pytest.mark.parametrize("ibp", ["3.9-IV0", "2.7-IV1"])
async def test_simulated_brokers_receive_all_metadata_from_kafkas_own_controller(tmp_path: Path, ibp: str) -> None:
    options = {"ibp": ibp, "properties": {"auto.leader.rebalance.enable": "false"}}
    async with (
        EmbeddedCluster(1, broker_options=options) as cluster,
        brokers(cluster.connect, tmp_path, "--ibp", ibp) as (process, zk),
    ):
        await all_is_sent(process, zk, controller=1)
