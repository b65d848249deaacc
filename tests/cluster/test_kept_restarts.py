"""Brokers are restarted by a plan that the daemon keeps, although it is killed meanwhile and no file is written."""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.kept_waiting import pids
from tests.cluster.scene import Scene, regent, succeeds

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def delete_thin(stage: Scene) -> None:
    """Deletes topics of other tests that would keep brokers from restarting: min.insync.replicas is 2."""
    thin = {topic for (topic, _), (replicas, _) in (await stage.w.states()).items() if len(replicas) < 3}
    await asyncio.gather(*map(stage.delete, thin))


async def test_a_kept_restart_names_each_broker_once_through_a_failover(stage: Scene) -> None:
    await delete_thin(stage)
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
