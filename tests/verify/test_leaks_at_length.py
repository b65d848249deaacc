"""Memory stays flat over ten thousand bounces, two thousand terms and five thousand topics.

The bounces have the bounds as shipped: windows of recent durations and changes are filled first.

``tests/unit/controller/daemon/test_leaks.py`` shows with small numbers that a leak would be seen.
"""

from __future__ import annotations

from unittest import mock

import pytest

from controller.kafka.path.remembered import CHANGES_MAX
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.leaks import PARTITIONS, Bouncing, Terms, Topics, flat, growth, life, short_windows

BOUNCES, TERMS, TOPICS = 10_000, 2_000, 5_000
UNTIL_FULL = CHANGES_MAX // 5
"""Bounces until the last changes fill their window: each changes six partitions."""


@pytest.mark.timeout(300)
@in_virtual_time
async def test_memory_stays_flat_over_ten_thousand_bounces() -> None:
    async with life(1, 2, 3, 4) as w:
        await w.topic("t", *PARTITIONS, leaders=True)
        await w.calm()
        left = await growth(Bouncing(w), UNTIL_FULL, BOUNCES)
        assert flat(left, BOUNCES), left
        assert w.daemon.counters.terms == 1


@pytest.mark.timeout(300)
@in_virtual_time
async def test_memory_stays_flat_over_two_thousand_terms() -> None:
    with short_windows():
        async with life(1, 2, 3, 4) as w:
            await w.topic("t", *PARTITIONS, leaders=True)
            await w.calm()
            left = await growth(Terms(w), 100, TERMS)
            assert w.daemon.counters.terms == 101 + TERMS
            assert flat(left, TERMS), left


@pytest.mark.timeout(300)
@in_virtual_time
async def test_memory_stays_flat_over_five_thousand_deleted_topics() -> None:
    with short_windows(), mock.patch("controller.kafka.topics.topic_change.ENDED_ROWS_MAX", 2_999):
        async with life(1, 2, 3, 4) as w:
            await w.topic("t", *PARTITIONS, leaders=True)
            await w.calm()
            left = await growth(Topics(w), 1_000, TOPICS)
            assert (w.daemon.counters.terms, w.daemon.counters.resignations["renewed"]) == (7, 6)
            assert flat(left, TOPICS), left
