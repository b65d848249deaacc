"""What brokers' settings promise holds under the daemon as under Kafka's own controller, on real brokers."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from brokers.embedded.tools import Finished, Tools
from cli.demo.process import RegentProcess
from metadata_store import paths
from state_machines.types import TopicAssignment
from tests.cluster import policy_class
from tests.cluster.endpoint import endpoint
from tests.cluster.scene import regent
from tests.cluster.world import World, world
from tests.polling import eventually

pytestmark = pytest.mark.timeout(300)
"""Each runs Kafka's own tools, one JVM after the other, or waits for sessions of killed brokers."""

IBP = "2.8-IV1"
GUARDED = {"delete.topic.enable": "false", "auto.leader.rebalance.enable": "false", "num.partitions": 3}
DISABLED = "Topic deletion is disabled."


async def begun(w: World, **settings: object) -> RegentProcess:
    """A daemon whose settings file has the two keys that it must have; it is in office."""
    daemon = w.daemon(flags=["--takeover"], settings=settings)
    await daemon.boot()
    return daemon


async def guards(w: World, tools: Tools) -> dict[str, object]:
    """What a user gets."""
    name = f"guarded-{uuid.uuid4().hex[:6]}"
    made = await tools.run("kafka-topics", "--create", "--topic", name)
    assert made.code == 0, made
    deleted = await tools.run("kafka-topics", "--delete", "--topic", name)
    [created] = await w.store.load_topics([name])
    assert isinstance(created, TopicAssignment)
    await w.zk.create(paths.deletion(name), None)

    async def unmarked() -> bool:
        return await w.zk.exists(paths.deletion(name)) is None

    await eventually(unmarked, 30.0)
    [kept] = await w.store.load_topics([name])
    return {
        "partitions": len(created.partitions),
        "replicas": {len(assigned.replicas) for assigned in created.partitions.values()},
        "deletion": (deleted.code, DISABLED in deleted.out + deleted.err),
        "kept in spite of a marker": isinstance(kept, TopicAssignment),
    }


async def test_guards_of_the_brokers_hold_under_either_controller(tmp_path: Path) -> None:
    """The settings file says nothing of them, nor of the IBP."""
    async with world(3, ibp=IBP, properties=GUARDED) as w:
        under_kafka = await guards(w, Tools(",".join(w.cluster.bootstrap), tmp_path))
        assert under_kafka == {
            "partitions": 3,
            "replicas": {3},
            "deletion": (1, True),
            "kept in spite of a marker": True,
        }
        daemon = await begun(w)
        status = await daemon.status()
        assert status is not None
        assert status["ibp"] == IBP
        async with endpoint(daemon) as at:
            assert await guards(w, Tools(at.address, tmp_path)) == under_kafka
        shown = {row["brokerSetting"]: row for row in (await daemon.get("/v1/settings"))["items"]}
        assert shown["delete.topic.enable"]["value"] == "false"
        assert shown["delete.topic.enable"]["source"] == "adopted from brokers 1,2,3"
        assert shown["auto.leader.rebalance.enable"]["value"] == "false"
        code, table, told = await regent(daemon, "config", "show")
        assert code == 0, told
        assert "adopted from brokers 1,2,3" in next(row for row in table.splitlines() if "delete_topic" in row)


def refusal(done: Finished) -> tuple[int, bool, bool]:
    """Exit code, whether a policy refused, whether it is the class that did."""
    said = done.out + done.err
    return done.code, "PolicyViolationException" in said, policy_class.WHY in said


@pytest.mark.parametrize("ignored", [False, True])
async def test_policies_of_the_brokers_hold_unless_the_operator_ignores_them(tmp_path: Path, *, ignored: bool) -> None:
    policies = dict.fromkeys(("create.topic.policy.class.name", "alter.config.policy.class.name"), policy_class.NAME)
    folder = policy_class.write(tmp_path)
    async with world(1, properties=policies, classes=[folder]) as w:

        async def tried(tools: Tools) -> tuple[Finished, Finished]:
            created = await tools.run("kafka-topics", "--create", "--topic", f"made-{uuid.uuid4().hex[:6]}")
            change = ["--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.cleaner.threads=1"]
            return created, await tools.run("kafka-configs", "--alter", *change)

        created, altered = await tried(Tools(w.cluster.bootstrap[0], tmp_path))
        assert refusal(created) == (1, True, True), created
        assert refusal(altered) == (1, True, True), altered
        daemon = await begun(w, **({"controller.ignore_create_topic_policy": True} if ignored else {}))
        async with endpoint(daemon) as at:
            created, altered = await tried(Tools(at.address, tmp_path))
        assert refusal(created) == ((0, False, False) if ignored else (1, True, False)), created
        assert ignored or "controller.ignore_create_topic_policy" in created.out + created.err
        assert refusal(altered) == (1, True, True), "a broker answers: the daemon never sees it"


@pytest.mark.parametrize("allowed", ["true", "false"])
async def test_unclean_elections_are_held_where_the_files_of_brokers_allow_them(allowed: str) -> None:
    async with world(2, properties={"unclean.leader.election.enable": allowed}) as w:
        await w.store.create_topic("t", {0: [1, 2]})
        daemon = await begun(w)

        async def led_by(leader: int) -> bool:
            states = await w.states()
            state = states["t", 0][1] if ("t", 0) in states else None
            return state is not None and state.leader == leader

        await eventually(lambda: led_by(1), 60.0)
        await w.healed()
        await w.cluster.brokers[2].kill()
        await eventually(lambda: daemon.log_has("brokers \\[2\\] are gone|gone \\[2\\]"), 60.0)
        await w.cluster.brokers[1].kill()
        await eventually(lambda: led_by(-1), 60.0)
        await w.cluster.revive(2)
        if allowed == "true":
            await eventually(lambda: led_by(2), 60.0)
            return

        await eventually(lambda: daemon.log_has("broker 2 is registered"), 60.0)
        [row] = [one for one in (await daemon.get("/v1/settings"))["items"] if "unclean" in one["key"]]
        assert row["source"].startswith("adopted from brokers"), row
        assert await led_by(-1)
