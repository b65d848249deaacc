"""Brokers are restarted by a plan that the daemon keeps, although it is killed meanwhile and no file is written."""

from __future__ import annotations

import asyncio

from tests.cluster.kept_waiting import pids
from tests.cluster.scene import regent, scene, succeeds


async def test_a_kept_restart_names_each_broker_once_through_a_failover() -> None:
    async with scene() as stage:
        await succeeds(stage.daemon, "restart", "begin", "--reason", "a test")
        [pid] = await pids(stage, "restart")
        waiting = asyncio.ensure_future(regent(stage.daemon, "procedures", "wait", str(pid), "-o", "json"))
        restarted: list[int] = []
        while batch := [int(one) for one in (await succeeds(stage.daemon, "restart-next", "--wait")).split()]:
            assert not set(restarted).intersection(batch)
            await asyncio.gather(*(stage.w.cluster.brokers[broker].stop() for broker in batch))
            if not restarted:
                await stage.daemon.kill()
                await stage.daemon.boot()
                await stage.active()
            await asyncio.gather(*(stage.w.cluster.revive(broker) for broker in batch))
            restarted += batch
        assert sorted(restarted) == [1, 2, 3]
        code, out, err = await asyncio.wait_for(waiting, 60.0)
        assert (code, "all 3 brokers were restarted" in out) == (0, True), err
        await stage.proven()
