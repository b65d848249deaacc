"""The order of requests in a batch, the times of batches, and the end of the feed for each of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import pytest

from brokers.outbound import channel
from brokers.outbound.delivery import UNHURRIED_S_MAX, Shared
from brokers.transport import TcpTransport
from state_machines.propagation.propagation import Propagation
from tests.kit.kafka.brokers import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.channels import (
    ChannelsWorld,
    in_flight,
    nothing_for,
    settings,
    settled,
    stop,
    stopped_clock,
    world,
)
from tests.kit.kafka.model import P, make_cluster


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the channels' clock, which moves by hand alone."""
    return stopped_clock(monkeypatch)


KINDS = ("leadership", "metadata", "live list", "stop")


@pytest.mark.parametrize("kinds", [kinds for size in (1, 2, 3, 4) for kinds in combinations(KINDS, size)])
async def test_requests_of_one_batch_have_one_order(kinds: tuple[str, ...]) -> None:
    """The live list goes alone only where LeaderAndIsr needs it first, or where no partition carries it."""
    async with world(1) as w:
        rows = await w.load((1,), (1,))
        w.one.hold()
        w.channels.metadata_changed([rows[0]])
        await in_flight(w.one, "u")
        change(w, rows, kinds)
        w.one.let_go.set()
        await settled(w)
        alone = "live list" in kinds and ("leadership" in kinds or "metadata" not in kinds)
        batch = "U" * alone + "L" * ("leadership" in kinds) + "u" * ("metadata" in kinds) + "S" * ("stop" in kinds)
        assert w.one.apis() == "u" + batch
        assert w.one.in_flight_max == 1


def change(w: ChannelsWorld, rows: list[int], kinds: Iterable[str]) -> None:
    """Makes changes that need these requests, in the reverse order of a batch."""
    for kind in reversed(list(kinds)):
        match kind:
            case "leadership":
                w.channels.leader_and_isr_to(1, rows[:1])
            case "metadata":
                w.channels.metadata_changed(rows[:1])
            case "live list":
                w.channels.live_list_changed()
            case _:
                w.channels.propagate((), [stop(rows[1])])


async def test_changes_during_a_batch_wait_for_the_next_one() -> None:
    async with world(1, 2) as w:
        rows = await w.load((1, 2), (1, 2), (2, 1))
        w.one.hold()
        w.elect(rows[0])
        await in_flight(w.one, "L")
        w.elect(rows[1])
        w.channels.propagate((), [stop(rows[2])])
        w.one.let_go.set()
        await settled(w)
        assert w.one.apis() == "Lu" + "LuS"


async def test_changes_of_a_partition_during_a_request_reach_the_broker_merged() -> None:
    async with world(1) as w:
        rows = await w.load(*[(1,)] * 3)
        w.one.hold()
        w.elect(rows[0])
        await in_flight(w.one, "L")
        for _ in range(50):
            w.elect(*rows)
        w.one.let_go.set()
        await settled(w)
        assert w.one.apis() == "LLu"
        merged = {("t", p): (3 + 50 + (p == 0), 58 + (p == 0)) for p in range(3)}
        assert w.one.of(LEADER_AND_ISR)[-1].epochs() == merged


async def test_a_request_has_a_bounded_number_of_partitions_and_the_next_one_follows_at_once(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setattr(channel, "REQUEST_ROWS_MAX", 2)
    async with world(1) as w:
        rows = await w.load(*[(1,)] * 5, snapshot=False)
        clock[0] += 10
        w.elect(*rows)
        w.channels.propagate((), [stop(rows[0])])
        await settled(w)
        assert w.one.apis() == "LLuS"
        assert [len(request.partitions()) for request in w.one.of(LEADER_AND_ISR)] == [2, 2]


async def test_the_first_batch_after_a_pause_goes_at_once_and_the_next_one_after_the_interval(
    clock: list[float],
) -> None:
    async with world(1, seal_interval_ms=20) as w:
        rows = await w.load(*[(1,)] * 3)
        for _ in range(3):
            w.one.mark()
            clock[0] += 10
            w.elect(rows[0])
            await settled(w)
            w.elect(rows[1])
            clock[0] += 0.019
            await nothing_for(w, 1)
            w.elect(rows[2])
            clock[0] += 0.002
            await settled(w)
            assert w.one.apis() == "Lu" + "Lu"
            assert w.one.of(LEADER_AND_ISR)[-1].partitions() == [("t", 1), ("t", 2)]


# -- large decisions


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
