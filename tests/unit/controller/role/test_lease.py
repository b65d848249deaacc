"""Measures the daemon's own lease on its session, by its clock, and the gate that closes with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from controller.kafka.path.gate import Gate, TermEnded
from controller.process.clock import boottime_s
from controller.role.lease import HEARTBEATS_PER_TIMEOUT, REFUSED_PAUSE_S, Lease
from metadata_store.errors import NotConnected, SessionLost
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.parts import Clock


@pytest.mark.seed("S4-86")
def test_a_lease_counts_from_the_sending_of_the_last_answered_heartbeat() -> None:
    clock = Clock()
    lease = Lease(10.0, clock)
    assert not lease.valid(), "no heartbeat was answered yet"
    sent_s = clock()
    clock.now_s += 3.0
    lease.answered(sent_s)
    assert [lease.remaining_s(), lease.silent_s()] == pytest.approx([5.0, 3.0])
    lease.answered(sent_s - 5.0)
    assert [lease.remaining_s(), lease.silent_s()] == pytest.approx([5.0, 3.0]), "an older answer that comes late"
    clock.now_s += 4.99
    assert lease.valid()
    clock.now_s += 0.01
    assert not lease.valid(), "it ends at its deadline"


def test_the_fraction_of_the_session_timeout_is_a_setting() -> None:
    lease = Lease.of_session(10.0, 0.5)
    lease.answered(boottime_s())
    assert 4.5 < lease.remaining_s() <= 5.0


def test_a_shorter_session_timeout_holds_at_once_and_a_longer_one_from_the_next_heartbeat_on() -> None:
    clock = Clock()
    lease = Lease(18.0, clock)
    for _ in range(2):
        lease.answered(clock())
        clock.now_s += 1.0
        lease.renegotiated(6.0)
        assert lease.remaining_s() == pytest.approx(3.8)
        lease.renegotiated(30.0)
        assert lease.remaining_s() == pytest.approx(3.8)
        lease.answered(clock())
        assert lease.remaining_s() == pytest.approx(24.0)
        assert lease.session_timeout_s == 30.0


class Heartbeats:
    """Records the sending times of a lease's heartbeats; each takes ``takes_s`` and may fail."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.error: Exception | None = None
        self.takes_s = 0.0
        self.sent: list[float] = []

    async def send(self) -> None:
        self.sent.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error

    def pauses(self, since: int = 0) -> list[float]:
        return [round(after - before, 3) for before, after in pairwise(self.sent[since:])]


@asynccontextmanager
async def kept(session_s: float = 6.0, error: Exception | None = None) -> AsyncIterator[Heartbeats]:
    """Keeps a lease on the loop's clock inside the block."""
    beats = Heartbeats(Lease(session_s, asyncio.get_running_loop().time))
    beats.error = error
    keeping = asyncio.create_task(beats.lease.keep(beats.send, NotConnected))
    try:
        yield beats
        assert not keeping.done(), "no failed heartbeat ends the keeper"
    finally:
        keeping.cancel()


@in_exact_time
async def test_heartbeats_are_sent_six_times_in_each_session_timeout() -> None:
    async with kept() as beats:
        await asyncio.sleep(5 * 6.0)
        assert beats.pauses() == [6.0 / HEARTBEATS_PER_TIMEOUT] * (len(beats.sent) - 1)
        assert len(beats.sent) == 5 * HEARTBEATS_PER_TIMEOUT
        assert beats.lease.valid()


@in_exact_time
async def test_heartbeats_follow_a_shorter_session_timeout_at_once() -> None:
    async with kept(60.0) as beats:
        await asyncio.sleep(1.0)
        beats.lease.renegotiated(6.0)
        await asyncio.sleep(5.5)
        assert beats.pauses() == [1.0] * 6


@pytest.mark.parametrize("error", [NotConnected(), SessionLost("over")])
@in_exact_time
async def test_refused_heartbeats_let_the_lease_run_out_and_are_repeated_soon(error: Exception) -> None:
    async with kept() as beats:
        for _ in range(3):
            await asyncio.sleep(1.1)
            assert beats.lease.valid()
            refused = len(beats.sent)
            beats.error = error
            over = asyncio.ensure_future(beats.lease.until_over())
            await asyncio.sleep(3.5)
            assert not over.done(), "the last answered heartbeat was sent less than a lease ago"
            await asyncio.sleep(2.5)
            assert (beats.lease.valid(), over.done()) == (False, True)
            assert set(beats.pauses(refused)) == {REFUSED_PAUSE_S}
            beats.error = None
            await asyncio.wait_for(beats.lease.until_valid(), REFUSED_PAUSE_S)
            await beats.lease.until_valid()


@in_exact_time
async def test_a_short_session_shortens_the_pause_after_a_refused_heartbeat() -> None:
    async with kept(0.6, NotConnected()) as beats:
        await asyncio.sleep(1.05)
        assert set(beats.pauses()) == {0.1}


@in_exact_time
async def test_a_heartbeat_without_an_answer_is_given_up_after_a_session_timeout() -> None:
    async with kept() as beats:
        beats.takes_s = 3_600.0
        await asyncio.sleep(6.9)
        assert not beats.lease.valid()
        assert len(beats.sent) == 1
        beats.takes_s = 0.0
        await asyncio.sleep(0.2)
        assert beats.lease.valid()
        assert beats.pauses() == [7.0]


@in_exact_time
async def test_a_slow_answer_extends_the_lease_from_its_sending_only() -> None:
    async with kept() as beats:
        beats.takes_s = 4.0
        await asyncio.sleep(4.1)
        assert beats.lease.remaining_s() == pytest.approx(0.7)
        await asyncio.sleep(0.8)
        assert not beats.lease.valid()


# -- the gate


@pytest.mark.seed("S4-86")
async def test_the_gate_is_open_while_term_connection_and_lease_hold() -> None:
    clock, connected = Clock(), True
    lease = Lease(10.0, clock)
    gate = Gate(7, 3, lease, lambda: connected)
    assert not gate.open()
    lease.answered(clock())
    assert gate.open()
    connected = False
    assert not gate.open()
    connected = True
    clock.now_s += 8.01
    assert not gate.open()
    gate.check()
    lease.answered(clock())
    gate.end("a test")
    assert not gate.open()
    with pytest.raises(TermEnded, match="a test"):
        gate.check()


async def test_a_term_ends_at_once_from_any_thread_and_its_first_reason_stays() -> None:
    gate = Gate(7, 3, Lease(10.0, Clock()), lambda: True)
    stuck = asyncio.Event()
    ended: list[bool] = []

    def end() -> None:
        gate.end("the session is lost")
        ended.append(gate.ended)

    with gate.scope:
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert ended == [True], "before the loop turns"
        await stuck.wait()
        pytest.fail("the scope was not cancelled")
    gate.end("something later")
    assert gate.why_ended == "the session is lost"


async def test_a_term_that_ended_before_it_began_leaves_its_scope_at_once() -> None:
    gate = Gate(7, 3, Lease(10.0, Clock()), lambda: True)
    gate.end("the daemon stops")
    await asyncio.sleep(0)
    with gate.scope:
        await asyncio.sleep(3_600)
