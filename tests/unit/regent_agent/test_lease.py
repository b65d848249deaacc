"""Rule 5: without a valid lease nothing is served; and how a server leaves."""

from __future__ import annotations

import asyncio

import pytest

from regent_agent.lease import Lease, Moment
from regent_agent.protocol import NOT_ACTIVE, OPENED, REGISTER, Leave, Left, Poll, Refused, Register, Request, Response
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Clock, Recorded, StandIn, closes, opens, started


class Told:
    """A lease of 10 s, of which a server uses 8, and what the service is told. ``ahead_s``: of the wall clock."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.clock = Clock()
        self.ahead_s = 0.0
        self.lease = Lease(
            self.clock,
            lambda: self.calls.append("suspend"),
            lambda: self.calls.append("resume"),
            lambda: self.clock.now_s + 7_000 + self.ahead_s,
        )

    def acknowledged(self, sent: Moment | None = None, *, suspends: bool = True) -> None:
        self.lease.renew(self.lease.sending() if sent is None else sent, 10_000, suspends)

    def passes(self, seconds: float) -> None:
        """Lets time pass in which the loop runs."""
        for _ in range(round(seconds * 10)):
            self.clock.now_s += 0.1
            self.lease.check()


def test_a_server_without_a_registration_has_no_lease_and_is_not_suspended() -> None:
    told = Told()
    told.lease.check()
    assert not told.lease.valid
    assert told.calls == []


def test_the_lease_counts_from_the_sending_of_the_acknowledged_request() -> None:
    told = Told()
    sent = told.lease.sending()
    told.passes(2.0)
    told.acknowledged(sent)
    told.passes(5.9)
    assert told.lease.valid
    told.passes(0.2)
    lapsed = not told.lease.valid
    assert lapsed
    told.passes(1.0)
    assert told.calls == ["suspend"]


def test_a_late_acknowledgement_does_not_resume() -> None:
    told = Told()
    told.acknowledged()
    told.passes(20.0)
    sent = told.lease.sending()
    told.passes(9.0)
    told.acknowledged(sent)
    assert told.calls == ["suspend"]
    told.acknowledged()
    assert told.calls == ["suspend", "resume"]
    assert told.lease.valid


def test_a_server_whose_log_is_fenced_goes_on_without_a_lease(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.acknowledged(suspends=False)
    told.clock.now_s += 1_000
    assert told.lease.valid
    told.lease.check()
    assert told.lease.valid
    assert told.calls == []
    assert not caplog.records, "it is not suspended, and no line says so"


def test_each_lease_that_ends_suspends_and_each_one_after_it_resumes() -> None:
    told = Told()
    for life in range(1, 4):
        told.acknowledged()
        told.passes(8.1)
        assert told.calls == ["suspend", *["resume", "suspend"] * (life - 1)]
        assert told.lease.wait_s() == pytest.approx(0.8), "a suspended server looks no more often"


def test_a_server_serves_by_the_fence_that_its_last_registration_names() -> None:
    told = Told()
    for _ in range(2):
        told.acknowledged(suspends=False)
        told.passes(9.0)
        assert told.lease.valid
        told.acknowledged(suspends=True)
        told.passes(9.0)
        lapsed = not told.lease.valid
        assert lapsed
    assert told.calls == ["suspend", "resume", "suspend"]


def test_a_server_that_stops_before_it_was_registered_is_suspended() -> None:
    told = Told()
    told.lease.end()
    assert told.calls == ["suspend"]


@pytest.mark.parametrize("suspends", [True, False])
def test_an_ended_lease_stays_ended(suspends: bool) -> None:
    told = Told()
    told.acknowledged(suspends=suspends)
    told.lease.end()
    told.lease.end()
    told.acknowledged(suspends=suspends)
    told.lease.check()
    assert not told.lease.valid
    assert told.calls == ["suspend"]


def test_the_next_check_comes_when_the_lease_ends_or_earlier() -> None:
    told = Told()
    told.acknowledged()
    assert told.lease.wait_s() == pytest.approx(0.8)
    told.passes(7.9)
    assert told.lease.wait_s() == pytest.approx(0.1)
    told.ahead_s += 0.05
    assert told.lease.wait_s() == pytest.approx(0.05)
    told.clock.now_s += 2.0
    assert told.lease.wait_s() == 0.001


def paused(told: Told, seconds: float, *, counted: bool) -> None:
    """Holds the machine. ``counted``: its clock counts that; else the wall clock alone does, which is set after it."""
    if counted:
        told.clock.now_s += seconds
    else:
        told.ahead_s += seconds


@pytest.mark.parametrize("counted", [True, False], ids=["by its clock", "by the wall clock alone"])
def test_a_machine_that_was_held_serves_nothing_until_a_poll_is_acknowledged_that_it_sent_later(counted: bool) -> None:
    """It owned regions for 3.1 s of a lease of 4 s after they had gone elsewhere."""
    told = Told()
    told.acknowledged()
    sent = told.lease.sending()
    paused(told, 3.0, counted=counted)
    held = not told.lease.valid
    assert held, "also before the loop has looked"
    told.acknowledged(sent)  # its response waited in the socket, and is younger than the lease
    assert not told.lease.valid
    told.lease.check()
    assert told.calls == ["suspend"]
    told.acknowledged()
    assert told.calls == ["suspend", "resume"]
    assert told.lease.valid


@pytest.mark.parametrize("counted", [True, False], ids=["by its clock", "by the wall clock alone"])
def test_a_lease_ends_by_the_clock_that_counted_more(counted: bool) -> None:
    told = Told()
    told.acknowledged()
    for _ in range(5):
        told.passes(0.3)
        paused(told, 1.5, counted=counted)
        told.lease.check()
    assert not told.lease.valid
    assert told.calls == ["suspend"]


def test_a_poll_that_is_sent_before_the_loop_has_looked_after_a_gap_ends_the_doubt() -> None:
    told = Told()
    told.acknowledged()
    told.clock.now_s += 5.0
    told.acknowledged(told.lease.sending())
    assert told.lease.valid


@pytest.mark.parametrize("ahead_s", [86_400.0, -86_400.0])
def test_a_wall_clock_that_is_set_costs_one_poll_at_most(ahead_s: float) -> None:
    told = Told()
    told.acknowledged()
    told.ahead_s += ahead_s
    told.lease.check()
    assert told.lease.valid is (ahead_s < 0)
    told.acknowledged()
    assert told.lease.valid
    told.passes(7.8)
    assert told.lease.valid
    told.passes(0.3)
    assert not told.lease.valid


def test_a_service_that_raises_is_suspended_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def suspend() -> None:
        raise OSError("disk")

    clock = Clock()
    lease = Lease(clock, suspend, suspend)
    lease.renew(lease.sending(), 10_000, True)
    clock.now_s += 10.0
    lease.check()
    assert not lease.valid
    assert "the service failed in suspend" in caplog.text


async def test_an_agent_is_suspended_when_no_poll_is_acknowledged_and_resumes_with_the_next() -> None:
    service, clock = Recorded(), Clock()
    async with (
        StandIn(lease_ms=10_000, hold_ms=20).running() as daemon,
        started(service, daemon, clock=clock) as agent,
    ):
        daemon.send(opens(7, 1))
        await daemon.result(7)
        assert agent.owns(1, 7)

        async def standby(request: Request) -> Response:
            return Refused(NOT_ACTIVE, "a standby")

        daemon.responses = {Poll: standby, Register: standby}
        await daemon.arrived(Poll, len(daemon.seen(Poll)) + 2)
        clock.now_s += 8.1
        assert not agent.serving
        assert not agent.owns(1)
        await eventually(lambda: ("suspend",) in service.calls)
        daemon.responses = {}
        await eventually(lambda: ("resume",) in service.calls)
        assert agent.owns(1, 7)


async def test_no_operation_begins_without_a_valid_lease() -> None:
    service, clock = Recorded(), Clock()
    async with StandIn(lease_ms=10_000, hold_ms=20).running() as daemon, started(service, daemon, clock=clock):
        standby = True

        async def respond(request: Request) -> Response:
            if standby:
                clock.now_s += 10.0  # the response comes when the lease has ended
            return await daemon.respond(request)

        daemon.responses[Poll] = respond
        await eventually(lambda: ("suspend",) in service.calls)
        daemon.send(opens(7, 1))
        polls = len(daemon.seen(Poll))
        await daemon.arrived(Poll, polls + 3)
        assert ("open", 1, 7) not in service.calls
        standby = False
        assert (await daemon.result(7)).outcome == OPENED


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
        assert await agent.leave(60)
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
        assert await agent.leave(60)
    assert len(daemon.seen(Register)) == 1
