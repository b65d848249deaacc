"""Runs a process of simulated brokers, and plays one story for two controllers: regent and Kafka's own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from metadata_store.kafka_store import KafkaStore
from metadata_store.kazoo_adapter import KazooZooKeeper
from state_machines.model.types import Leadership
from testing.embedded.process import ChildProcess
from testing.znodes import create_topic
from tests.kit.deadlines import eventually

FIRST, COUNT, REPLICAS = 11, 4, 3
TOPICS = {"orders": 12, "payments": 5}


class Brokers(ChildProcess):
    """Runs the process and sends it commands over its socket."""

    def __init__(self, folder: Path, connect: str, *flags: str) -> None:
        self.socket = folder / "control.sock"
        command = [sys.executable, "-m", "testing.simulated", "--zookeeper", connect, "--brokers"]
        command += [f"{FIRST}-{FIRST + COUNT - 1}"]
        super().__init__("simulated brokers", [*command, "--control", str(self.socket), *flags], folder / "brokers.log")

    async def boot(self) -> None:
        async def responds() -> bool:
            return self.socket.exists() and "brokers" in await self.send("stats")

        await self.start(responds)

    async def send(self, command: str, **fields: Any) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        writer.write(json.dumps({"do": command, **fields}).encode() + b"\n")
        response = json.loads(await reader.readline())
        writer.close()
        return dict(response)

    async def state(self) -> dict[str, dict[str, Any]]:
        return dict((await self.send("stats"))["brokers"])


@asynccontextmanager
async def brokers(connect: str, folder: Path, *flags: str) -> AsyncIterator[tuple[Brokers, KazooZooKeeper]]:
    process = Brokers(folder, connect, *flags)
    zk = KazooZooKeeper(connect, session_timeout_ms=20_000)
    try:
        await process.boot()
        await zk.connect(10.0)
        yield process, zk
    finally:
        await zk.close()
        await process.kill()


async def all_is_sent(process: Brokers, zk: KazooZooKeeper, controller: int) -> None:
    """Plays the story: topics appear, a broker dies, returns, catches up and shuts down.

    After each step the metadata and replicas of all brokers must equal ZooKeeper's content.
    """
    store = KafkaStore(zk)
    for topic, partitions in TOPICS.items():
        placed = {p: [FIRST + (p + r) % COUNT for r in range(REPLICAS)] for p in range(partitions)}
        await create_topic(store.zk, topic, placed)
    await eventually(lambda: _agrees(process), 30.0)

    await process.send("mark")
    await process.send("die", brokers=[FIRST + 1])
    await eventually(lambda: _agrees(process), 30.0)
    missing = [state for state in await _states(store) if len(state.isr) < REPLICAS]
    assert len(missing) > sum(TOPICS.values()) / 2
    counted = (await process.state())[str(FIRST)]["LEADER_AND_ISR"]
    assert counted["requests"] > 0
    assert counted["refused"] == 0

    await process.send("register", brokers=[FIRST + 1])
    await eventually(lambda: _agrees(process), 30.0)
    assert (await process.send("catch_up"))["changes"] == len(missing)
    assert all(len(state.isr) == REPLICAS for state in await _states(store))
    await eventually(lambda: _metadata_agrees(process), 30.0)

    response = await process.send("shutdown", broker=FIRST + 2)
    assert (response["error_code"], response["remaining"]) == (0, 0)
    assert response["received_ns"] > response["at_ns"]
    await eventually(lambda: _metadata_agrees(process, leaving=[FIRST + 2]), 30.0)
    digests = (await process.send("digest"))["brokers"]
    assert len({tuple(found["metadata"]) for found in digests.values()}) == 1
    assert {found["controller"] for found in digests.values()} == {controller}
    file = process.socket.with_suffix(".txt")
    await process.send("dump", broker=FIRST, file=str(file))
    assert len(file.read_text().splitlines()) > sum(TOPICS.values())


async def _states(store: KafkaStore) -> list[Leadership]:
    found = await store.load_states([(topic, p) for topic, count in TOPICS.items() for p in range(count)])
    return [state for state in found if isinstance(state, Leadership)]


async def _wrong(process: Brokers, leaving: Sequence[int]) -> list[str]:
    """Returns the differences of brokers' views from ZooKeeper, which holds all partitions."""
    found = await process.send("compare", leaving=list(leaving))
    assert found["partitions"] == sum(TOPICS.values())
    return [f"broker {broker}: {line}" for broker, lines in found["wrong"].items() for line in lines]


async def _agrees(process: Brokers) -> bool:
    assert await _wrong(process, ()) == []
    return True


async def _metadata_agrees(process: Brokers, leaving: Sequence[int] = ()) -> bool:
    """Checks that the metadata agree, after ISR changes that leaders requested.

    The controller sends a leader no LeaderAndIsr for its own change, so a lean broker's led partitions are older.
    """
    assert [line for line in await _wrong(process, leaving) if ": led of " not in line] == []
    return True
