"""An ensemble of three ZooKeeper servers, each of them frozen, killed and restarted in turn, under acks=all load."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from controller.role.own_znodes import LOCKS
from metadata_store import paths
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from testing.embedded.load import Load
from testing.embedded.process import free_port
from testing.embedded.zookeeper import EmbeddedZooKeeper, in_sync
from tests.kit.cluster.scene import PARTITIONS, RATE_PER_S, TOPIC, Scene, scene
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Opens
from tests.verify.system import PATIENT, Times

SERVERS = {"tick_ms": 500, "session_ms_max": 20_000}
KAFKA_SESSION_MS = 18_000
"""The brokers' session, as Kafka has it by default: they, too, leave a frozen server."""

SLOW_SERVERS = {"tick_ms": 2_000, "session_ms_max": 40_000}
"""A frozen leader is replaced after 8 s: longer than the lease of :data:`SHORT`, and than its session."""
SHORT = {"zookeeper.session_timeout_ms": 6_000, "controller.loop_stall_ms_max": 2_700}
FROZEN_S = 12.0
REGIONS = 4
ROUNDS = int(os.environ.get("REGENT_ENSEMBLE_ROUNDS", "1"))
"""Rounds in which each server freezes once."""

Fault = Callable[[EmbeddedZooKeeper, Scene, int], Awaitable[None]]
"""A fault of a server, until the daemon's session is at another one and records flow."""


async def frozen(server: EmbeddedZooKeeper, stage: Scene, session: int) -> None:
    server.pause()
    await left_by_daemon(server, stage, session)
    server.resume()


async def killed(server: EmbeddedZooKeeper, stage: Scene, session: int) -> None:
    await server.kill()
    await left_by_daemon(server, stage, session)
    await server.boot()


async def restarted(server: EmbeddedZooKeeper, stage: Scene, session: int) -> None:
    await server.stop()
    await left_by_daemon(server, stage, session)
    await server.boot()


async def session_of_daemon(stage: Scene) -> int:
    """Returns the session that holds the daemon's position in the queue."""
    listed = await stage.w.zk.children(LOCKS)
    assert listed is not None
    [name] = listed[0]
    stat = await stage.w.zk.exists(f"{LOCKS}/{name}")
    assert stat is not None
    return stat.ephemeral_owner


async def server_of(session: int, servers: list[EmbeddedZooKeeper]) -> EmbeddedZooKeeper | None:
    """Returns the server that has the connection of a session."""
    for server in servers:
        if f"sid=0x{session:x}" in await server.query("cons"):
            return server
    return None


async def left_by_daemon(server: EmbeddedZooKeeper, stage: Scene, session: int) -> None:
    """Waits until the daemon's session is at another server, and records flow."""
    others = [other for other in stage.w.cluster.zookeepers if other is not server]

    async def elsewhere() -> bool:
        return await server_of(session, others) is not None

    await eventually(elsewhere, 30.0)
    await stage.flows()


@pytest.mark.timeout(420)
@pytest.mark.parametrize("fault", [frozen, killed, restarted], ids=lambda fault: fault.__name__)
async def test_the_epoch_is_kept_whichever_server_fails(fault: Fault) -> None:
    """The server of the daemon fails first, then the others."""
    async with scene(
        zookeepers=3,
        zookeeper_options=SERVERS,
        settings=PATIENT,
        request_s_max=120,
        properties={"zookeeper.session.timeout.ms": KAFKA_SESSION_MS},
    ) as stage:
        times = Times(f"ensemble: {fault.__name__}")
        servers, epoch, session = stage.w.cluster.zookeepers, await stage.active(), await session_of_daemon(stage)
        own = await server_of(session, servers)
        assert own is not None
        for server in [own, *(server for server in servers if server is not own)]:
            place = "the daemon's server" if await server_of(session, servers) is server else "another server"
            mode = (await server.query("srvr")).partition("Mode: ")[2].split("\n")[0]
            stage.load.take_stall()
            await fault(server, stage, session)
            await eventually(lambda: in_sync(servers), 90.0)
            await stage.settled()
            times.note(f"longest wait of a record, {place} ({mode})", round(stage.load.take_stall().seconds, 2))
            assert await stage.active() == epoch, f"a new term: {stage.daemon.log_tail()}"
            assert await session_of_daemon(stage) == session


@asynccontextmanager
async def regions_of(stage: Scene, port: int) -> AsyncIterator[Agent]:
    """Creates a table of regions on one server, whose agent it returns."""
    agent = Agent(Opens(), AgentOptions((("127.0.0.1", port),), "s1", "s1:7000"))
    await agent.start()
    try:
        await stage.daemon.post("/v1/regions/tables", {"name": "t", "uniform": REGIONS})
        yield agent
    finally:
        await agent.stop()


