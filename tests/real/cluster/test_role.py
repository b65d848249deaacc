"""Commands of an operator move the role to a broker and back under acks=all load."""

from __future__ import annotations

import json

import pytest

from cli.exit_codes import Exit
from controller.role import own_znodes as own
from tests.kit.cluster.scene import Scene, leaders, regent, succeeds
from tests.kit.deadlines import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def taken_over(stage: Scene) -> None:
    """Runs ``regent takeover`` beside a standby; the broker that was the controller resigns."""
    out = await succeeds(stage.daemon, "takeover", "--yes", "--wait", "--reason", "a test")
    assert f"daemon {stage.daemon.id} holds the role" in out
    await stage.active()


@pytest.mark.seed("S4-76", "S4-77", "S4-86")
async def test_handback_and_takeover_under_load_move_no_leader(stage: Scene) -> None:
    epoch, before = await stage.active(), leaders(await stage.w.states())
    out = await succeeds(stage.daemon, "handback", "--yes", "--wait", "--reason", "a test")
    holder = await stage.w.broker_controls()
    assert f"broker {holder} holds the role, every broker knows" in out
    assert await stage.w.epoch() == epoch + 1
    assert json.loads((await stage.w.zk.get(own.ROLE)).data or b"{}")["reason"] == "a test"  # type: ignore[union-attr]
    await eventually(lambda: stage.daemon.is_in("standby"), 10.0)
    await stage.flows()
    await taken_over(stage)
    assert await stage.w.epoch() == epoch + 2
    after = await stage.w.states()
    moved = {name for name, leader in leaders(after).items() if leader != before[name]}
    assert {name for name in moved if leaders(after)[name] != after[name][0][0]} == set(), (
        "five seconds after its election Kafka's controller moves leaders home; no other leader moves"
    )
    await eventually(lambda: stage.w.cluster.brokers[holder].log_has("Resigned"), 10.0)
    await stage.proven()


@pytest.mark.seed("S4-86")
async def test_an_offline_handback_is_refused_while_a_daemon_lives(stage: Scene) -> None:
    epoch = await stage.active()
    code, _, err = await regent(stage.daemon, "handback", "--offline", "--yes")
    assert (code, "lives" in err) == (Exit.REFUSED, True), "a daemon that lives hands back by itself"
    assert await stage.active() == epoch
    await stage.daemon.kill()
    await stage.w.daemons_gone()
    await succeeds(stage.daemon, "handback", "--offline", "--yes")
    holder = await stage.w.broker_controls()
    modest = stage.w.daemon(settings=stage.w.hold() | {"controller.on_absence": "brokers"})
    await modest.boot("standby")
    assert await stage.w.controller() == holder, "without --takeover a daemon takes nothing from a live broker"
    await modest.stop()
    await stage.daemon.boot()
    await stage.proven()
