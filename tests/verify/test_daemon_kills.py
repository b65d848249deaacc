"""The daemon is killed at each kind of write, and killed or frozen at random moments."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer

from cli.demo.process import RegentProcess
from controller.process.watchdogs import STALLED_EXIT
from metadata_store import paths
from testing.znodes import create_topic, expand_topic
from tests.kit.cluster.lossy import LossyProxy, proxied
from tests.kit.cluster.scene import Scene, agreed, everything_read, scene
from tests.kit.deadlines import eventually


async def topic(stage: Scene) -> None:
    await create_topic(stage.w.zk, f"born-{os.urandom(3).hex()}", {0: [1, 2, 3], 1: [3, 1, 2]})


async def more_partitions(stage: Scene) -> None:
    await expand_topic(stage.w.zk, "grows", (2, 3, 1))


async def clean_stop(stage: Scene) -> None:
    await stage.w.cluster.brokers[3].stop()


async def return_of_a_broker(stage: Scene) -> None:
    await stage.w.cluster.brokers[3].boot()


async def death(stage: Scene) -> None:
    await stage.w.cluster.brokers[2].kill()


async def producer_ids(stage: Scene) -> None:
    """A fresh broker needs a block of producer ids for an idempotent producer."""
    await stage.w.cluster.brokers[1].restart()
    address = stage.w.cluster.brokers[1].address
    async with AIOKafkaProducer(bootstrap_servers=[address], enable_idempotence=True) as producer:
        await producer.send_and_wait("grows", b"x", partition=0)


async def restart(stage: Scene) -> None:
    """A new term decides at once, because broker 2 is gone when it begins."""
    await stage.daemon.kill()
    await stage.w.cluster.brokers[2].kill()
    await stage.daemon.start(_at_once, 30.0)


async def claim(stage: Scene) -> None:
    await stage.daemon.kill()
    await stage.daemon.start(_at_once, 30.0)


async def _at_once() -> bool:
    return True


class Write(NamedTuple):
    """A kind of write: the text that its multi contains, and the event that leads to it."""

    what: str
    text: str
    event: Callable[[Scene], Awaitable[None]]


WRITES = [
    Write("the topic id", "/brokers/topics/born", topic),
    Write("the states of a new topic", "/partitions/1/state", topic),
    Write("the state of an added partition", "/topics/grows/partitions", more_partitions),
    Write("a controlled shutdown", "/state", clean_stop),
    Write("ISR changes", "/state", return_of_a_broker),
    Write("a broker's death", "/state", death),
    Write("a block of producer ids", paths.PRODUCER_IDS, producer_ids),
    Write("a term's first decision", "/state", restart),
    Write("a claim", paths.CONTROLLER_EPOCH, claim),
]


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-75", "S4-76", "S4-77", "S4-79", "S4-80", "S4-86", "S4-87")
@pytest.mark.parametrize("fault", ["killed before", "killed after", "reply lost"])
async def test_every_kind_of_write_survives_a_fault(fault: str) -> None:
    """With ``hold`` no broker decides anything while the daemon is away, however long its restart takes."""
    async with proxied(request_s_max=120) as (stage, proxy):
        await stage.restart_with({**stage.w.hold(), "zookeeper.connect": f"127.0.0.1:{proxy.port}"})
        await create_topic(stage.w.zk, "grows", {0: [1, 2, 3]})
        await stage.w.healed()
        epoch = await stage.active()
        for write in WRITES:
            block = await stage.w.producer_ids()
            if fault == "reply lost":
                await lose_reply(stage, proxy, write)
                if write.event not in (restart, claim):
                    assert await stage.active() == epoch, f"{write.what} cost the role"
            else:
                await kill_daemon(stage, proxy, write, before=fault == "killed before")
            if write.event is clean_stop:  # the next event is the broker's return
                continue
            for broker, process in stage.w.cluster.brokers.items():
                if not process.running:
                    await stage.w.leads_nothing(broker)
                    await stage.w.cluster.revive(broker)
            await stage.active()
            await stage.proven()
            if write.event is producer_ids:
                lost = 0 if fault == "killed before" else 1_000
                assert (await stage.w.producer_ids()).start >= block.start + 1_000 + lost, "it is never allocated twice"


async def lose_reply(stage: Scene, proxy: LossyProxy, write: Write) -> None:
    """Cuts the daemon's connection once the write is applied."""
    before = proxy.lost
    proxy.lose(write.text)
    await write.event(stage)
    await eventually(lambda: not proxy.armed, 60.0)
    assert proxy.lost == before + 1, f"{write.what} was not applied"


async def kill_daemon(stage: Scene, proxy: LossyProxy, write: Write, *, before: bool) -> None:
    """Kills the daemon at the write, and boots it again."""
    proxy.strike(write.text, lambda: os.kill(stage.daemon.pid, signal.SIGKILL), before=before)
    event = asyncio.ensure_future(write.event(stage))
    await eventually(lambda: not proxy.armed and not stage.daemon.running, 60.0)
    assert await stage.daemon.ended(10.0), write.what
    await stage.daemon.boot()
    await event


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
