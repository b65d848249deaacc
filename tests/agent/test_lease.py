"""Rule 5: without a valid lease the service is suspended, and nothing is served."""

from __future__ import annotations

import pytest

from regent_agent.lease import Lease
from regent_agent.protocol import NOT_ACTIVE, OPENED, Poll, Refused, Register, Request, Response
from tests.agent.kit import Clock, Recorded, opens, started
from tests.agent.stand_in import StandIn
from tests.polling import eventually


class Told:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.clock = Clock()
        self.lease = Lease(self.clock, lambda: self.calls.append("suspend"), lambda: self.calls.append("resume"))


def test_a_server_without_a_registration_has_no_lease_and_is_not_suspended() -> None:
    told = Told()
    told.lease.check()
    assert not told.lease.valid
    assert told.calls == []


def test_the_lease_counts_from_the_sending_of_the_acknowledged_request() -> None:
    told = Told()
    told.lease.renew(sent_s=998.0, lease_ms=10_000, suspends=True)
    told.clock.now_s = 1005.9
    assert told.lease.valid
    told.clock.now_s = 1006.0
    lapsed = not told.lease.valid
    assert lapsed
    told.lease.check()
    told.lease.check()
    assert told.calls == ["suspend"]


def test_a_late_acknowledgement_does_not_resume() -> None:
    told = Told()
    told.lease.renew(1000.0, 10_000, True)
    told.clock.now_s = 1100.0
    told.lease.check()
    told.lease.renew(1050.0, 10_000, True)
    assert told.calls == ["suspend"]
    told.lease.renew(1099.0, 10_000, True)
    assert told.calls == ["suspend", "resume"]
    assert told.lease.valid


def test_a_server_whose_log_is_fenced_goes_on_without_a_lease() -> None:
    told = Told()
    told.lease.renew(1000.0, 10_000, suspends=False)
    told.clock.now_s = 2000.0
    told.lease.check()
    assert told.lease.valid
    assert told.calls == []


@pytest.mark.parametrize("suspends", [True, False])
def test_an_ended_lease_stays_ended(suspends: bool) -> None:
    told = Told()
    told.lease.renew(1000.0, 10_000, suspends)
    told.lease.end()
    told.lease.end()
    told.lease.renew(1000.0, 10_000, suspends)
    told.lease.check()
    assert not told.lease.valid
    assert told.calls == ["suspend"]


def test_the_next_check_comes_when_the_lease_ends_or_earlier() -> None:
    told = Told()
    told.lease.renew(1000.0, 10_000, True)
    assert told.lease.wait_s() == pytest.approx(0.8)
    told.clock.now_s = 1007.9
    assert told.lease.wait_s() == pytest.approx(0.1)
    told.clock.now_s = 1010.0
    assert told.lease.wait_s() == 0.001


def test_a_service_that_raises_is_suspended_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def suspend() -> None:
        raise OSError("disk")

    clock = Clock()
    lease = Lease(clock, suspend, suspend)
    lease.renew(1000.0, 10_000, True)
    clock.now_s = 1010.0
    lease.check()
    assert not lease.valid
    assert "the service failed in suspend" in caplog.text


async def test_an_agent_is_suspended_when_no_poll_is_acknowledged_and_resumes_with_the_next() -> None:
    service, clock = Recorded(), Clock()
    async with (
        StandIn(lease_ms=1_000, hold_ms=20).running() as daemon,
        started(service, daemon, clock=clock) as agent,
    ):
        daemon.send(opens(7, 1))
        await daemon.result(7)
        assert agent.owns(1, 7)

        async def standby(request: Request) -> Response:
            return Refused(NOT_ACTIVE, "a standby")

        daemon.responses = {Poll: standby, Register: standby}
        await daemon.arrived(Poll, len(daemon.seen(Poll)) + 2)
        clock.now_s += 0.81
        assert not agent.serving
        assert not agent.owns(1)
        await eventually(lambda: ("suspend",) in service.calls)
        daemon.responses = {}
        await eventually(lambda: ("resume",) in service.calls)
        assert agent.owns(1, 7)


async def test_no_operation_begins_without_a_valid_lease() -> None:
    service, clock = Recorded(), Clock()
    async with StandIn(lease_ms=1_000, hold_ms=20).running() as daemon, started(service, daemon, clock=clock):
        standby = True

        async def respond(request: Request) -> Response:
            if standby:
                clock.now_s += 1.0  # the response comes when the lease has ended
            return await daemon.respond(request)

        daemon.responses[Poll] = respond
        await eventually(lambda: ("suspend",) in service.calls)
        daemon.send(opens(7, 1))
        polls = len(daemon.seen(Poll))
        await daemon.arrived(Poll, polls + 3)
        assert ("open", 1, 7) not in service.calls
        standby = False
        assert (await daemon.result(7)).outcome == OPENED
