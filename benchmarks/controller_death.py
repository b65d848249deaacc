"""Measures the death of the active controller (kill -9) of a real cluster, until every broker names its successor.

Three real brokers and one ZooKeeper have sessions of 6 s. regent has two daemons, in both modes of absence. With
Kafka's own controller a broker is killed, so that two remain. Brokers name the successor in their responses to
Metadata, which comes from the UpdateMetadata that the new controller sent them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final

from benchmarks.arena import say
from benchmarks.results import Row, Sample
from brokers.client import BrokerCallFailed, BrokerClient
from testing.embedded.kafka import SESSION_MS
from tests.kit.cluster.world import ClusterWorld, world

POLL_S: Final = 0.01
TOLD_S_MAX: Final = 60.0
TOPIC_PARTITIONS: Final = 60
MODES: Final = ("brokers", "hold")


async def deaths(rounds: int) -> list[Row]:
    """Returns one row per mode; each of the three has its cluster and ``rounds`` deaths."""
    ours = {mode: await _under_regent(mode, rounds) for mode in MODES}
    theirs = await _under_kafka(rounds)
    size = f"3 brokers, sessions of {SESSION_MS // 1000} s"
    return [
        Row(
            f"K-{mode}",
            size,
            f"controller killed until every broker names the next ({mode})",
            "s",
            Sample.of(taken),
            Sample.of(theirs),
        )
        for mode, taken in ours.items()
    ]


async def _under_regent(mode: str, rounds: int) -> list[float]:
    taken: list[float] = []
    async with world(3, partitions=TOPIC_PARTITIONS) as w:
        settings: dict[str, object] = {"controller.on_absence": mode}
        if mode == "hold":
            settings |= w.hold()
        active = w.daemon(flags=["--takeover"], settings=settings)
        await active.boot()
        standby = w.daemon(settings=settings)
        await standby.boot("standby")
        async with _watching(w, w.cluster.brokers) as brokers:
            for number in range(rounds):
                await _named(brokers, active.id)
                began_s = time.monotonic()
                await active.kill()
                taken.append(await _named(brokers, standby.id) - began_s)
                say(f"daemon killed, {mode}, {number + 1}: {taken[-1]:.2f} s")
                await active.boot("standby")
                active, standby = standby, active
    return taken


async def _under_kafka(rounds: int) -> list[float]:
    taken: list[float] = []
    async with world(3, partitions=TOPIC_PARTITIONS) as w:
        for number in range(rounds):
            holder = await w.broker_controls()
            rest = [broker for broker in w.cluster.brokers if broker != holder]
            async with _watching(w, rest) as brokers:
                await _named(brokers, holder)
                began_s = time.monotonic()
                await w.cluster.brokers[holder].kill()
                taken.append(await _named(brokers, *rest) - began_s)
            say(f"Kafka's controller killed, {number + 1}: {taken[-1]:.2f} s")
            await w.cluster.revive(holder)
    return taken


@asynccontextmanager
async def _watching(w: ClusterWorld, ids: Collection[int]) -> AsyncIterator[Mapping[int, BrokerClient]]:
    clients = {b: await BrokerClient.connect("127.0.0.1", w.cluster.brokers[b].client_port) for b in ids}
    try:
        yield clients
    finally:
        for client in clients.values():
            client.close()


async def _named(brokers: Mapping[int, BrokerClient], *wanted: int) -> float:
    """Waits until all of them name one of ``wanted``; returns the time of the last one."""

    async def told(client: BrokerClient) -> float:
        async with asyncio.timeout(TOLD_S_MAX):
            while True:
                if await _controller(client) in wanted:
                    return time.monotonic()
                await asyncio.sleep(POLL_S)

    return max(await asyncio.gather(*map(told, brokers.values())))


async def _controller(client: BrokerClient) -> int:
    try:
        return (await client.metadata([])).controller_id
    except BrokerCallFailed:
        return -1
