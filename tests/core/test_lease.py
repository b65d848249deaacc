"""The daemon's own clock on its session, and the guard that ends a process whose loop does not turn."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from unittest import mock

import pytest

from controller.engine.gate import Gate, TermEnded
from controller.process.clock import boottime_s
from controller.process.stall_guard import STALLED_EXIT, StallGuard
from controller.role.lease import HEARTBEATS_PER_TIMEOUT, Lease
from metadata_store.errors import NotConnected, SessionLost
from tests.core.controller_parts import Clock
from tests.core.virtual_time import in_virtual_time


def loop_lease(session_s: float = 6.0) -> Lease:
    return Lease(session_s, asyncio.get_running_loop().time)


# -- the lease


@pytest.mark.seed("S4-86")
def test_a_lease_counts_from_the_sending_of_what_was_answered() -> None:
    clock = Clock()
    lease = Lease(10.0, clock)
    assert not lease.valid(), "nothing was answered yet"
    sent_s = clock()
    clock.now_s += 3.0
    lease.answered(sent_s)
    assert lease.remaining_s() == pytest.approx(5.0)
    clock.now_s += 4.99
    assert lease.valid()
    clock.now_s += 0.02
    assert not lease.valid()


def test_an_older_answer_that_comes_late_takes_nothing_away() -> None:
    clock = Clock()
    lease = Lease(10.0, clock)
    lease.answered(clock())
    lease.answered(clock() - 5.0)
    assert lease.remaining_s() == pytest.approx(8.0)


def test_the_fraction_is_a_setting() -> None:
    lease = Lease.of_session(10.0, 0.5)
    lease.answered(boottime_s())
    assert 4.5 < lease.remaining_s() <= 5.0


def test_a_shorter_session_timeout_holds_at_once_and_a_longer_one_from_the_next_heartbeat_on() -> None:
    clock = Clock()
    lease = Lease(18.0, clock)
    lease.answered(clock())
    clock.now_s += 1.0
    lease.renegotiated(6.0)
    assert lease.remaining_s() == pytest.approx(3.8)
    lease.renegotiated(30.0)
    assert lease.remaining_s() == pytest.approx(3.8)
    lease.answered(clock())
    assert lease.remaining_s() == pytest.approx(24.0)
    assert lease.session_timeout_s == 30.0


@in_virtual_time
async def test_heartbeats_follow_the_newest_session_timeout() -> None:
    lease, sent = loop_lease(60.0), list[float]()

    async def heartbeat() -> None:
        sent.append(asyncio.get_running_loop().time())

    keeping = asyncio.create_task(lease.keep(heartbeat, NotConnected))
    await asyncio.sleep(1.0)
    lease.renegotiated(6.0)
    await asyncio.sleep(59.0)
    assert sent[1] - sent[0] == pytest.approx(1.0, abs=0.1), "at once"
    assert sent[-1] - sent[-2] == pytest.approx(1.0, abs=0.1)
    keeping.cancel()


@in_virtual_time
async def test_heartbeats_keep_it_and_their_end_lets_it_run_out() -> None:
    lease, answers, beats = loop_lease(), True, 0

    async def heartbeat() -> None:
        nonlocal beats
        beats += 1
        if not answers:
            raise NotConnected

    keeping = asyncio.create_task(lease.keep(heartbeat, NotConnected))
    await asyncio.sleep(60.0)
    assert lease.valid()
    assert 10 * HEARTBEATS_PER_TIMEOUT <= beats <= 10 * HEARTBEATS_PER_TIMEOUT + 2
    answers = False
    await asyncio.sleep(4.9)
    assert not lease.valid()
    answers = True
    await asyncio.sleep(1.5)
    assert lease.valid(), "the same session answered again"
    keeping.cancel()


@in_virtual_time
async def test_a_heartbeat_that_hangs_is_given_up_after_a_session() -> None:
    lease, hangs = loop_lease(), [True]

    async def heartbeat() -> None:
        if hangs[0]:
            await asyncio.sleep(3_600)

    keeping = asyncio.create_task(lease.keep(heartbeat, NotConnected))
    await asyncio.sleep(5.9)
    assert not lease.valid()
    hangs[0] = False
    await asyncio.sleep(2.0)
    assert lease.valid()
    keeping.cancel()


@in_virtual_time
async def test_the_first_heartbeat_on_a_new_connection_follows_soon() -> None:
    lease, connected = loop_lease(60.0), False

    async def heartbeat() -> None:
        if not connected:
            raise NotConnected

    keeping = asyncio.create_task(lease.keep(heartbeat, NotConnected))
    await asyncio.sleep(100.0)
    connected, since_s = True, asyncio.get_running_loop().time()
    await lease.until_valid()
    assert asyncio.get_running_loop().time() - since_s < 0.5
    await lease.until_valid()
    keeping.cancel()


@in_virtual_time
async def test_a_slow_answer_renews_from_its_sending_only() -> None:
    lease = loop_lease()

    async def heartbeat() -> None:
        await asyncio.sleep(4.0)

    keeping = asyncio.create_task(lease.keep(heartbeat, NotConnected))
    await asyncio.sleep(4.1)
    assert lease.remaining_s() == pytest.approx(0.7, abs=0.05)
    await asyncio.sleep(0.8)
    assert not lease.valid()
    keeping.cancel()


@in_virtual_time
async def test_a_lost_session_is_nothing_that_ends_the_keeper() -> None:
    lease = loop_lease()
    heartbeat = mock.AsyncMock(side_effect=SessionLost("over"))
    keeping = asyncio.create_task(lease.keep(heartbeat, NotConnected))
    await asyncio.sleep(10.0)
    assert not keeping.done()
    assert heartbeat.await_count > 5
    keeping.cancel()


# -- the term


@pytest.mark.seed("S4-86")
async def test_the_gate_needs_term_connection_and_lease() -> None:
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


async def test_a_term_ends_at_once_from_any_thread_and_the_first_reason_stays() -> None:
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


async def test_a_term_that_ended_before_it_began_does_nothing() -> None:
    gate = Gate(7, 3, Lease(10.0, Clock()), lambda: True)
    gate.end("asked to stop")
    await asyncio.sleep(0)
    with gate.scope:
        await asyncio.sleep(3_600)


# -- the stall guard


STALLS = """
import asyncio, os, signal, time
from controller.process.stall_guard import StallGuard

