"""Brokers are restarted one after the other as ``regent restart-next`` names them, under acks=all load."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.exit_codes import Exit
from tests.real.cluster.scene import regent, scene, succeeds


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
