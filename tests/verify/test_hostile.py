"""Hostile peers attack all listeners: the role and the leases of honest servers hold."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from admin.ports import EndpointLimits
from brokers.listener.inbound import ListenerLimits
from brokers.security.access import access_of
from configs.loading import load
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.scene import Scene, scene
from tests.kit.cluster.secured import Secured
from tests.verify.hostile_peers import BOTH, CONTROLLER, ENDPOINT, SECURED
from tests.verify.hostile_region_peers import REGIONS
from tests.verify.region_siege import REGIONS as REGIONS_OPEN
from tests.verify.region_siege import besieged
from tests.verify.region_siege import table as regions_table
from tests.verify.siege import Siege, plain
from tests.verify.siege_costs import table, total
from tests.verify.system import PATIENT, Times

HEAP_MB = 512
"""Brokers get some of it: a client may send as much to one of them without the endpoint."""
MEMORY_MB_MAX = 500
"""The two reserves of 128 MiB, 64 KiB for each connection, and what a message is when it is read."""
DESCRIPTORS_MORE_MAX = 200
"""Beyond those of its connections: files, brokers, ZooKeeper, and connections that have just given way."""
TOGETHER = ("versions, then nothing", "half of 16 MiB", "tags in an envelope, 16 MiB", "connect and hang up")


@asynccontextmanager
async def siege(test: str, **options: Any) -> AsyncIterator[Siege]:
    """Runs a loaded cluster, its daemon and an admin endpoint, and checks the costs at the end."""
    async with scene(**options) as stage, endpoint(stage.daemon) as at:
        epoch = await stage.active()
        brokers = await stage.w.store.load_brokers()
        loop = asyncio.get_running_loop()
        made = Siege(stage, at, Times(test), plain(), plain(), brokers.brokers[1].epoch, loop)
        try:
            yield made
        finally:
            print(table(made.costs), flush=True)
            made.times.note("new registrations of broker 1", str(made.broker_restarts))
        assert await stage.active() == epoch, "the role was lost"
        assert not stage.daemon.log_has("stood still")
        worst = total(made.costs)
        assert max(worst.memory_mb) <= MEMORY_MB_MAX
        limits = ListenerLimits().connections_max, 2 * EndpointLimits().connections_max  # each has a broker behind it
        for found, most in zip(worst.descriptors, limits, strict=True):
            assert found <= most + DESCRIPTORS_MORE_MAX
        await stage.proven()


async def stops_and_comes_back(stage: Scene, broker: int) -> None:
    """Stops a broker cleanly, with success at its first try, and boots it again."""
    stopped = await stage.w.cluster.brokers[broker].shut_down()
    assert stopped.first_try, stage.daemon.log_tail()
    await stage.w.cluster.brokers[broker].boot()
    await stage.w.healed(120.0)


async def test_brokers_are_served_while_strangers_attack_open_listeners(request: pytest.FixtureRequest) -> None:
    async with siege(request.node.name, settings=PATIENT, heap_mb=HEAP_MB) as s:
        for attack in CONTROLLER:
            await s.endure(attack, s.stage.daemon.port)
        for attack in ENDPOINT:
            await s.endure(attack, s.at.port)
        under_attack = asyncio.gather(*(s.endure(name, s.stage.daemon.port) for name in TOGETHER))
        await stops_and_comes_back(s.stage, 2)
        await under_attack


async def test_brokers_are_served_while_strangers_attack_listeners_with_tls_and_sasl(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    secured = Secured(tmp_path, "SASL_SSL", "PLAIN")
    properties = secured.properties() | {"ssl.client.auth": "requested"}
    settings = (
        PATIENT | secured.settings() | {"admin.client_listener": "INTERNAL", "admin.tls": True, "admin.listed": False}
    )
    async with siege(request.node.name, properties=properties, settings=settings, heap_mb=HEAP_MB) as s:
        transport = access_of(load(s.stage.daemon.config, {}).settings.security).transport
        assert transport is not None
        s.transport = s.client = transport
        for port in (s.stage.daemon.port, s.at.port):
            for attack in (*BOTH, *SECURED):
                await s.endure(attack, port, tls=True)
        await stops_and_comes_back(s.stage, 2)


ATTACK_S = float(os.environ.get("REGENT_ATTACK_S") or 6)
REGIONS_MEMORY_MB_MAX = 350
"""The reserve of 128 MiB, 64 KiB for each connection, and a process of 80 MB."""


async def test_leases_hold_while_strangers_attack_the_port_of_regions() -> None:
    async with besieged() as siege:
        try:
            for attack in REGIONS:
                await siege.endure(attack, ATTACK_S)
        finally:
            print(regions_table(siege.costs), flush=True)
        assert (await siege.fate())["regions"] == REGIONS_OPEN
    for cost in siege.costs:
        assert (cost.suspended, cost.died) == (0, 0), f"honest servers lost their leases: {cost.attack}"
        assert cost.served, f"no honest server was served: {cost.attack}"
        assert cost.memory_mb <= REGIONS_MEMORY_MB_MAX, cost.attack
        assert cost.descriptors <= ListenerLimits().connections_max + DESCRIPTORS_MORE_MAX, cost.attack
