"""The Kafka role is handed back, and taken again, while servers open regions: the regions stay with their daemon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion, RegionService
from testing.embedded.process import free_port
from tests.kit.cluster.scene import Scene, succeeds
from tests.kit.deadlines import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")

REGIONS = 12


class Gated(RegionService):
    """A service whose opens wait until the test lets them end."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.opening: set[int] = set()
        self._gate = gate

    async def open(self, region: OpenedRegion) -> int:
        self.opening.add(region.region)
        await self._gate.wait()
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Closes it."""


async def listed(stage: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await stage.daemon.get("/v1/regions/list"))["items"]
    return found


async def owners(stage: Scene) -> list[tuple[int, str, int]]:
    """Returns the regions with their servers and tokens, once all are open."""

    async def opened() -> list[dict[str, Any]]:
        found = await listed(stage)
        assert [one["state"] for one in found] == ["OPEN"] * REGIONS
        return found

    return [(one["id"], one["server"], one["token"]) for one in await eventually(opened, 60.0)]


async def test_a_handback_in_mid_assignment_leaves_the_regions_alone(stage: Scene) -> None:
    port, gate = free_port(), asyncio.Event()
    kept = stage.w.hold() | {
        "controller.on_absence": "brokers"
    }  # znodes of an earlier test are open to this digest alone
    regions = {"regions.host": "127.0.0.1", "regions.port": port, "regions.startup_wait_ms": 0}
    await stage.restart_with(kept | regions)
    services = [Gated(gate), Gated(gate)]
    agents = [
        Agent(one, AgentOptions((("127.0.0.1", port),), f"s{number}", f"s{number}:7000", side_by_side_max=REGIONS))
        for number, one in enumerate(services, 1)
    ]
    try:
        await asyncio.gather(*(agent.start() for agent in agents))
        await _story(stage, agents, services, gate)
    finally:
        gate.set()
        await asyncio.gather(*(agent.stop() for agent in agents))
        await stage.restart_with(kept)
    await stage.proven()


async def _story(stage: Scene, agents: list[Agent], services: list[Gated], gate: asyncio.Event) -> None:
    await stage.active()
    [begun] = (await stage.daemon.post("/v1/regions/tables", {"name": "t", "uniform": REGIONS}))["items"]
    await eventually(lambda: sum(len(one.opening) for one in services) == REGIONS)
    await succeeds(stage.daemon, "handback", "--yes", "--wait", "--reason", "a test")
    assert await stage.w.broker_controls() in stage.w.cluster.brokers
    await eventually(lambda: stage.daemon.is_in("standby"), 10.0)
    [status] = (await stage.daemon.get("/v1/regions"))["items"]
    assert (status["mode"], status["epoch"]) == ("active", 1)
    assert {one["state"] for one in await listed(stage)} == {"OPENING"}
    gate.set()
    before = await owners(stage)
    [made] = (await stage.daemon.get(f"/v1/regions/procedures/{begun['pid']}", waitS=30))["items"]
    assert made["state"] == "success"
    await succeeds(stage.daemon, "takeover", "--yes", "--wait", "--reason", "a test")
    await stage.active()
    assert await owners(stage) == before, "no region moved, and none was opened again"
    await succeeds(stage.daemon, "servers", "drain", "s1", "--wait")
    assert {server for _, server, _ in await owners(stage)} == {"s2"}
    assert not any(agent.died.is_set() for agent in agents)
    [status] = (await stage.daemon.get("/v1/regions"))["items"]
    assert (status["mode"], status["epoch"]) == ("active", 1)
