"""A take-over from Kafka's own controller in the middle of its work, which the preflight allows."""

from __future__ import annotations

import json
import shutil

import pytest

from cli.demo.process import RegentProcess
from cli.exit_codes import Exit
from metadata_store import paths
from state_machines.model.types import Assignment, TopicAssignment
from testing.embedded.load import Load
from testing.znodes import create_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import agreed, regent, succeeds
from tests.real.cluster.world import World, world


async def refusals(daemon: RegentProcess) -> dict[str, str]:
    """Returns the findings that refuse a take-over, by the name of the check."""
    code, out, err = await regent(daemon, "preflight", "-o", "json")
    found = {c["name"]: c["found"] for c in json.loads(out)["items"] if c["result"] == "refused"}
    assert code == (Exit.REFUSED if found else Exit.DONE), err
    return found


@pytest.mark.seed("S4-86")
async def test_a_reassignment_and_a_deletion_that_kafkas_controller_began_are_finished() -> None:
    async with world(3, partitions=6) as w, Load(w.cluster.bootstrap, {"orders": 6}, rate_per_s=50):
        daemon = w.daemon()
        assert await refusals(daemon) == {}
        await create_topic(w.zk, "moved", {0: [1, 2]})
        await create_topic(w.zk, "doomed", {0: [3, 1]})
        await w.led("moved", 1)
        await w.led("doomed", 1)
        await w.cluster.brokers[3].kill()
        await w.registered(3, expected=False)

        wish = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 3]}]}
        await w.zk.create(paths.REASSIGN_PARTITIONS, json.dumps(wish).encode())
        await eventually(lambda: _moving(w), 30.0)
        assert await refusals(daemon) == {}, "a reassignment is carried on"
        await w.zk.create(paths.deletion("doomed"), None)
        assert await refusals(daemon) == {}, "a deletion is carried on"
        await daemon.boot("standby")
        await succeeds(daemon, "takeover", "--yes", "--wait")
        await w.cluster.revive(3)
        await eventually(lambda: _finished(w), 60.0)
        await w.healed()
        await agreed(daemon)


async def _moving(w: World) -> bool:
    [found] = await w.store.load_topics(["moved"])
    return isinstance(found, TopicAssignment) and bool(found.partitions[0].adding)


async def _finished(w: World) -> bool:
    moved, doomed = await w.store.load_topics(["moved", "doomed"])
    return isinstance(moved, TopicAssignment) and moved.partitions[0] == Assignment((1, 3)) and doomed is None


@pytest.mark.seed("S4-86")
async def test_an_offline_log_directory_is_a_warning_and_its_replicas_are_offline_after_a_take_over() -> None:
    async with world(2, partitions=8, replication=2) as w, Load(w.cluster.bootstrap, {"orders": 8}, rate_per_s=50):
        daemon = w.daemon()
        broken = w.cluster.brokers[2].folder / "data-2"
        shutil.rmtree(broken)
        broken.write_text("a file where the directory was")
        await eventually(lambda: _warned(daemon), 60.0)
        assert await refusals(daemon) == {}
        await daemon.boot("standby")
        await succeeds(daemon, "takeover", "--yes", "--wait")
        await eventually(lambda: _offline_there(daemon), 30.0)


async def _warned(daemon: RegentProcess) -> bool:
    _, out, _ = await regent(daemon, "preflight", "-o", "json")
    return any(c["name"] == "log directories" and c["result"] == "warning" for c in json.loads(out)["items"])


async def _offline_there(daemon: RegentProcess) -> bool:
    """Returns whether replicas on the failed disk of broker 2 are offline, and broker 1 leads their partitions."""
    _, out, _ = await regent(daemon, "list", "partitions", "--under-replicated", "-o", "json")
    found = json.loads(out)["items"]
    return bool(found) and all((p["leader"], p["isr"], p["offlineReplicas"]) == (1, [1], [2]) for p in found)