async def main():
    guard = StallGuard(0.25)
    guard.start()
    ticking = asyncio.create_task(guard.tick())
    await asyncio.sleep(0.1)
    print("turning", flush=True)
    {act}
    await asyncio.sleep(5)

asyncio.run(main())
"""


def stalled(act: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STALLS.format(act=act)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("how", ["blocked", "stopped"])
def test_a_process_whose_loop_does_not_turn_ends_and_says_where_it_was(how: str) -> None:
    """A frozen daemon's session would live on: ZooKeeper hears from another thread."""
    with stalled("time.sleep(5)" if how == "blocked" else "pass") as child:
        assert child.stdout is not None
        child.stdout.readline()
        if how == "stopped":
            os.kill(child.pid, signal.SIGSTOP)
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.6)
            os.kill(child.pid, signal.SIGCONT)
        _, said = child.communicate(timeout=10)
    assert child.returncode == STALLED_EXIT
    assert "the event loop stood still for" in said
    assert "controller.loop_stall_ms_max" in said
    assert "Thread MainThread:" in said


@in_virtual_time
async def test_a_loop_that_turns_is_left_alone_and_the_longest_pause_is_known() -> None:
    clock = Clock()
    guard = StallGuard(1.0, clock)
    with mock.patch.object(guard, "_end") as end:
        ticking = asyncio.create_task(guard.tick())
        await asyncio.sleep(0.01)
        clock.now_s += 0.9
        await asyncio.sleep(0.06)
        end.assert_not_called()
        assert guard.longest_s == pytest.approx(0.85)
        clock.now_s += 1.1
        await asyncio.sleep(0.06)
        end.assert_called_once()
        ticking.cancel()


def test_the_guard_ends_the_process_before_the_session_that_was_granted() -> None:
    guard = StallGuard(6.0)
    guard.within(18.0)
    assert guard.limit_s == 6.0
    guard.within(4.0)
    assert guard.limit_s == pytest.approx(1.8)
    guard.within(18.0)
    assert guard.limit_s == 6.0


def test_a_slow_start_is_no_stall() -> None:
    clock = Clock()
    guard = StallGuard(1.0, clock)
    clock.now_s += 60.0
    assert guard.stalled_s() == 0.0


def test_loop_and_thread_that_both_find_a_stall_write_one_line() -> None:
    guard, said = StallGuard(1.0), list[str]()

    def ends() -> None:
        with pytest.raises(SystemExit):
            guard._end(3.0)

    def last_words(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            other = threading.Thread(target=ends)
            other.start()
            other.join()

    guard.last_words = last_words
    with mock.patch("controller.process.stall_guard.LAST_WORDS_S_MAX", 0.01), mock.patch("os._exit") as end:
        end.side_effect = SystemExit
        with pytest.raises(SystemExit):
            guard._end(2.0)
    assert len(said) == 1
    assert [call.args for call in end.call_args_list] == [(STALLED_EXIT,)] * 2


async def test_a_loop_that_ended_in_order_is_not_watched_any_more() -> None:
    """The last seconds of a process (HTTP's graceful stop) are no stall."""
    clock = Clock()
    guard = StallGuard(0.02, clock)
    with mock.patch.object(guard, "_end") as end:
        ticking = asyncio.create_task(guard.tick())
        await asyncio.sleep(0)
        guard.start()
        ticking.cancel()
        await asyncio.wait({ticking})
        clock.now_s += 10.0
        assert guard._stop.wait(1.0)
        await asyncio.sleep(0.03)
        end.assert_not_called()
