"""Runs a cluster under regent and under load for the tests of faults, and proves after each that nothing is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from cli.demo.process import RegentProcess
from cli.exit_codes import Exit
from metadata_store import paths
from state_machines.model.types import Leadership
from testing.embedded.load import REQUEST_S_MAX, Load, Reader
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually

TOPIC = "orders"
PARTITIONS = 12
RATE_PER_S = 300
FLOWING_S = 0.5
"""Records flow again once none waits longer for its acknowledgement."""

State = tuple[tuple[int, ...], Leadership | None]


@dataclass
class Scene:
    """Holds a cluster, its daemon, and clients that write (acks=all) and read records all the time."""

    w: ClusterWorld
    daemon: RegentProcess
    load: Load
    reader: Reader

    async def restart_with(self, settings: Mapping[str, object], mode: str = "active") -> None:
        """Stops the daemon and boots it with other settings."""
        await self.daemon.stop()
        self.daemon.configure(settings)
        await self.daemon.boot(mode)

    async def standby(self, settings: Mapping[str, object] | None = None) -> RegentProcess:
        """Boots another daemon, which stands by."""
        second = self.w.daemon(settings=dict(settings or {}))
        await second.boot("standby")
        return second

    async def active(self, within_s: float = 60.0) -> int:
        """Waits until the daemon is active and ``/controller`` names it; returns its epoch."""

        async def seated() -> int:
            status = await self.daemon.status()
            here = status is not None and status["mode"] == "active" and await self.w.controller() == self.daemon.id
            return int(status["controllerEpoch"]) if here and status is not None else 0

        return await eventually(seated, within_s)

    async def metric(self, name: str, daemon: RegentProcess | None = None) -> float:
        """Reads a metric without labels."""
        return (await (daemon or self.daemon).metric(name))[""]

    async def flows(self, within_s: float = 60.0) -> None:
        """Waits until every partition has acknowledged a record that was sent from now on."""
        begin = self.load.ledger.sent
        await eventually(lambda: self.load.acknowledged_since(begin), within_s)
        await eventually(lambda: self.load.oldest().seconds < FLOWING_S, within_s)

    async def delete(self, topic: str, within_s: float = 60.0) -> None:
        """Marks a topic for deletion and waits until nothing is left of it."""
        await self.w.zk.create(paths.deletion(topic), None)
        await eventually(lambda: self.gone(topic), within_s)

    async def gone(self, topic: str) -> bool:
        """Returns whether nothing of a topic is left in ZooKeeper and on the brokers."""
        last = (paths.topic(topic), paths.topic_config(topic), paths.deletion(topic))
        return not any([await self.w.zk.exists(path) for path in last]) and not self.w.hosting(topic)

    async def proven(self) -> None:
        """Waits until records flow, replicas are in sync, all acknowledged records were read, and metadata agree."""
        await self.flows()
        await self.w.healed()
        await everything_read(self.load, self.reader)
        await agreed(self.daemon)

    async def settled(self) -> None:
        """Waits after an outage of ZooKeeper until every broker is registered, the daemon active and all is proven."""

        async def all_registered() -> bool:
            return await self.w.cluster.registered() == set(self.w.cluster.brokers)

        await eventually(all_registered, 90.0)
        await self.w.reconnected()
        await self.active(90.0)
        await self.proven()

    async def restored(self) -> None:
        """Boots processes that a failed test left down, so that one failure does not become many."""
        for broker in self.w.cluster.brokers:
            if not self.w.cluster.brokers[broker].running:
                await self.w.cluster.revive(broker)
        if not self.daemon.running:
            await self.daemon.boot()
        await self.active()
        await self.w.healed()


async def everything_read(load: Load, reader: Reader, within_s: float = 60.0) -> None:
    """Waits until all records acknowledged by now were read, while the load goes on."""
    expected = {spot: set(numbers) for spot, numbers in load.ledger.acknowledged.items()}
    assert sum(map(len, expected.values())) > len(load.spots), "nothing was acknowledged"

    def complete() -> bool:
        lost = reader.unread(expected)
        assert not lost, f"acknowledged and not read: {lost}"
        return True

    await eventually(complete, within_s)


async def agreed(daemon: RegentProcess, within_s: float = 60.0) -> None:
    """Waits until ``regent verify`` finds ZooKeeper, the daemon's memory and every broker's metadata in agreement."""

    async def clean() -> bool:
        try:
            [found] = (await daemon.get("/v1/verification"))["items"]
        except httpx.HTTPError as error:
            raise AssertionError(f"no verification: {error!r}") from error
        assert not found["differencesTotal"], found["differences"]
        assert not found.get("unreachable"), found
        return True

    await eventually(clean, within_s)


async def regent(daemon: RegentProcess, *arguments: str) -> tuple[int, str, str]:
    """Runs a command with the daemon's settings; returns exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", *arguments, "--config", str(daemon.config),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return await process.wait(), out.decode(), err.decode()


