"""When batches are sent, and up to where each of them reads the feed."""

from __future__ import annotations

import pytest

from brokers.outbound.delivery import UNHURRIED_S_MAX, Shared
from brokers.transport import TcpTransport
from state_machines.propagation.propagation import Propagation
from tests.core.channel_world import in_flight, nothing_for, settings, settled, stopped_clock, world
from tests.core.fake_broker import LEADER_AND_ISR, UPDATE_METADATA
from tests.core.model import P, make_cluster


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the channels' clock, which moves by hand alone."""
    return stopped_clock(monkeypatch)


@pytest.mark.parametrize("urgent", [True, False])
async def test_batches_wait_during_a_large_decision_and_one_follows_its_end(urgent: bool, clock: list[float]) -> None:
    """After each decision the usual interval holds again."""
    async with world(1, seal_interval_ms=20, bulk_batch_interval_ms=1_000) as w:
        first, second = await w.load((1,), (1,), snapshot=False)
        delay_s = 1.0 if urgent else UNHURRIED_S_MAX
        for _ in range(3):
            w.one.mark()
            clock[0] += 10
            with w.channels.more_coming(urgent=urgent):
                w.elect(first)
                clock[0] += 0.9 * delay_s
                await nothing_for(w, 1)
                w.elect(second)
            await settled(w)
            assert w.one.apis() == "Lu"
            assert w.one.of(LEADER_AND_ISR)[-1].partitions() == [("t", 0), ("t", 1)]
            clock[0] += 0.03
            w.elect(first)
            await settled(w)


@pytest.mark.parametrize("urgent", [True, False])
async def test_a_batch_waits_no_longer_than_its_bound_during_a_large_decision(urgent: bool, clock: list[float]) -> None:
    async with world(1, bulk_batch_interval_ms=100) as w:
        [row] = await w.load((1,), snapshot=False)
        clock[0] += 10
        with w.channels.more_coming(urgent=urgent):
            w.elect(row)
            await nothing_for(w, 1)
            clock[0] += 0.11 if urgent else UNHURRIED_S_MAX + 0.01
            await settled(w)
            assert w.one.apis() == "Lu"


async def test_a_decision_within_one_that_is_not_urgent_waits_for_the_end_of_the_outer_one(clock: list[float]) -> None:
    async with world(1, bulk_batch_interval_ms=10) as w:
        rows = await w.load((1,), (1,), snapshot=False)
        clock[0] += 10
        with w.channels.more_coming(urgent=False):
            for row in rows:
                with w.channels.more_coming():
                    w.elect(row)
                clock[0] += 0.4 * UNHURRIED_S_MAX
                await nothing_for(w, 1)
        await settled(w)
        assert w.one.apis() == "Lu"


async def test_changes_from_before_a_decision_do_not_wait_for_its_end(clock: list[float]) -> None:
    async with world(1, 2, bulk_batch_interval_ms=10) as w:
        first, second = await w.load((1, 2), (1, 2), snapshot=False)
        w.elect(first)
        with w.channels.more_coming(urgent=False):
            clock[0] += 0.02
            await nothing_for(w, 2)  # its leader has acknowledged
            clock[0] += 0.02
            await settled(w)
            w.elect(second)
            clock[0] += 0.02
            await nothing_for(w, 1, 2)
        await nothing_for(w, 2)
        clock[0] += 0.1
        await settled(w)
        assert [broker.apis() for broker in w.brokers.values()] == ["LuLu", "uLuL"]


async def test_a_follower_is_sent_leadership_soon_after_its_leader_though_the_decision_goes_on(
    clock: list[float],
) -> None:
    async with world(1, 2, bulk_batch_interval_ms=10) as w:
        [row] = await w.load((1, 2), snapshot=False)
        with w.channels.more_coming(urgent=False):
            w.elect(row)
            clock[0] += UNHURRIED_S_MAX + 0.01
            await nothing_for(w, 2)
            clock[0] += 0.02
            await settled(w)


@pytest.mark.parametrize(("more_coming", "interval_s"), [(0, 0.02), (1, 0.1)])
def test_batches_of_one_round_share_a_body_and_the_next_round_reads_on(
    more_coming: int, interval_s: float, clock: list[float]
) -> None:
    chosen = settings(seal_interval_ms=20, bulk_batch_interval_ms=100)
    propagation = Propagation(make_cluster(P((1,), 1), P((1,), 1)))
    shared = Shared(propagation, chosen, TcpTransport(), lambda: True, lambda _: None)
    shared.more_coming = more_coming
    propagation.metadata_changed([0])
    first = shared.batcher.update_metadata(0, shared.cut())
    propagation.metadata_changed([1])
    clock[0] += 0.9 * interval_s
    assert shared.batcher.update_metadata(0, shared.cut()) is first
    clock[0] += 0.2 * interval_s
    assert shared.cut() == propagation.feed.number == 2


async def test_a_broker_that_is_late_in_a_round_is_sent_what_the_others_were_sent(clock: list[float]) -> None:
    async with world(1, 2, seal_interval_ms=100) as w:
        one, two = w.brokers.values()
        rows = await w.load((1,), (1,), (2,), snapshot=False)
        clock[0] = 110.0
        two.hold()
        w.channels.leader_and_isr_to(2, rows[2:])
        await in_flight(two, "L")
        clock[0] = 110.05
        w.elect(rows[0])
        await in_flight(one, "Lu")
        w.elect(rows[1])
        clock[0] = 110.11
        two.let_go.set()
        await in_flight(two, "Lu")
        clock[0] = 120.0
        await settled(w)
        assert [request.partitions() for request in two.of(UPDATE_METADATA)[1:]] == [[("t", 0)], [("t", 1)]]
