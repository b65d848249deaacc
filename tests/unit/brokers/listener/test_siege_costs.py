"""Measurements of the siege: no delay is corrected by more than its own thread waited for at that time."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from tests.verify.hostile_peers import ATTACKS, done_by, frames
from tests.verify.siege import Waits, going_on
from tests.verify.siege_costs import HEAD, Cost, Delay, Lag, descriptors, starved_s, table, total

BOUNDS = (0.01, 0.1, 1.0, 5.0)


def late(*delays_s: float) -> dict[float, float]:
    """Returns a histogram of turns with these delays."""
    return {bound: sum(delay_s <= bound for delay_s in delays_s) for bound in BOUNDS}


def test_a_long_delay_is_not_corrected_by_waits_at_another_time() -> None:
    lag = Lag()
    lag.sample(late(), 0.0)
    lag.sample(late(0.9), 0.2)
    lag.sample(late(0.9, 0.005), 5.0)
    assert lag.raw_s == 1.0
    assert lag.own_s == pytest.approx(0.8)


def test_of_delays_the_longest_and_the_longest_after_correction_may_be_different_ones() -> None:
    delay = Delay()
    delay.add(4.0, 3.5)
    delay.add(1.0, 0.0)
    assert (delay.raw_s, delay.own_s) == (4.0, 1.0)
    delay.add(0.5, 9.0)
    assert (delay.raw_s, delay.own_s) == (4.0, 1.0)


def test_a_delay_before_the_first_sample_does_not_count() -> None:
    lag = Lag()
    lag.sample(late(4.0, 4.0), 0.0)
    lag.sample(late(4.0, 4.0, 0.05), 0.0)
    assert lag.raw_s == 0.1


def test_the_table_has_a_line_for_each_attack_and_one_for_the_worst() -> None:
    first = Cost("silent", "endpoint", {"opened": 5, "frames": 2}, memory_mb=(100, 300), lease_part=0.5)
    second = Cost("noise", "endpoint", {"opened": 7, "ended by the other side": 3}, memory_mb=(200, 90))
    first.lag.add(0.25, 0.05)
    second.broker.add(1.5, 0.0)
    worst = total([first, second])
    assert worst.counts == {"opened": 12, "frames": 2, "ended by the other side": 3}
    assert (worst.memory_mb, worst.lease_part) == ((200, 300), 0.5)
    assert (worst.lag.raw_s, worst.lag.own_s, worst.broker.raw_s) == (0.25, 0.2, 1.5)
    head, *rows = table([first, second]).splitlines()
    assert [row.split()[0] for row in rows] == ["silent", "noise", "all"]
    assert all(title in head for title in HEAD)
    assert len({len(row) for row in (head, *rows)}) == 1


def test_whole_frames_are_counted() -> None:
    assert frames(b"") == frames(b"\0\0") == frames(b"\0\0\0\5half") == frames(b"\xff" * 8) == 0
    assert frames(b"\0\0\0\1a" * 3 + b"\0\0\0\2b") == 3
    assert frames(ATTACKS["countless empty frames"].said()) == 100_000
    assert frames(ATTACKS["wrong seals, 16 MiB"].said()) == 1
    assert frames(ATTACKS["half of 16 MiB"].said()) == 0


def test_each_attack_has_counts_that_it_must_reach() -> None:
    assert done_by(ATTACKS["silent"]) == ["connected"]
    assert done_by(ATTACKS["drop by drop"]) == done_by(ATTACKS["half of 16 MiB"]) == ["connected", "bytes"]
    assert done_by(ATTACKS["wrong passwords"]) == ["connected", "bytes", "frames"]


async def test_a_call_with_a_response_after_the_attack_does_not_count_as_served() -> None:
    over, called = threading.Event(), threading.Event()

    async def call() -> None:
        called.set()
        await asyncio.to_thread(over.wait)

    waits = Waits(call)
    async with going_on(waits.go_on()):
        await asyncio.to_thread(called.wait)
        asyncio.get_running_loop().call_later(0.1, over.set)  # once the block is left
    assert waits.served == 0
    assert waits.delay.raw_s > 0


def test_starving_and_descriptors_of_a_process_are_measured() -> None:
    assert starved_s("thread-self") >= 0
    assert starved_s("self") >= 0
    assert descriptors(os.getpid()) > 0
