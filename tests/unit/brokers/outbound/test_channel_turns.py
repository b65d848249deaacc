"""Full snapshots in turns, changes during one, and the cache of encoded turns."""

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
from tests.kit.deadlines import eventually
from tests.kit.kafka.brokers import LEADER_AND_ISR, UPDATE_METADATA, FakeBroker
from tests.kit.kafka.channels import (
    CONTROLLER,
    ChannelsWorld,
    in_flight,
    knows_the_model,
    never_lower,
    settled,
    stop,
    stopped_clock,
    world,
)
from tests.kit.kafka.model import EPOCH, registered, topic, topic_gone

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


def bounce(w: ChannelsWorld, broker: FakeBroker, dice: random.Random) -> None:
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


async def one_event(w: ChannelsWorld, dice: random.Random) -> None:
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


@pytest.mark.seed("S4-47", "S4-66")
async def test_a_snapshot_goes_in_turns_and_has_each_partition_once() -> None:
    async with world(1, 2, 3, snapshot_turn_partitions=TURN) as w:
        for t in range(7):
            w.add_topic(f"t{t}", [(1 + p % 3, 1 + (p + 1) % 3) for p in range(50)])
        w.channels.snapshot()
        await settled(w)
        for broker in w.brokers.values():
            assert broker.apis() == "U" + "Lu" * 4
            knows_the_model(w, broker)
            sent = [p for request in broker.of(UPDATE_METADATA) for p in request.partitions()]
            assert len(sent) == len(set(sent)) == 350
            assert all(len(request.partitions()) <= TURN for request in broker.requests)


async def test_no_request_names_a_topic_twice_after_partitions_were_added_to_it() -> None:
    async with world(1, snapshot_turn_partitions=TURN) as w:
        w.add_topic("a", [(1,)] * 3)
        w.add_topic("b", [(1,)] * 3)
        rows = w.cluster.observe_topic(topic("a", [(1,)] * 5))
        w.cluster.load_leadership(rows, [Leadership(1, 0, (1,), EPOCH, 0)] * 2)
        w.channels.snapshot()
        await settled(w)
        knows_the_model(w, w.one)
        w.elect(*range(8))
        await settled(w)
        named = [[state.topic_name for state in request.entity.topic_states] for request in w.one.requests]
        assert all(len(names) == len(set(names)) for names in named)
        assert [state.topic_name for state in w.one.of(LEADER_AND_ISR)[-1].entity.topic_states] == ["a", "b"]


async def test_a_snapshot_of_an_empty_cluster_is_the_live_list_alone() -> None:
    async with world(1) as w:
        w.channels.snapshot()
        await settled(w)
        assert w.one.apis() == "U"


async def test_elections_go_ahead_of_the_turns_that_are_still_to_come() -> None:
    async with world(1, snapshot_turn_partitions=TURN) as w:
        rows = w.add_topic("t", [(1,)] * 400)
        w.one.hold()
        w.channels.snapshot()
        await in_flight(w.one, "U")
        w.elect(rows[350], leader=1)
        w.one.let_go.set()
        await settled(w)
        leaders = w.one.of(LEADER_AND_ISR)
        assert [request.partitions()[0] for request in leaders] == [("t", p) for p in (0, 350, 100, 200, 300)]
        assert leaders[1].epochs() == {("t", 350): (4, 9)}
        never_lower(w.one)
        knows_the_model(w, w.one)


@pytest.mark.parametrize("came_up", [False, True])
async def test_topics_that_are_created_and_elections_that_are_made_during_a_snapshot_follow_once(
    came_up: bool,
) -> None:
    """The last turn reaches beyond the end that the snapshot had when it began."""
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        rows = w.add_topic("t", [(1, 2)] * 250)
        await settled(w)
        w.one.requests.clear()
        w.one.hold()
        w.channels.live_list_changed()
        w.channels.snapshot([1], came_up=came_up)
        await in_flight(w.one, "u" if came_up else "U")
        w.elect(rows[0], rows[249])
        w.add_topic("new", [(1,)] * 30)
        w.one.let_go.set()
        await settled(w)
        if came_up:
            assert w.one.apis().startswith("uuu"), "all topics go first"
        never_lower(w.one)
        knows_the_model(w, w.one)
        assert w.channels.lag()[1].partitions == 0