async def succeeds(daemon: RegentProcess, *arguments: str) -> str:
    """Runs a command that must end with exit code 0; returns its standard output."""
    code, out, err = await regent(daemon, *arguments)
    assert code == Exit.DONE, (arguments, code, out, err)
    return out


def leaders(states: Mapping[tuple[str, int], State]) -> dict[tuple[str, int], int]:
    """Returns the leader of each partition, -1 where it has none."""
    return {name: -1 if state is None else state.leader for name, (_, state) in states.items()}


@asynccontextmanager
async def scene(
    *,
    brokers: int = 3,
    partitions: int = PARTITIONS,
    rate_per_s: int = RATE_PER_S,
    idempotent: bool = True,
    request_s_max: float = REQUEST_S_MAX,
    flags: Sequence[str] = ("--takeover",),
    settings: Mapping[str, object] | None = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> AsyncIterator[Scene]:
    """Boots a cluster whose controller is a daemon; ``settings`` are the daemon's, ``options`` go to every broker.

    Where brokers freeze set ``idempotent=False``: a frozen leader that wakes responds with outdated metadata, and an
    idempotent producer does not recover from the refused sequence numbers.
    """
    async with AsyncExitStack() as stack:
        w = await stack.enter_async_context(world(brokers, partitions=partitions, **options))
        daemon = w.daemon(flags=flags, settings=dict(settings or {}), command=command)
        await daemon.boot()
        load = Load(
            w.cluster.bootstrap,
            {TOPIC: partitions},
            rate_per_s=rate_per_s,
            idempotent=idempotent,
            request_s_max=request_s_max,
        )
        await stack.enter_async_context(load)
        reader = await stack.enter_async_context(Reader(w.cluster.bootstrap, load))
        made = Scene(w, daemon, load, reader)
        await made.flows()
        await w.healed()
        yield made
        await load.stop()
        verdict = await reader.verdict()
        assert verdict.lost == [], verdict


async def through_a_failover(stage: Scene, kind: str, *command: str, code: Exit = Exit.DONE) -> dict[str, object]:
    """Kills the daemon once the command's procedure is durable, boots it again; returns the procedure at the end."""
    before = await pids(stage, kind)
    waiting = asyncio.ensure_future(regent(stage.daemon, *command, "--wait", "-o", "json"))
    await eventually(lambda: begun(stage, kind, before, waiting), 60.0)
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    found, out, err = await asyncio.wait_for(waiting, 120.0)
    assert found == code, (command, found, out, err)
    item: dict[str, object] = json.loads(out)["items"][0]
    return item


async def begun(stage: Scene, kind: str, before: set[int], waiting: asyncio.Future[tuple[int, str, str]]) -> bool:
    """Returns whether a further procedure of a kind is listed, or the command has ended."""
    return waiting.done() or bool(await pids(stage, kind) - before)


async def pids(stage: Scene, kind: str) -> set[int]:
    """Returns the pids of procedures of a kind, with kept results."""
    items = (await stage.daemon.get("/v1/procedures"))["items"]
    return {item["pid"] for item in items if item["kind"] == kind}
