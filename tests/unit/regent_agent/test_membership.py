"""Rules 4, 6 and 7 across failovers, and how a server enters and leaves."""

from __future__ import annotations

import asyncio

import pytest

from regent_agent.agent import Agent, Died
from regent_agent.protocol import (
    DEAD,
    INVALID,
    OPENED,
    REGISTER,
    Accepted,
    Hello,
    Leave,
    Operations,
    Owned,
    Poll,
    Refused,
    Regions,
    Register,
    Registered,
    Report,
    Request,
    Response,
    Welcome,
)
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Clock, Recorded, StandIn, closes, opens, options, started


def refusing(code: str) -> Response:
    return Refused(code, "the test says so")


class TestRegistration:
    @pytest.mark.seed("S3-19")
    async def test_a_server_registers_with_its_name_address_and_incarnation(self) -> None:
        async with StandIn().running() as daemon, started(Recorded(), daemon, software="1.2") as agent:
            assert daemon.seen(Register) == [Register("s1", 5, "s1:7000", "1.2")]
            assert agent.serving

    @pytest.mark.parametrize(
        ("suspends", "named", "fence"),
        [(False, "command", "command"), (False, "", "log"), (True, "", "lease")],
        ids=["named", "older daemon, log", "older daemon, lease"],
    )
    async def test_it_says_how_the_daemon_fences_it(self, suspends: bool, named: str, fence: str) -> None:
        async def registered(_: Request) -> Response:
            return Registered(1, 60_000, 20, suspends, named)

        async with StandIn().running() as daemon:
            daemon.responses[Register] = registered
            assert Agent(Recorded(), options(daemon)).fence == ""
            async with started(Recorded(), daemon) as agent:
                assert agent.fence == fence

    async def test_each_registration_says_how_the_daemon_fences_the_server(self) -> None:
        fences, said = ["log", "lease"], list[str]()

        async def registered(_: Request) -> Response:
            return Registered(1, 60_000, 20, False, fences.pop(0))

        async def forgotten(_: Request) -> Response:
            return refusing(REGISTER) if fences else Operations(1, 1)

        async with StandIn(hold_ms=20).running() as daemon:
            daemon.responses[Register] = registered
            agent = Agent(Recorded(), options(daemon), jitter=lambda: 0.0, fenced_by=said.append)
            await agent.start()
            daemon.responses[Poll] = forgotten
            await eventually(lambda: said == ["log", "lease"])
            await agent.stop()

    async def test_a_service_that_fails_to_take_its_fence_is_registered_again(self) -> None:
        service, causes = Recorded(), [OSError("no disk"), OSError("no disk")]

        def takes(_: str) -> None:
            if causes:
                raise causes.pop()

        async with StandIn(hold_ms=20).running() as daemon:
            agent = Agent(service, options(daemon), jitter=lambda: 0.0, fenced_by=takes)
            async with asyncio.timeout(60):
                await agent.start()
            assert len(daemon.seen(Register)) == 3
            assert daemon.requests.index(await daemon.arrived(Poll)) > daemon.requests.index(daemon.seen(Register)[2])
            daemon.send(opens(7, 1))
            assert (await daemon.result(7)).outcome == OPENED
            await agent.stop()

    async def test_the_longest_wait_for_a_response_is_an_option(self) -> None:
        held = asyncio.Event()

        async def late(_: Request) -> Response:
            await held.wait()
            return Registered(1, 60_000, 20)

        async with StandIn(hold_ms=20).running() as daemon:
            daemon.responses[Register] = late
            agent = Agent(Recorded(), options(daemon, request_ms_max=100), jitter=lambda: 0.0)
            starting = asyncio.ensure_future(agent.start())
            await daemon.arrived(Register, 4)
            held.set()
            async with asyncio.timeout(60):
                await starting
            held.clear()
            daemon.responses[Report] = late
            daemon.send(opens(7, 1))
            await daemon.arrived(Report, 4)
            held.set()
            await agent.stop()
        for name in ("request_ms_max", "side_by_side_max"):
            with pytest.raises(ValueError, match=f"{name} is 0: give at least 1"):
                options(daemon, **{name: 0})

    async def test_the_incarnation_is_the_time_of_the_start(self) -> None:
        async with StandIn().running() as daemon:
            first, second = (Agent(Recorded(), options(daemon, incarnation=0)) for _ in range(2))
        assert 1_700_000_000_000_000 < first.incarnation <= second.incarnation

    async def test_a_poll_has_the_load_of_the_service(self) -> None:
        async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon) as agent:
            agent.load = lambda: {"requests": 3}
            await eventually(lambda: {"requests": 3} in [poll.load for poll in daemon.seen(Poll)])
            agent.load = lambda: {"requests": 1 // 0}
            await eventually(lambda: daemon.seen(Poll)[-1].load == {})
            agent.load = lambda: {"rate": 2.5}  # type: ignore[dict-item]  # a service without type checks
            await eventually(lambda: daemon.seen(Poll)[-1].load == {"rate": 2})

    @pytest.mark.seed("S1-75")
    async def test_after_a_failover_it_registers_anew_with_all_it_has_and_repeats_its_results(self) -> None:
        service = Recorded()
        async with (
            StandIn(epoch=1).running() as old,
            StandIn(epoch=2).running() as new,
            started(service, old, new) as agent,
        ):
            old.again = {7}
            old.send(opens(7, 1))
            await old.result(7)
            old.responses[Poll] = old.responses[Report] = lambda _: _refused("not_active")
            old.cut()
            assert (await new.arrived(Register)).owned == [Owned(1, 7)]
            assert (await new.result(7)).outcome == OPENED
            assert new.seen(Report)[-1].epoch == 2
            assert agent.owns(1, 7)
        assert [call[0] for call in service.calls] == ["open", "suspend"]

    async def test_after_a_registration_no_result_waits_for_its_pause(self) -> None:
        """The clock stands still: what the daemon does not accept is never due again."""
        async with (
            StandIn(hold_ms=20).running() as daemon,
            started(Recorded(), daemon, clock=Clock()),
        ):
            daemon.again = {7}
            daemon.send(opens(7, 1))
            await daemon.result(7)
            await daemon.arrived(Poll, len(daemon.seen(Poll)) + 3)
            assert len(daemon.results()) == 1
            daemon.epoch = 2
            await daemon.result(7, 2)

    async def test_a_silent_daemon_is_left_long_before_the_lease_ends(self) -> None:
        service = Recorded()
        async with (
            StandIn(epoch=1, lease_ms=10_000, hold_ms=20).running() as silent,
            StandIn(epoch=2).running() as new,
            started(service, silent, new),
        ):
            stands = asyncio.Event()

            async def respond(request: Request) -> None:
                await stands.wait()

            silent.responses = dict.fromkeys((Hello, Poll), respond)
            await new.arrived(Register)
            assert service.calls == []

    async def test_a_refused_poll_registers_anew(self) -> None:
        async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon):
            await daemon.arrived(Poll, 3)
            daemon.responses[Poll] = lambda _: _refused(REGISTER)
            await daemon.arrived(Register, 2)
            del daemon.responses[Poll]
            await eventually(lambda: isinstance(daemon.requests[-1], Poll))
            register = max(index for index, request in enumerate(daemon.requests) if isinstance(request, Register))
            poll = daemon.requests[register + 1]
            assert isinstance(poll, Poll)
            assert poll.taken == 0

    @pytest.mark.seed("S3-35")
    async def test_a_refused_report_registers_anew_while_a_poll_is_held(self) -> None:
        async with StandIn(hold_ms=30_000).running() as daemon, started(Recorded(), daemon):
            await daemon.arrived(Poll)
            daemon.responses[Report] = lambda _: _refused(REGISTER)
            daemon.send(opens(7, 1))
            await daemon.arrived(Report)
            await daemon.arrived(Register, 2)
            del daemon.responses[Report]
            await daemon.result(7, 2)

    async def test_operations_of_another_term_are_not_done_before_a_registration(self) -> None:
        service = Recorded()
        async with StandIn(hold_ms=20).running() as daemon, started(service, daemon):

            async def later_term(request: Request) -> Response:
                daemon.epoch = 3
                del daemon.responses[Poll]
                return Operations(3, 1, [opens(7, 1)])

            daemon.responses[Poll] = later_term
            await daemon.arrived(Register, 2)
            await daemon.arrived(Poll, len(daemon.seen(Poll)) + 2)
            assert service.calls == []

    async def test_a_daemon_requests_the_list_of_regions(self) -> None:
        service = Recorded()
        async with StandIn().running() as daemon, started(service, daemon):
            daemon.responses[Regions] = lambda _: _nothing()
            daemon.send(opens(7, 1), opens(8, 2))
            await daemon.result(8)
            daemon.send(list_regions=True)
            await daemon.arrived(Regions)
            del daemon.responses[Regions]
            assert (await daemon.arrived(Regions, 2)) == Regions("s1", 5, 1, [Owned(1, 7), Owned(2, 8)])

    async def test_a_list_is_sent_again_where_it_is_requested_while_one_is_on_its_way(self) -> None:
        async with StandIn(hold_ms=20).running() as daemon, started(Recorded(), daemon):
            accepts = asyncio.Event()

            async def accepted(_: Request) -> Response:
                await accepts.wait()
                return Accepted()

            daemon.responses[Regions] = accepted
            daemon.send(list_regions=True)
            await daemon.arrived(Regions)
            daemon.send(list_regions=True)
            await daemon.arrived(Poll, len(daemon.seen(Poll)) + 2)  # the second request has arrived
            accepts.set()
            await daemon.arrived(Regions, 2)

    async def test_a_refusal_is_logged_once_with_its_remedy(self, caplog: pytest.LogCaptureFixture) -> None:
        async with StandIn().running() as daemon:
            daemon.responses[Register] = lambda _: _refused(INVALID)
            agent = Agent(Recorded(), options(daemon), jitter=lambda: 0.0)
            starting = asyncio.create_task(agent.start())
            await daemon.arrived(Register, 3)
            del daemon.responses[Register]
            await starting
            await agent.stop()
        (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert line == (
            f"the polls of server s1 have no success: 127.0.0.1:{daemon.address[1]} refused: the test says so "
            "(invalid); correct its options, or update the older one of agent and daemon"
        )


class TestRule6:
    @pytest.mark.parametrize("kind", [Poll, Report, Register, Leave])
    async def test_a_dead_server_serves_nothing_and_never_comes_back(self, kind: type[Request]) -> None:
        service = Recorded()
        async with StandIn(hold_ms=20).running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1))
            await daemon.result(7)
            daemon.responses[kind] = lambda _: _refused(DEAD)
            if kind is Leave:
                assert not await agent.leave(60)
            if kind is Register:
                daemon.cut()
                daemon.responses[Poll] = lambda _: _refused(REGISTER)
            daemon.send(opens(8, 2))
            async with asyncio.timeout(60):
                await agent.died.wait()
            assert not agent.serving
            assert not agent.owns(1)
            assert service.calls.count(("suspend",)) == 1
            with pytest.raises(Died, match="server s1 incarnation 5"):
                await agent.registered()
            daemon.responses.clear()
            seen = len(daemon.requests)
            await agent.stop()
        assert all(isinstance(late, Poll | Report) for late in daemon.requests[seen:]), "sent before, read later"
        assert ("resume",) not in service.calls

    async def test_operations_in_progress_are_cancelled(self) -> None:
        service = Recorded()
        service.hold[1] = asyncio.Event()
        async with StandIn(hold_ms=20).running() as daemon, started(service, daemon) as agent:
            daemon.send(opens(7, 1))
            await eventually(lambda: service.inside)
            daemon.responses[Poll] = lambda _: _refused(DEAD)
            await agent.died.wait()
            await eventually(lambda: service.inside == 0)
            assert not agent.owned


