"""When batches go out, and up to where each of them reads the feed."""

from __future__ import annotations

import pytest

from brokers.outbound.delivery import UNHURRIED_S_MAX, Shared
from brokers.transport import TcpTransport
from state_machines.propagation.propagation import Propagation
from tests.core.channel_world import settings, settled, world
from tests.core.fake_broker import LEADER_AND_ISR, UPDATE_METADATA
from tests.core.model import P, make_cluster
from tests.polling import eventually


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The channels' clock, which moves only by hand."""
    now_s = [100.0]
    monkeypatch.setattr(Shared, "now_s", staticmethod(lambda: now_s[0]))
    return now_s


async def test_even_the_first_seal_of_a_large_decision_waits_for_more_of_it_and_its_end_is_told_at_once(
    clock: list[float],
) -> None:
    async with world(1, bulk_batch_interval_ms=1_000_000) as w:
        first, second = w.add_topic("t", [(1,)] * 2)
        await settled(w)
        clock[0] += 10
        with w.channels.more_coming():
            w.elect(first)
            assert await w.channels.quiesced(0.05) == {1}
            w.elect(second)
        await settled(w)
        assert w.brokers[1].apis() == "U" + "Lu"
        assert w.brokers[1].of(LEADER_AND_ISR)[0].partitions() == [("t", 0), ("t", 1)]


async def test_a_decision_that_is_not_urgent_is_told_once_for_all_of_it(clock: list[float]) -> None:
    async with world(1, bulk_batch_interval_ms=10) as w:
        first, second = w.add_topic("t", [(1,)] * 2)
        await settled(w)
        clock[0] += 10
        with w.channels.more_coming(urgent=False):
            for row in (first, second):
                with w.channels.more_coming():
                    w.elect(row)
                clock[0] += 1
                assert await w.channels.quiesced(0.05) == {1}
            clock[0] -= 1
        await settled(w)
        assert w.brokers[1].apis() == "U" + "Lu"


async def test_what_waited_before_it_does_not_wait_for_its_end(clock: list[float]) -> None:
    async with world(1, 2, bulk_batch_interval_ms=10) as w:
        first, second = w.add_topic("t", [(1, 2)] * 2)
        await settled(w)
        w.elect(first)
        with w.channels.more_coming(urgent=False):
            clock[0] += 0.02
            assert await w.channels.quiesced(0.05) == {2}, "the leader was told, now its follower may be"
            clock[0] += 0.02
            assert await w.channels.quiesced(0.5) == frozenset()
            w.elect(second)
            clock[0] += 0.02
            assert await w.channels.quiesced(0.05) == {1, 2}
        assert await w.channels.quiesced(0.05) == {2}
        clock[0] += 0.1
        await settled(w)
        assert [w.brokers[b].apis() for b in (1, 2)] == ["ULuLu", "UuLuL"]


async def test_a_follower_is_told_soon_after_its_leader_however_long_it_lasts(clock: list[float]) -> None:
    async with world(1, 2, bulk_batch_interval_ms=10) as w:
        [row] = w.add_topic("t", [(1, 2)])
        await settled(w)
        with w.channels.more_coming(urgent=False):
            w.elect(row)
            clock[0] += UNHURRIED_S_MAX + 0.01
            assert await w.channels.quiesced(0.05) == {2}
            clock[0] += 0.02
            assert await w.channels.quiesced(0.5) == frozenset()


@pytest.mark.parametrize(("more_coming", "interval_s"), [(0, 0.02), (1, 0.1)])
def test_seals_of_one_round_share_a_body_and_the_next_round_reads_on(
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


async def test_a_broker_that_is_late_in_a_round_hears_what_the_others_heard(clock: list[float]) -> None:
    async with world(1, 2, seal_interval_ms=100) as w:
        one, two = w.brokers.values()
        rows = w.add_topic("t", [(1,), (1,), (2,)])
        await settled(w)
        clock[0] = 110.0
        two.hold()
        w.channels.leader_and_isr_to(2, rows[2:])
        await eventually(lambda: two.apis() == "UL")
        clock[0] = 110.05
        w.elect(rows[0])
        await eventually(lambda: one.apis() == "ULu")
        w.elect(rows[1])
        clock[0] = 110.11
        two.let_go.set()
        await eventually(lambda: two.apis() == "ULu")
        assert two.of(UPDATE_METADATA)[-1].partitions() == [("t", 0)]
        clock[0] = 120.0
        await settled(w)
        assert [heard.partitions() for heard in two.of(UPDATE_METADATA)[1:]] == [[("t", 0)], [("t", 1)]]
