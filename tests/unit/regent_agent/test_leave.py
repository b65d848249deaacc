"""How a server leaves: its regions move away first, and it does not come back."""

from __future__ import annotations

import asyncio

import pytest

from regent_agent.protocol import REGISTER, Leave, Left, Poll, Refused, Register, Request, Response
from tests.unit.regent_agent.kit import Recorded, closes, opens, started
from tests.unit.regent_agent.stand_in import StandIn


async def test_a_server_leaves_once_its_regions_have_moved() -> None:
    service = Recorded()
    async with StandIn(hold_ms=20).running() as daemon, started(service, daemon) as agent:
        daemon.send(opens(7, 1))
        await daemon.result(7)

        async def respond(request: Request) -> Response:
            if len(daemon.seen(Leave)) == 1:
                daemon.send(closes(8, 1, 7))
            return Left(len(agent.owned))

        daemon.responses[Leave] = respond
        assert await agent.leave(10)
        assert len(daemon.seen(Leave)) >= 2
        assert not agent.serving
        await agent.stop()
    assert len(daemon.seen(Register)) == 1
    assert not agent.died.is_set()


async def test_a_server_that_cannot_leave_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
        daemon.send(opens(7, 1))
        await daemon.result(7)

        async def one_left(request: Request) -> Response:
            return Left(1)

        daemon.responses[Leave] = one_left
        assert not await agent.leave(0.3)
        assert agent.owns(1)
    assert "server s1 still has 1 regions after 0.3 s of leaving" in caplog.text


async def test_a_server_that_has_left_does_not_register_again() -> None:
    """The daemon refuses the poll that it holds, before the response to the last request to leave has arrived."""
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:

        async def unknown(request: Request) -> Response:
            return Refused(REGISTER, "it has left")

        async def respond(request: Request) -> Response:
            polls = len(daemon.seen(Poll))
            daemon.responses[Poll] = unknown
            await daemon.arrived(Poll, polls + 1)
            await asyncio.sleep(0.1)  # the agent would register in this time
            return Left(0)

        daemon.responses[Leave] = respond
        assert await agent.leave(10)
    assert len(daemon.seen(Register)) == 1