async def owned(stage: Scene, agent: Agent) -> tuple[int, list[tuple[int, str, int]]]:
    """Waits until all regions are open and owned; returns the epoch of their domain, with servers and tokens."""

    async def opened() -> tuple[int, list[tuple[int, str, int]]]:
        [status] = (await stage.daemon.get("/v1/regions"))["items"]
        found = (await stage.daemon.get("/v1/regions/list"))["items"]
        assert (status["mode"], [one["state"] for one in found]) == ("active", ["OPEN"] * REGIONS)
        assert all(agent.owns(one["id"]) for one in found)
        return status["epoch"], [(one["id"], one["server"], one["token"]) for one in found]

    return await eventually(opened, 60.0)


async def longest_standstill(stage: Scene, seconds: float) -> float:
    """Looks at the daemon for some time; returns how long its term stood still, with readiness and status agreeing."""
    longest_s, loop = 0.0, asyncio.get_running_loop()
    ends_s = loop.time() + seconds
    while loop.time() < ends_s:
        still_s = await stage.metric("regent_standstill_seconds")
        status = await stage.daemon.status() if still_s > longest_s else None
        if status is not None and "since the lease ran out" in status["why"]:
            assert status["mode"] == "suspended"
            assert "goes on once ZooKeeper answers" in status["health"][0]
        longest_s = max(longest_s, still_s)
        await asyncio.sleep(0.25)
    return longest_s


@pytest.mark.timeout(420 + 240 * ROUNDS)
async def test_a_server_frozen_for_longer_than_lease_and_session_costs_no_term() -> None:
    """No server serves while a frozen leader is not replaced, so no session ends: both domains go on."""
    port = free_port()
    regions = {"regions.store": "zookeeper", "regions.host": "127.0.0.1", "regions.port": port}
    async with (
        scene(
            zookeepers=3,
            zookeeper_options=SLOW_SERVERS,
            settings=SHORT | regions | {"regions.startup_wait_ms": 0},
            request_s_max=120,
            properties={"zookeeper.session.timeout.ms": KAFKA_SESSION_MS},
        ) as stage,
        regions_of(stage, port) as agent,
    ):
        times = Times("ensemble: frozen for 12 s")
        servers, epoch, session = stage.w.cluster.zookeepers, await stage.active(), await session_of_daemon(stage)
        stood_still_s, domain = 0.0, await owned(stage, agent)
        for server in servers * ROUNDS:
            mode = (await server.query("srvr")).partition("Mode: ")[2].split("\n")[0]
            stage.load.take_stall()
            server.pause()
            still_s = await longest_standstill(stage, FROZEN_S)
            server.resume()
            await eventually(lambda: in_sync(servers), 90.0)
            await stage.settled()
            times.note(f"longest wait of a record ({mode})", round(stage.load.take_stall().seconds, 2))
            times.note(f"lease over for ({mode})", round(still_s, 2))
            assert await stage.active() == epoch, f"a new term: {stage.daemon.log_tail()}"
            assert await session_of_daemon(stage) == session
            assert await owned(stage, agent) == domain, "another term of the regions' domain, or other owners"
            stood_still_s = max(stood_still_s, still_s)
        times.note("terms", str(int(await stage.metric("regent_terms_total"))))
        times.note("leases that ran out", str(int(await stage.metric("regent_standstills_total"))))
        assert stood_still_s > 0.0, "no lease ran out: the leader was replaced too early for this test"


async def kafka_epoch(w: ClusterWorld) -> int:
    node = await w.zk.get(paths.CONTROLLER_EPOCH)
    assert node is not None
    return int(node.data or b"0")


async def flow(load: Load) -> None:
    """Waits until every partition has acknowledged a record that was sent from now on."""
    begin = load.ledger.sent
    await eventually(lambda: load.acknowledged_since(begin), 60.0)


@pytest.mark.timeout(420 + 240 * ROUNDS)
async def test_terms_of_kafkas_own_controller_under_the_same_freezes_are_noted() -> None:
    """The same faults without a daemon, and brokers with its session: figures beside its own, nothing is asserted."""
    async with world(
        3,
        zookeepers=3,
        zookeeper_options=SLOW_SERVERS,
        partitions=PARTITIONS,
        properties={"zookeeper.session.timeout.ms": SHORT["zookeeper.session_timeout_ms"]},
    ) as w:
        times = Times("ensemble: frozen for 12 s, Kafka's own controller")
        servers, epoch = w.cluster.zookeepers, await kafka_epoch(w)
        async with Load(w.cluster.bootstrap, {TOPIC: PARTITIONS}, rate_per_s=RATE_PER_S, request_s_max=120) as load:
            for server in servers * ROUNDS:
                mode = (await server.query("srvr")).partition("Mode: ")[2].split("\n")[0]
                await flow(load)
                load.take_stall()
                server.pause()
                await asyncio.sleep(FROZEN_S)
                server.resume()
                await eventually(lambda: in_sync(servers), 90.0)
                await flow(load)
                times.note(f"longest wait of a record ({mode})", round(load.take_stall().seconds, 2))
            await w.reconnected()
            times.note("elections", str(await kafka_epoch(w) - epoch))
