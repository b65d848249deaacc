"""Leaders of a real cluster return to their preferred replicas, although the daemon is killed meanwhile."""

from __future__ import annotations

import pytest

from tests.real.cluster.kept_waiting import through_a_failover
from tests.real.cluster.scene import TOPIC, Scene, leaders, succeeds

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def not_preferred(stage: Scene) -> int:
    """Counts the partitions under load that another than their first replica leads."""
    states = await stage.w.states()
    found = leaders(states)
    return sum(found[name] != replicas[0] for name, (replicas, _) in states.items() if name[0] == TOPIC)


async def test_all_partitions_are_led_by_their_preferred_replicas_after_one_command(stage: Scene) -> None:
    await succeeds(stage.daemon, "drain", "1", "--wait")
    await succeeds(stage.daemon, "undrain", "1")
    assert await not_preferred(stage)
    found = await through_a_failover(stage, "elect", "elect", "preferred", "--all", "--batch", "1")
    assert (found["state"], await not_preferred(stage)) == ("success", 0), found
    await stage.proven()
