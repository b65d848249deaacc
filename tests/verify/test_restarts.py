"""Brokers are restarted one by one, by a plan that outlives its daemon, and all at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from tests.kit.cluster.scene import Scene, leaders, pids, regent, scene, succeeds
from tests.kit.deadlines import eventually


async def test_a_rolling_restart_by_the_command_restarts_each_broker_once(tmp_path: Path) -> None:
    call = ("restart-next", "--since", str(tmp_path / "restart.json"))
    wait = ("--wait", "--timeout", "90")
    async with scene() as stage:
        code, out, _ = await regent(stage.daemon, "can-stop", "1", "2", "3")
        assert (code, "no-leader" in out) == (Exit.REFUSED, True)
        restarted: list[int] = []
        while batch := [int(broker) for broker in (await succeeds(stage.daemon, *call, *wait)).split()]:
            assert not set(restarted).intersection(batch)
            await asyncio.gather(*(stage.w.cluster.brokers[broker].stop() for broker in batch))
            code, out, err = await regent(stage.daemon, *call)
            assert (code, out) == (Exit.REFUSED, ""), err
            assert "must come back first" in err
            await asyncio.gather(*(stage.w.cluster.revive(broker) for broker in batch))
            restarted += batch
        assert sorted(restarted) == [1, 2, 3]
        await stage.proven()


async def test_a_kept_restart_names_each_broker_once_through_a_failover() -> None:
    async with scene() as stage:
        await succeeds(stage.daemon, "restart", "begin", "--reason", "a test")
        [pid] = await pids(stage, "restart")
        waiting = asyncio.ensure_future(regent(stage.daemon, "procedures", "wait", str(pid), "-o", "json"))
        restarted, following = list[int](), ("restart-next", "--wait", "--pid")
        while batch := [int(one) for one in (await succeeds(stage.daemon, *following, str(pid))).split()]:
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
        code, _, err = await regent(stage.daemon, "restart-next")
        assert (code, f"restart {pid} has ended: all 3 brokers were restarted" in err) == (Exit.REFUSED, True), err
        await stage.proven()


async def test_one_command_restarts_all_brokers_although_it_and_the_daemon_are_killed(tmp_path: Path) -> None:
    """The command leaves a file for each broker, which the test restarts; the first one is killed while it waits."""
    words = ("restart", "run", "--command", f"touch {tmp_path}/{{}}; while test -e {tmp_path}/{{}}; do sleep 0.2; done")
    async with scene() as stage:
        first = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli.main", *words, "--config", str(stage.daemon.config), start_new_session=True
        )
        restarted: list[int] = []
        waiting: asyncio.Future[tuple[int, str, str]] | None = None
        while len(restarted) < len(stage.w.cluster.brokers):
            broker = int(await eventually(lambda: next((one.name for one in tmp_path.iterdir()), ""), 120.0))
            assert broker not in restarted
            await stage.w.cluster.brokers[broker].stop()
            if waiting is None:
                os.killpg(first.pid, signal.SIGKILL)
                await first.wait()
                await stage.daemon.kill()
                await stage.daemon.boot()
                await stage.active()
                waiting = asyncio.ensure_future(regent(stage.daemon, *words))
            await stage.w.cluster.revive(broker)
            restarted.append(broker)
            (tmp_path / str(broker)).unlink()
        assert waiting is not None
        code, _, err = await asyncio.wait_for(waiting, 120.0)
        assert (code, "all 3 brokers were restarted" in err) == (Exit.DONE, True), err
        await stage.proven()


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-49", "S4-72", "S4-73", "S4-74", "S4-77")
@pytest.mark.parametrize("ibp", ["3.9-IV0", "2.7-IV1"])
async def test_the_last_broker_in_sync_leads_first_after_all_brokers_stopped(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, request_s_max=120, idempotent=False) as stage:
        epoch, brokers = await stage.active(), stage.w.cluster.brokers
        assert (await brokers[1].shut_down()).first_try
        assert (await brokers[2].shut_down()).first_try
        last = await brokers[3].shut_down()
        assert (last.tries, last.succeeded) == (3, False), "no broker is left to lead its partitions"
        await eventually(lambda: _led_by(stage, {-1}), 30.0)
        states = (await stage.w.states()).values()
        assert all(state is not None and state.isr == (3,) for _, state in states), "the last in sync is remembered"
        await brokers[1].boot()
        await eventually(lambda: _live(stage, [1]), 30.0)
        assert set(leaders(await stage.w.states()).values()) == {-1}, "it lacks records: it must not lead"
        await brokers[3].boot()
        await eventually(lambda: _led_by(stage, {3}), 30.0)
        await brokers[2].boot()
        await stage.proven()
        assert await stage.active() == epoch


async def _led_by(stage: Scene, wanted: set[int]) -> bool:
    return set(leaders(await stage.w.states()).values()) == wanted


async def _live(stage: Scene, wanted: list[int]) -> bool:
    brokers = (await stage.daemon.get("/v1/brokers"))["items"]
    return [broker["id"] for broker in brokers if broker["state"] == "live"] == wanted


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77")
async def test_a_cluster_killed_as_a_whole_loses_no_acknowledged_record() -> None:
    async with scene(request_s_max=120, idempotent=False) as stage:
        cluster = stage.w.cluster
        everything = [stage.daemon, cluster.zookeeper, *cluster.brokers.values()]
        await asyncio.gather(*(process.kill() for process in everything))
        await cluster.zookeeper.boot()
        await stage.daemon.boot(None)
        await asyncio.gather(*(cluster.revive(broker) for broker in cluster.brokers))
        await stage.w.reconnected()
        await stage.active(90.0)
        await stage.proven()
