"""A drain of a real broker with its replicas is taken back by one command, after its end and kills of the daemon."""

from __future__ import annotations

import json
from typing import Any

from testing.znodes import create_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import succeeds
from tests.real.cluster.world import World, world

PLACES = {0: (1, 2), 1: (2, 3), 2: (2, 1)}


async def placed(w: World) -> dict[int, tuple[int, ...]]:
    """Returns the replicas of topic t by partition."""
    return {number: replicas for (topic, number), (replicas, _) in (await w.states()).items() if topic == "t"}


async def test_a_drain_with_replicas_is_taken_back_after_its_end_by_a_daemon_that_was_restarted() -> None:
    async with world(3, partitions=1, replication=1) as w:
        daemon = w.daemon(flags=("--takeover",))
        await daemon.boot()
        await create_topic(w.zk, "t", PLACES)
        await w.healed()

        async def items(*words: str) -> list[dict[str, Any]]:
            return list(json.loads(await succeeds(daemon, *words, "-o", "json"))["items"])

        foretold = await items("drain", "2", "--replicas", "--dry-run")
        assert {row["entity"] for row in foretold if row["what"] == "replicas"} == {"broker 2", "t-0", "t-1", "t-2"}
        [drain] = await items("drain", "2", "--replicas", "--wait", "--reason", "new disks")
        assert drain["state"] == "success"
        assert all(2 not in replicas for replicas in (await placed(w)).values())
        await daemon.kill()
        await daemon.boot()

        pid = str(drain["pid"])
        back = await items("end", pid, "--undo", "--dry-run")
        assert {one["partition"]: tuple(one["target"]) for one in back} == PLACES
        [plan] = await items("end", pid, "--undo", "--yes", "--reason", "the wrong broker")
        await daemon.kill()
        await daemon.boot()
        await succeeds(daemon, "procedures", "wait", str(plan["pid"]), "--timeout", "60")

        async def is_back() -> bool:
            return await placed(w) == PLACES

        await eventually(is_back, 30)
        [status] = await items("status")
        assert not status.get("drainedBrokers")
        await w.healed()
