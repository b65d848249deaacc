"""Kills and freezes of the active daemon at random moments, while brokers restart, under acks=all load."""

from __future__ import annotations

import asyncio
import os
import random
import uuid

import pytest

from cli.demo.process import RegentProcess
from controller.process.stall_guard import STALLED_EXIT
from testing.znodes import create_topic
from tests.real.cluster.scene import Scene, agreed, everything_read, scene

ROUNDS = 8
FREEZE_S_MAX = 9.0
"""Short freezes are slept through, longer ones cost the process, the longest the session (6 s) too."""


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-75", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", ["3.9-IV0", "2.7-IV1"])
async def test_no_acknowledged_record_is_lost_when_daemons_die_and_freeze_at_random_moments(ibp: str) -> None:
    seed = int(os.environ.get("REGENT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"REGENT_SEED={seed} repeats this run")
    chance = random.Random(seed)
    settings = {"controller.ibp": ibp}
    async with scene(ibp=ibp, settings=settings, partitions=30, request_s_max=120, idempotent=False) as stage:
        daemons = [stage.daemon, stage.w.daemon(settings=settings)]
        await daemons[1].boot("standby")
        epoch = await stage.w.epoch()
        for _ in range(ROUNDS):
            active = await stage.w.active_of(daemons)
            await asyncio.gather(happening(stage, chance), fault(active, chance))
            for daemon in daemons:
                if not daemon.running:
                    await daemon.boot(None)
            active = await stage.w.active_of(daemons)
            await stage.flows(90.0)
            await stage.w.healed(90.0)
            await everything_read(stage.load, stage.reader)
            await agreed(active)
            assert await stage.w.epoch() >= epoch, "epochs never go back"
            epoch = await stage.w.epoch()


async def fault(daemon: RegentProcess, chance: random.Random) -> None:
    """Kills or freezes the daemon after a random wait."""
    await asyncio.sleep(chance.uniform(0.0, 1.0))
    if chance.random() < 0.5:
        await daemon.kill()
        return
    daemon.pause()
    await asyncio.sleep(chance.choice([0.3, 1.5, chance.uniform(2.6, FREEZE_S_MAX)]))
    daemon.resume()
    if await daemon.ended(3.0):
        assert daemon.exit_code == STALLED_EXIT


async def happening(stage: Scene, chance: random.Random) -> None:
    """Causes an event that a controller decides about."""
    brokers = stage.w.cluster.brokers
    broker = brokers[chance.choice(list(brokers))]
    match chance.choice(["topic", "stop", "kill", "freeze"]):
        case "topic":
            replicas = {p: chance.sample(list(brokers), 3) for p in range(20)}
            await create_topic(stage.w.zk, f"t-{uuid.uuid4().hex[:6]}", replicas)
        case "stop":
            await broker.stop()
            await broker.boot()
        case "kill":
            await broker.kill()
            await stage.w.cluster.revive(broker.id)
        case "freeze":
            broker.pause()
            await asyncio.sleep(chance.uniform(1.0, FREEZE_S_MAX))
            broker.resume()
