"""A server whose clock was set back comes back at once, with a log of its own."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from examples.kv import server
from regent_agent.protocol import DEAD, Refused, Register, Registered, Request, Response
from tests.kit.polling import eventually
from tests.unit.regent_agent.stand_in import StandIn

FENCED = 1 << 60


async def test_a_server_whose_clock_is_behind_takes_the_incarnation_after_the_fenced_one(tmp_path: Path) -> None:
    async def registered(request: Request) -> Response:
        assert isinstance(request, Register)
        if request.incarnation <= FENCED:
            return Refused(DEAD, f"it is not above {FENCED}", FENCED)
        return Registered(1, 60_000, 20, False, "log")

    async with StandIn(hold_ms=20).running() as daemon:
        daemon.responses[Register] = registered
        options = argparse.Namespace(
            name="kv-1",
            host="127.0.0.1",
            port=0,
            data=tmp_path,
            daemons=(daemon.address,),
            secret="",
            leave_s=1.0,
            segment_bytes=1 << 20,
        )
        running = asyncio.ensure_future(server._run(options))
        await eventually(lambda: [one.incarnation > FENCED for one in daemon.seen(Register)] == [False, True])
        assert daemon.seen(Register)[1].incarnation == FENCED + 1
        await eventually((tmp_path / "logs" / f"kv-1,{FENCED + 1}").is_dir)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
