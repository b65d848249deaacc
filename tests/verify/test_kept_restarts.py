"""Brokers are restarted by a plan that the daemon keeps, although it is killed meanwhile and no file is written."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from cli.exit_codes import Exit
from tests.kit.polling import eventually
from tests.real.cluster.kept_waiting import pids
from tests.real.cluster.scene import regent, scene, succeeds


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