class TestRule7:
    async def test_a_daemon_with_a_lower_epoch_is_not_obeyed(self) -> None:
        service = Recorded()
        async with (
            StandIn(epoch=5).running() as active,
            StandIn(epoch=4).running() as stale,
            started(service, active, stale),
        ):
            active.responses = dict.fromkeys((Poll, Register), lambda _: _nothing())
            active.cut()
            await eventually(lambda: stale.requests)
            stale.send(opens(7, 1))
            active.responses = {}
            await active.arrived(Poll, len(active.seen(Poll)) + 1)
        assert {type(request).__name__ for request in stale.requests} == {"Hello"}
        assert service.calls == [("suspend",)]

    async def test_operations_with_a_lower_epoch_are_ignored(self) -> None:
        service = Recorded()
        async with StandIn(epoch=5, hold_ms=20).running() as daemon, started(service, daemon):

            async def stale(request: Request) -> Response:
                del daemon.responses[Poll]
                return Operations(4, 9, [opens(7, 1)])

            daemon.responses[Poll] = stale
            await daemon.arrived(Poll, len(daemon.seen(Poll)) + 3)
            assert daemon.seen(Poll)[-1].taken < 9
        assert service.calls == [("suspend",)]

    async def test_a_stale_daemon_cannot_declare_a_server_dead(self) -> None:
        """The connection for reports still leads to the old daemon, when that for polls has found the new one."""
        async with (
            StandIn(epoch=1, hold_ms=20).running() as old,
            StandIn(epoch=2, hold_ms=20).running() as new,
            started(Recorded(), old, new) as agent,
        ):
            registered = asyncio.Event()

            async def dead(request: Request) -> Response:
                await registered.wait()
                return refusing(DEAD)

            old.responses[Report] = dead
            old.send(opens(7, 1))
            await old.arrived(Report)
            old.responses[Poll] = lambda _: _refused("not_active")
            await new.arrived(Register)
            registered.set()
            await new.result(7)
            assert not agent.died.is_set()

    async def test_no_report_goes_to_a_stale_daemon(self) -> None:
        async with (
            StandIn(epoch=1, hold_ms=20).running() as old,
            StandIn(epoch=2, hold_ms=20).running() as new,
            started(Recorded(), old, new),
        ):
            old.send(opens(7, 1))
            await old.result(7)
            old.responses[Poll] = lambda _: _refused("not_active")
            await new.arrived(Register)
            new.send(closes(8, 1, 7))
            await new.result(8)
        assert len(old.seen(Report)) == 1

    async def test_a_standby_is_left_for_the_next_daemon(self) -> None:
        async with StandIn(epoch=1).running() as standby, StandIn(epoch=1).running() as active:
            standby.responses[Register] = lambda _: _refused("not_active")
            async with started(Recorded(), standby, active):
                assert len(active.seen(Register)) == 1


async def test_an_agent_that_was_not_started_stops() -> None:
    async with StandIn().running() as daemon:
        await Agent(Recorded(), options(daemon)).stop()


async def test_a_start_waits_until_a_daemon_is_there(unused_tcp_port: int) -> None:
    daemon = StandIn()
    daemon.address = ("127.0.0.1", unused_tcp_port)
    agent = Agent(Recorded(), options(daemon), jitter=lambda: 0.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.start(), 0.1)
    async with daemon.running(unused_tcp_port), asyncio.timeout(60):
        await agent.registered()
        assert agent.serving
        await agent.stop()


async def test_a_welcome_of_another_kind_is_refused() -> None:
    async with StandIn().running() as daemon:
        agent = Agent(Recorded(), options(daemon), jitter=lambda: 0.0)
        daemon.responses[Register] = lambda _: _welcome()
        starting = asyncio.create_task(agent.start())
        await daemon.arrived(Register, 2)
        daemon.responses[Register] = lambda _: _registered()
        await starting
        await agent.stop()


async def _refused(code: str) -> Response:
    return refusing(code)


async def _nothing() -> None:
    return None


async def _welcome() -> Response:
    return Welcome(1, 1)


async def _registered() -> Response:
    return Registered(1, 60_000, 20)