async def test_a_turn_waits_for_the_live_list_though_no_batch_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_clock(monkeypatch)
    async with world(1, 2, register=False) as w:
        w.register(1)
        await settled(w)
        w.add_topic("t", [(2, 1)])
        w.register(2)
        w.channels.snapshot([1])
        await settled(w)
        assert w.one.apis() == "U" + "ULu"


async def test_a_body_of_another_channel_takes_no_broker_back_behind_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = stopped_clock(monkeypatch)
    async with world(1, 2, snapshot_turn_partitions=TURN, seal_interval_ms=400) as w:
        one, two = w.brokers.values()
        rows = await w.load(*[(1, 2)] * (2 * TURN - 1), (2,), snapshot=False)
        clock[0] = 110.0
        w.channels.leader_and_isr_to(2, rows[:1])
        await settled(w)
        two.hold()
        w.channels.snapshot([2])
        await in_flight(two, "LL")
        clock[0] = 110.2
        w.elect(rows[-1])
        await eventually(lambda: one.apis() == "u" and w.channels.lag()[1].partitions == 0)
        w.elect(rows[-1])
        two.let_go.set()
        await in_flight(two, "LLuLu")
        clock[0] = 110.5
        await eventually(lambda: two.apis().startswith("LLuLuL"))
        clock[0] = 120.0
        await settled(w)
        never_lower(two)
        for broker in w.brokers.values():
            assert broker.of(UPDATE_METADATA)[-1].epochs()["t", 2 * TURN - 1] == (5, 10)


@pytest.mark.seed("S4-47", "S4-48")
async def test_a_returned_broker_gets_all_topics_before_anything_else_and_the_others_the_live_list_alone() -> None:
    """A broker that knew its peers and no topic would tell clients that their topics do not exist."""
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        await w.load(*[(1, 2)] * 250)
        w.deregister(1)
        w.one.epoch = 999
        w.one.requests.clear()
        w.one.mark()
        w.register(1)
        w.channels.snapshot([1], came_up=True)
        await settled(w)
        assert w.one.apis() == "uuu" + "LLL"
        knows_the_model(w, w.one)
        assert w.brokers[2].apis().strip("U") == ""
        assert {b.id_ for b in w.brokers[2].requests[-1].entity.live_brokers} == {CONTROLLER, 1, 2}


@pytest.mark.parametrize(("present", "gone", "order"), [(250, 0, "ULuLuLu"), (249, 250, "uuuLLL"), (249, 0, "uuuLLL")])
async def test_a_returned_broker_gets_all_topics_first_up_to_a_size_of_the_cluster(
    present: int, gone: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that vanished do not count, though their rows stay in the model until the term ends."""
    monkeypatch.setattr(channel, "INTRODUCED_ROWS_MAX", 249)
    async with world(1, register=False, snapshot_turn_partitions=TURN) as w:
        w.add_topic("gone", [(1,)] * gone)
        topic_gone(w.cluster, "gone")
        w.add_topic("t", [(1,)] * present)
        w.register(1)
        w.channels.snapshot([1], came_up=True)
        await settled(w)
        assert w.one.apis() == order
        sent = [p for request in w.one.of(UPDATE_METADATA) for p in request.partitions()]
        assert sorted(sent) == [("t", p) for p in range(present)]


async def test_replicas_that_were_stopped_are_left_out_of_a_snapshot() -> None:
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(2, 1), (2, 1)])
        w.cluster.observe_shutting_down(1)
        w.cluster.apply_replicas([stop(rows[0])])
        w.channels.snapshot()
        await settled(w)
        assert w.one.of(LEADER_AND_ISR)[0].partitions() == [("t", 1)]
        assert w.brokers[2].of(LEADER_AND_ISR)[0].partitions() == [("t", 0), ("t", 1)]


@pytest.mark.seed("S4-81")
async def test_replicas_on_failed_log_directories_are_offline_in_a_snapshot() -> None:
    """The other partitions with the same replicas and ISR stay online."""
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(2, 1)] * 3)
        w.cluster.observe_failed_dirs(1, [rows[1]])
        w.channels.snapshot()
        await settled(w)
        assert w.one.of(LEADER_AND_ISR)[0].partitions() == [("t", 0), ("t", 2)]
        knows_the_model(w, w.brokers[2])
        states = w.brokers[2].of(UPDATE_METADATA)[-1].states().values()
        assert [state.offline_replicas for state in states] == [(), (1,), ()]
