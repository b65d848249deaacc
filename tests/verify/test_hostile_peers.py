"""Peers that want to keep brokers from their controller, at both listeners: heartbeats never miss, brokers are served.

What each attack did and cost is printed, and kept beside the times of the system tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers.security.access import access_of
from configs.loading import load
from tests.cluster.endpoint import endpoint
from tests.cluster.scene import Scene, scene
from tests.cluster.secured import Secured
from tests.verify.hostile_peers import BOTH, CONTROLLER, ENDPOINT, SECURED
from tests.verify.siege import Siege, plain
from tests.verify.system import PATIENT, Times

LAG_S_MAX = 1.0
"""Of the loop's own doing: a quarter of the stall guard's limit."""
BROKER_WAIT_S_MAX = 10.0
"""A third of what a broker waits."""
LEASE_PART_MIN = 0.2
HEAP_MB = 512
"""Brokers get some of it: a client may send as much to one of them without the endpoint."""
MEMORY_MB_MAX = 700
"""The two reserves of 128 MiB, 64 KiB for each connection, and what a message is when it is read."""
TOGETHER = ("versions, then nothing", "half of 16 MiB", "tags in an envelope, 16 MiB", "connect and hang up")


@asynccontextmanager
async def siege(test: str, **options: Any) -> AsyncIterator[Siege]:
    """A loaded cluster, its daemon and the admin endpoint beside it; afterwards all is as it was."""
    async with scene(**options) as stage, endpoint(stage.daemon) as at:
        epoch = await stage.active()
        brokers = await stage.w.store.load_brokers()
        made = Siege(stage, at, Times(test), plain(), plain(), brokers.brokers[1].epoch)
        yield made
        made.times.note("longest loop lag at most", f"{made.lag_s_max:g} s")
        made.times.note("longest wait of a broker's call", round(made.broker_wait_s_max, 2))
        made.times.note("new registrations of broker 1", str(made.broker_restarts))
        made.times.note("least part of the lease that was left", f"{made.lease_part_min:.0%}")
        made.times.note("highest memory of daemon and endpoint", f"{made.memory_mb_max} MB")
        assert await stage.active() == epoch, "the role was lost"
        assert not stage.daemon.log_has("stood still")
        assert made.own_lag_s_max <= LAG_S_MAX
        assert made.broker_wait_s_max <= BROKER_WAIT_S_MAX
        assert made.lease_part_min >= LEASE_PART_MIN
        assert made.memory_mb_max <= MEMORY_MB_MAX
        await stage.proven()


async def stops_and_comes_back(stage: Scene, broker: int) -> None:
    """A clean stop of a broker, whose call is answered at the first try."""
    stopped = await stage.w.cluster.brokers[broker].shut_down()
    assert stopped.first_try, stage.daemon.log_tail()
    await stage.w.cluster.brokers[broker].boot()
    await stage.w.healed(120.0)


async def test_strangers_at_listeners_without_authentication(request: pytest.FixtureRequest) -> None:
    async with siege(request.node.name, settings=PATIENT, heap_mb=HEAP_MB) as s:
        for attack in CONTROLLER:
            await s.endure(attack, s.stage.daemon.port)
        for attack in ENDPOINT:
            await s.endure(attack, s.at.port)
        under_attack = asyncio.gather(*(s.endure(name, s.stage.daemon.port) for name in TOGETHER))
        await stops_and_comes_back(s.stage, 2)
        await under_attack


async def test_strangers_at_listeners_with_tls_and_sasl(request: pytest.FixtureRequest, tmp_path: Path) -> None:
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
