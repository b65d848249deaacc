"""A command that waits for a procedure goes on while its daemon is killed and started again."""

from __future__ import annotations

import asyncio
import json

import pytest

from cli.exit_codes import Exit
from tests.kit.polling import eventually
from tests.real.cluster.scene import TOPIC, Scene, leaders, regent, succeeds

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def is_marked(stage: Scene) -> bool:
    [status] = json.loads(await succeeds(stage.daemon, "status", "-o", "json"))["items"]
    return bool(status.get("drainedBrokers") == [2])


@pytest.mark.seed("S2-4", "S2-13", "S2-33", "S2-37")
async def test_a_waiting_drain_ends_with_its_result_after_a_kill_in_its_middle(stage: Scene) -> None:
    await succeeds(stage.daemon, "pause")
    waiting = asyncio.create_task(regent(stage.daemon, "drain", "2", "--wait", "--timeout", "120", "-o", "json"))
    await eventually(lambda: is_marked(stage), 60.0)
    led = [name for name, leader in leaders(await stage.w.states()).items() if leader == 2]
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    assert not waiting.done()
    await succeeds(stage.daemon, "resume")
    code, out, err = await waiting
    assert code == Exit.DONE, err
    [ended] = json.loads(out)["items"]
    assert (ended["kind"], ended["state"]) == ("drain", "success")
    assert ended["result"] == f"{len(led)} of {len(led)} leaders moved"
    assert 2 not in [leader for (topic, _), leader in leaders(await stage.w.states()).items() if topic == TOPIC]
    await succeeds(stage.daemon, "undrain", "2")
    await stage.proven()
