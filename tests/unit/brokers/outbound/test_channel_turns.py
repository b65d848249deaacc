"""The cache of encoded turns, topics that are withheld from them, and random runs with cuts and slow brokers."""

from __future__ import annotations

import asyncio
import random
import weakref

import pytest

from brokers.outbound import batches, channel, snapshot
from brokers.outbound.snapshot import Snapshots, Turn
from brokers.wire.versions import Ibp
from state_machines.model.cluster import Cluster
from state_machines.model.types import Leadership
from state_machines.propagation.propagation import Propagation
from tests.kit.channel_world import World, knows_the_model, never_lower, settled, world
from tests.kit.fake_broker import LEADER_AND_ISR, UPDATE_METADATA, FakeBroker
from tests.kit.model import EPOCH, registered, topic
from tests.kit.polling import eventually

TURN = 100
"""Rows per turn in these tests."""


# -- the cache


def audience_of(topics: int) -> tuple[Propagation, Snapshots]:
    """Returns two brokers that wait for a snapshot of topics with a turn's partitions each."""
    cluster = Cluster(EPOCH)
    cluster.observe_brokers(registered((1, 2)))
    for t in range(topics):
        rows = cluster.observe_topic(topic(f"t{t:03d}", [(1, 2)] * TURN))
        cluster.load_leadership(rows, [Leadership(1, 0, (1, 2), EPOCH, 0)] * TURN)
    propagation = Propagation(cluster)
    for broker in (1, 2):
        propagation.add(broker)
        propagation.snapshot(broker)
    return propagation, Snapshots(propagation, Ibp.parse("3.9"), TURN, cache_bytes_max=1)


def test_one_encoding_serves_all_brokers_and_a_dropped_turn_is_encoded_again_for_the_last_one() -> None:
    propagation, snapshots = audience_of(4)
    turn = snapshots.turn(1, 0)
    assert snapshots.turn(2, 0) is turn
    assert turn.take(1) is not None
    propagation.pending[1].turn = propagation.pending[2].turn = turn.last
    ahead = snapshots.turn(1, TURN)
    ahead.take(1)
    propagation.pending[1].turn = ahead.last
    snapshots.turn(1, 2 * TURN)
    again = snapshots.turn(2, TURN)
    assert again is not ahead
    assert again.leads.keys() == {2}
    assert again.metadata == ahead.metadata


@pytest.mark.parametrize("change", ["none", "row", "row behind it", "live list", "withheld", "handed out", "taken"])
def test_a_cached_turn_is_used_while_it_is_current_and_whole(change: str) -> None:
    propagation, snapshots = audience_of(100)
    propagation.withhold([7])
    turn = snapshots.turn(1, 0)
    match change:
        case "row":
            propagation.metadata_changed([TURN - 1])
        case "row behind it":
            propagation.metadata_changed([99 * TURN])
        case "live list":
            propagation.live_list_changed()
        case "withheld":
            propagation.withhold([0])
        case "handed out":
            propagation.hand_out([7])
        case "taken":
            turn.take(1)
    assert (snapshots.turn(1, 0) is turn) is (change in ("none", "row behind it"))


async def test_turns_are_freed_once_every_broker_has_acknowledged_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = weakref.WeakSet[Turn]()

    class Recorded(Turn):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            made.add(self)

    monkeypatch.setattr(snapshot, "Turn", Recorded)
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        w.add_topic("t", [(1, 2)] * (3 * TURN))
        w.brokers[2].hold()
        w.channels.snapshot()
        await eventually(lambda: w.channels.lag()[1].partitions == 0)
        assert len(made) == 3
        w.brokers[2].let_go.set()
        await settled(w)
        assert not made


# -- topics without an id


async def test_withheld_topics_are_left_out_of_the_metadata_of_brokers_whose_query_is_not_done() -> None:
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        w.add_topic("a", [(1, 2)] * 3)
        rows = w.add_topic("lost", [(1, 2)] * 3)
        w.channels.withhold([w.cluster.rows[rows[0]].topic])
        assert w.channels.permit_metadata([1, 7]) == [1]
        w.channels.snapshot()
        await settled(w)
        w.elect(*rows, leader=2)
        await settled(w)
        for number, known in ((1, {"a", "lost"}), (2, {"a"})):
            broker = w.brokers[number]
            assert {t for request in broker.of(UPDATE_METADATA) for t, _ in request.partitions()} == known
            led = {t for request in broker.of(LEADER_AND_ISR) for t, _ in request.partitions()}
            assert led == {"a", "lost"}, "LeaderAndIsr makes no broker forget an id"
        assert w.channels.permit_metadata([1, 2]) == [2]
        w.channels.snapshot([2])
        await settled(w)
        for broker in w.brokers.values():
            knows_the_model(w, broker)


# -- random runs


def bounce(w: World, broker: FakeBroker, dice: random.Random) -> None:
    """Replaces a broker by a new incarnation that knows nothing."""
    hosted = w.cluster.hosted(broker.id)
    w.deregister(broker.id)
    w.channels.metadata_changed(hosted)
    if dice.randrange(2):
        w.elect(*dice.sample(hosted, 3))
    broker.epoch += 1_000
    broker.requests.clear()
    w.register(broker.id)
    w.channels.metadata_changed(hosted)
    w.channels.snapshot([broker.id])


async def one_event(w: World, dice: random.Random) -> None:
    """Makes an election, metadata, a cut, a broker that hangs or returns, a snapshot, or a pause."""
    broker = w.brokers[dice.choice(list(w.brokers))]
    match dice.randrange(10):
        case 0 | 1 | 2:
            w.elect(*dice.sample(range(len(w.cluster.rows)), dice.randint(1, 9)))
        case 3:
            w.channels.metadata_changed(dice.sample(range(len(w.cluster.rows)), 5))
        case 4:
            broker.cut()
        case 5:
            broker.hold()
        case 6:
            broker.let_go.set()
        case 7:
            w.channels.snapshot([broker.id])
        case 8:
            bounce(w, broker, dice)
        case _:
            await asyncio.sleep(dice.choice([0, 0.001, 0.01]))


@pytest.mark.parametrize("seed", range(6))
async def test_every_broker_ends_with_the_model_and_none_goes_back_in_a_random_run(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    rows_max = dice.choice([4, 20_000])
    monkeypatch.setattr(channel, "REQUEST_ROWS_MAX", rows_max)
    monkeypatch.setattr(batches, "REQUEST_ROWS_MAX", rows_max)
    async with world(1, 2, 3, snapshot_turn_partitions=20, seal_interval_ms=dice.choice([0, 2, 10])) as w:
        for t in range(5):
            w.add_topic(f"t{t}", [tuple(dice.sample((1, 2, 3), 2)) for _ in range(12)])
        w.channels.snapshot()
        for _ in range(250):
            await one_event(w, dice)
        for broker in w.brokers.values():
            broker.let_go.set()
        await settled(w)
        for broker in w.brokers.values():
            knows_the_model(w, broker)
            never_lower(broker)
            assert broker.apis()[0] in "Uu"
            assert broker.in_flight_max == 1
