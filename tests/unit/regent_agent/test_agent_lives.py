"""Agents through ends and beginnings: what a next connection, a next registration and a next call have of the last."""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from regent_agent import attempts
from regent_agent.agent import Agent, Died
from regent_agent.options import AgentOptions
from regent_agent.protocol import (
    DEAD,
    FULL,
    NOT_ACTIVE,
    REGISTER,
    UNAUTHENTICATED,
    Follow,
    Hello,
    Leave,
    Left,
    Locate,
    Poll,
    Refused,
    Regions,
    Register,
    Registered,
    Request,
    Response,
)
from regent_agent.threads import ThreadedAgent, ThreadedRouter
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Recorded, StandIn, closes, opens, options, started
from tests.unit.regent_agent.test_connection import responding
from tests.unit.regent_agent.test_router import Catalog
from tests.unit.regent_agent.test_routes import LOW
from tests.unit.regent_agent.test_threads import Blocking, Served
from tests.unit.regent_agent.test_work import Znodes


async def test_a_next_connection_names_the_highest_epoch_and_token_that_this_process_was_sent() -> None:
    """A daemon with an older copy of the store goes above both before it gives a token twice."""
    async with StandIn(3, hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
        daemon.send(opens(7, 1, 99), opens(8, 2, 41), closes(9, 3, 200))
        for pid in (7, 8, 9):
            await daemon.result(pid)
        before = len(daemon.seen(Hello))
        daemon.cut()
        again = await daemon.arrived(Hello, before + 1)
        assert (again.seen_epoch, again.seen_token) == (3, 99)
        assert len({one.proof for one in daemon.seen(Hello)}) == 1, "it is the same process"
        assert len(again.proof) == 16
        other = Agent(Recorded(), options(daemon, server="s2"), jitter=lambda: 0.0)
        await other.start()
        await eventually(lambda: {one.proof for one in daemon.seen(Hello)} > {again.proof})
        await other.stop()
    assert agent.owned


@pytest.mark.seed("S1-73", "S2-38")
async def test_a_process_that_ends_without_a_word_leaves_nothing_and_the_next_one_begins_with_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One region is open, one opens, and one closes as the process ends."""
    monkeypatch.chdir(tmp_path)
    files: list[object] = []
    folder = tmp_path.iterdir

    def noting(*arguments: object, **_: object) -> None:
        files.append(arguments)
        raise OSError("no file is there")

    for module in (builtins, io, os):
        monkeypatch.setattr(module, "open", noting)
    service = Recorded()
    async with StandIn(hold_ms=20).running() as daemon:
        async with started(service, daemon) as agent:
            daemon.send(opens(7, 1, 99), opens(8, 2, 41))
            for pid in (7, 8):
                await daemon.result(pid)
            service.hold = {2: asyncio.Event(), 3: asyncio.Event()}
            daemon.send(closes(9, 2, 41), opens(10, 3, 50))
            await eventually(lambda: service.calls[-2:] == [("close", 2, 41), ("open", 3, 50)])
            assert set(agent.owned) == {1}
        assert (files, list(folder())) == ([], [])
        daemon.requests.clear()
        restarted = Recorded()
        async with started(restarted, daemon, incarnation=6) as agent:
            assert [(one.incarnation, one.owned) for one in daemon.seen(Register)] == [(6, [])]
            daemon.send(list_regions=True)
            assert (await daemon.arrived(Regions)).owned == []
            await daemon.arrived(Poll, 3)
            assert (list(agent.owned), restarted.calls, daemon.results()) == ([], [], [])
    assert (files, list(folder())) == ([], [])


@pytest.mark.parametrize(("lease_ms", "longest_s"), [(1_000, 0.25), (4_000, 1.0), (60_000, 2.0)])
async def test_a_long_outage_has_no_pause_in_which_the_next_daemon_would_count_the_server_as_crashed(
    monkeypatch: pytest.MonkeyPatch, lease_ms: int, longest_s: float
) -> None:
    """A daemon that begins waits one lease for a poll: a longer pause would fence a server that serves."""
    pauses = list[float]()

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        await asyncio.sleep(0.001)

    monkeypatch.setattr(attempts, "asyncio", SimpleNamespace(sleep=sleep, Event=asyncio.Event))
    async with StandIn(hold_ms=20, lease_ms=lease_ms, suspends=False).running() as daemon:
        agent = Agent(Recorded(), options(daemon), jitter=lambda: 1.0)
        await agent.start()
        await daemon.arrived(Poll)
        daemon.responses[Poll] = daemon.responses[Register] = responding(Refused(NOT_ACTIVE, "it stands by"))
        await eventually(lambda: len(pauses) >= 12)
        await agent.stop()
    assert (pauses[0], max(pauses)) == (0.05, longest_s)


@pytest.mark.parametrize("token", [None, 6, 7, 8])
async def test_a_region_is_owned_with_the_token_of_its_open_alone_and_while_the_server_serves(
    token: int | None,
) -> None:
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
        daemon.send(opens(7, 1))
        await daemon.result(7)
        assert agent.owns(1, token) == (token in (None, 7))
        assert not agent.owns(2, token)
    assert agent.owned
    assert not agent.owns(1, token)


async def test_a_server_that_is_fenced_while_it_leaves_has_not_left() -> None:
    """Its regions may be served elsewhere before it has closed them: the program ends with a failure."""
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
        daemon.responses[Leave] = responding(Refused(DEAD, "fenced", above=9))
        assert not await agent.leave(10)
        assert agent.died.is_set()
        assert (agent.above, agent.serving) == (9, False)
        assert not await agent.leave(10), "nor later"


async def test_a_server_that_has_left_has_left_for_good() -> None:
    async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
        daemon.responses[Leave] = responding(Left(0))
        for _ in range(2):
            assert await agent.leave(60)
        assert len(daemon.seen(Leave)) == 1
        with pytest.raises(Died, match="it left or stopped"):
            await agent.registered()
        assert (agent.above, agent.died.is_set()) == (0, False)


async def test_a_request_to_leave_that_is_refused_has_the_server_registered_anew_before_the_next_one() -> None:
    """A poll that is held still does not keep it from that."""
    async with StandIn(hold_ms=60_000).running() as daemon, started(Recorded(), daemon) as agent:
        left: list[Response] = [Refused(REGISTER, "another epoch"), Left(0)]

        async def scripted(_: Request) -> Response:
            return left.pop(0)

        daemon.responses[Leave] = scripted
        await daemon.arrived(Poll)
        assert await agent.leave(60)
    kinds = [type(one) for one in daemon.requests if isinstance(one, (Register, Leave))]
    assert kinds == [Register, Leave, Register, Leave]


async def test_each_refusal_of_an_agent_reaches_its_program_with_code_and_text() -> None:
    found = list[tuple[str, str]]()
    async with StandIn(hold_ms=20).running() as daemon:
        left = [Refused(code, f"it is {code}") for code in (FULL, NOT_ACTIVE, UNAUTHENTICATED)]

        async def scripted(request: Request) -> Response:
            return left.pop(0) if left else await daemon.respond(request)

        daemon.responses[Register] = scripted
        agent = Agent(
            Recorded(), options(daemon), jitter=lambda: 0.0, refused=lambda code, text: found.append((code, text))
        )
        await agent.start()
        await agent.stop()
    assert [code for code, _ in found] == [FULL, NOT_ACTIVE, UNAUTHENTICATED]
    assert all(f"refused: it is {code} ({code})" in text for code, text in found)


def test_an_agent_and_a_router_of_threads_pass_on_all_that_they_are_given() -> None:
    """Load, refusals, secret and the most routes: the same as without threads."""
    found, refused = list[str](), threading.Event()

    def noted(code: str, text: str) -> None:
        found.append(code)
        refused.set()

    served = Served(StandIn(hold_ms=20))
    with served.running() as daemon:
        daemon.responses[Register] = responding(Refused(FULL, "no room"))
        chosen: AgentOptions = options(daemon, secret="of servers")
        agent = ThreadedAgent(Blocking(), chosen, load=lambda: {"requests": 3}, refused=noted)
        with pytest.raises(TimeoutError):
            agent.start(0.05)
        assert refused.wait(60)
        served.loop.call(daemon.responses.clear)
        agent.start(60)
        poll = served.loop.run(daemon.arrived(Poll))
        assert (found[0], poll.load, agent.owned) == (FULL, {"requests": 3}, {})
        assert {one.secret for one in daemon.seen(Hello)} == {"of servers"}
        agent.stop()
    catalog = Served(Catalog())
    with catalog.running() as daemon:
        router = ThreadedRouter([daemon.address], "of clients", routes_max=1)
        for key in (b"a", b"z", b"a"):
            router.locate("t", key)
        assert router.locate("t", b"a") == LOW
        catalog.loop.run(daemon.arrived(Follow))
        assert {one.secret for one in daemon.seen(Hello)} == {"of clients"}
        assert [one.key for one in daemon.seen(Locate)] == [b"a", b"z", b"a"], "one route is kept"
        router.stop()


async def test_a_start_that_is_given_up_is_no_end_of_the_agent(unused_tcp_port: int) -> None:
    daemon = StandIn(hold_ms=20)
    daemon.address = ("127.0.0.1", unused_tcp_port)
    agent = Agent(Recorded(), options(daemon), jitter=lambda: 0.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.start(), 0.02)
    async with daemon.running(unused_tcp_port):
        await agent.start()
        assert agent.serving
        await agent.stop()
    assert len(daemon.seen(Register)) == 1


class Unfinished(Znodes):
    """Waits for its ephemeral znode, as below a daemon that has no folder for it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.ended = 0
        self.may_end = asyncio.Event()

    async def appears(self) -> None:
        self.begun += 1
        try:
            await self.may_end.wait()
        finally:
            self.ended += 1


async def test_a_znode_of_a_server_is_made_once_at_a_time_and_again_for_the_next_registration() -> None:
    answers = Unfinished()
    async with StandIn(hold_ms=20).running() as daemon:

        async def registered(_: Request) -> Response:
            return Registered(1, 60_000, 20, nodes=True)

        async def refused(_: Request) -> Response:
            del daemon.responses[Poll]
            return Refused(REGISTER, "another epoch")

        async def registers_again() -> None:
            before = len(daemon.seen(Register))
            daemon.responses[Poll] = refused
            await eventually(lambda: len(daemon.seen(Register)) > before and agent.serving)

        daemon.responses[Register] = registered
        agent = Agent(Recorded(), options(daemon), answers=answers, jitter=lambda: 0.0)
        await agent.start()
        await registers_again()
        await registers_again()
        assert (answers.begun, answers.ended) == (1, 0), "the first one goes on"
        answers.may_end.set()
        await eventually(lambda: answers.ended == 1)
        await registers_again()
        await eventually(lambda: (answers.begun, answers.ended) == (2, 2))
        answers.may_end.clear()
        await registers_again()
        await eventually(lambda: answers.begun == 3)
        await agent.stop()
        assert answers.ended == 3, "it ends with the agent"
