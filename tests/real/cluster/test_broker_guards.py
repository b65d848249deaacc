"""Settings of real brokers hold under the daemon as under Kafka's own controller."""

from __future__ import annotations

import uuid
from pathlib import Path

from metadata_store import paths
from state_machines.model.types import TopicAssignment
from testing.embedded.tools import Tools
from testing.znodes import read_topic
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.scene import regent
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually

IBP = "2.8-IV1"
GUARDED = {"delete.topic.enable": "false", "auto.leader.rebalance.enable": "false", "num.partitions": 3}
DISABLED = "Topic deletion is disabled."


async def guards(w: ClusterWorld, tools: Tools) -> dict[str, object]:
    """Returns the results of a client that creates and deletes a topic."""
    name = f"guarded-{uuid.uuid4().hex[:6]}"
    made = await tools.run("kafka-topics", "--create", "--topic", name)
    assert made.code == 0, made
    deleted = await tools.run("kafka-topics", "--delete", "--topic", name)
    created = await read_topic(w.zk, name)
    await w.zk.create(paths.deletion(name), None)

    async def unmarked() -> bool:
        return await w.zk.exists(paths.deletion(name)) is None

    await eventually(unmarked)
    [kept] = await w.store.load_topics([name])
    return {
        "partitions": len(created.partitions),
        "replicas": {len(assigned.replicas) for assigned in created.partitions.values()},
        "deletion": (deleted.code, DISABLED in deleted.out + deleted.err),
        "kept in spite of a marker": isinstance(kept, TopicAssignment),
    }


async def test_guards_of_the_brokers_hold_under_either_controller(tmp_path: Path) -> None:
    """The daemon's settings file names neither these settings nor the IBP."""
    async with world(3, ibp=IBP, properties=GUARDED) as w:
        under_kafka = await guards(w, Tools(",".join(w.cluster.bootstrap), tmp_path))
        assert under_kafka == {
            "partitions": 3,
            "replicas": {3},
            "deletion": (1, True),
            "kept in spite of a marker": True,
        }
        daemon = w.daemon(flags=["--takeover"])
        await daemon.boot()
        status = await daemon.status()
        assert status is not None
        assert status["ibp"] == IBP
        async with endpoint(daemon) as at:
            assert await guards(w, Tools(at.address, tmp_path)) == under_kafka
        shown = {row["brokerSetting"]: row for row in (await daemon.get("/v1/settings"))["items"]}
        assert shown["delete.topic.enable"]["value"] == "false"
        assert shown["delete.topic.enable"]["source"] == "adopted from brokers 1,2,3"
        assert shown["auto.leader.rebalance.enable"]["value"] == "false"
        code, table, err = await regent(daemon, "config", "show")
        assert code == 0, err
        assert "adopted from brokers 1,2,3" in next(row for row in table.splitlines() if "delete_topic" in row)
