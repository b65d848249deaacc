"""kill -9 of the daemon right before and right after each kind of write is applied: the next term makes it good."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Awaitable, Callable

import pytest

from testing.znodes import create_topic, expand_topic
from tests.cluster.lossy import LossyProxy, proxied
from tests.cluster.scene import Scene
from tests.polling import eventually

Happening = Callable[[Scene], Awaitable[object]]


async def topic(stage: Scene) -> None:
    await create_topic(stage.w.zk, f"born-{uuid.uuid4().hex[:6]}", {0: [1, 2, 3], 1: [3, 1, 2]})


async def more_partitions(stage: Scene) -> None:
    await expand_topic(stage.w.zk, "grows", (2, 3, 1))


async def clean_stop(stage: Scene) -> None:
    await stage.w.cluster.brokers[3].stop()


async def return_of_a_broker(stage: Scene) -> None:
    await stage.w.cluster.brokers[3].boot()


async def death(stage: Scene) -> None:
    await stage.w.cluster.brokers[2].kill()


async def restart(stage: Scene) -> None:
    """A term's first decision: broker 2 is gone when it begins."""
    await stage.daemon.kill()
    await stage.w.cluster.brokers[2].kill()
    await stage.daemon.start(_answers, 30.0)


async def claim(stage: Scene) -> None:
    await stage.daemon.kill()
    await stage.daemon.start(_answers, 30.0)


async def _answers() -> bool:
    return True


WRITES: list[tuple[str, str, Happening]] = [
    ("the topic id", "/brokers/topics/born", topic),
    ("the states of a new topic", "/partitions/1/state", topic),
    ("the state of an added partition", "/topics/grows/partitions", more_partitions),
    ("a controlled shutdown", "/state", clean_stop),
    ("ISR changes", "/state", return_of_a_broker),
    ("a broker's death", "/state", death),
    ("a term's first decision", "/state", restart),
    ("a claim", "/controller_epoch", claim),
]


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-75", "S4-77", "S4-79", "S4-86")
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_kill_at_each_kind_of_write_is_made_good(before: bool) -> None:
    async with proxied() as (stage, proxy):
        await create_topic(stage.w.zk, "grows", {0: [1, 2, 3]})
        await stage.w.healed()
        for what, names, happening in WRITES:
            proxy.strike(names, lambda: killed(stage), before=before)
            await happening(stage)
            await eventually(lambda: struck(proxy, stage), 60.0)
            assert await stage.daemon.ended(10.0), what
            await stage.daemon.boot()
            for broker in stage.w.cluster.brokers:
                if not stage.w.cluster.brokers[broker].running and happening is not clean_stop:
                    await stage.w.cluster.revive(broker)
            if happening is not clean_stop:  # the next one lets that broker come back
                await stage.proven()


def killed(stage: Scene) -> None:
    os.kill(stage.daemon.pid, signal.SIGKILL)


def struck(proxy: LossyProxy, stage: Scene) -> bool:
    return not proxy.armed and not stage.daemon.running
