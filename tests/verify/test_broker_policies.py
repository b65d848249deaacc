"""The daemon adopts policy classes and unclean elections from the files of real brokers."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cli.demo.process import RegentProcess
from testing.embedded.tools import Finished, Tools
from testing.znodes import create_topic
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually
from tests.verify import policy_class

pytestmark = pytest.mark.timeout(300)
"""Each runs Kafka's own tools, one JVM after the other, or waits for sessions of killed brokers."""


async def begun(w: ClusterWorld, **settings: object) -> RegentProcess:
    """Boots a daemon with the mandatory settings only, and waits until it is active."""
    daemon = w.daemon(flags=["--takeover"], settings=settings)
    await daemon.boot()
    return daemon


def refusal(done: Finished) -> tuple[int, bool, bool]:
    """Returns exit code, whether a policy refused, and whether the reason is of the class."""
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
async def test_unclean_elections_follow_the_brokers_settings(allowed: str) -> None:
    async with world(2, properties={"unclean.leader.election.enable": allowed}) as w:
        await create_topic(w.zk, "t", {0: [1, 2]})
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
