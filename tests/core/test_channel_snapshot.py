"""Full snapshots in turns, changes meanwhile, and long random runs with cuts and slow brokers."""

from __future__ import annotations

import asyncio
import random

import pytest

from brokers.outbound import batches as sealing
from brokers.outbound import channel
from brokers.outbound.delivery import Shared
from brokers.outbound.snapshot import Snapshots
from brokers.wire.versions import Ibp
from state_machines.model.cluster import Cluster
from state_machines.model.decision import ReplicaMove
from state_machines.model.types import Leadership, ReplicaState
from state_machines.propagation.propagation import Propagation
from tests.core.channel_world import CONTROLLER, World, knows_the_model, never_lower, settled, world
from tests.core.fake_broker import LEADER_AND_ISR, UPDATE_METADATA, FakeBroker
from tests.core.model import EPOCH, registered, topic
from tests.polling import eventually

TURN = 100
"""Rows per turn in these tests."""


@pytest.mark.seed("S4-47", "S4-66")
async def test_a_snapshot_goes_in_turns_and_tells_everybody_everything_once() -> None:
    async with world(1, 2, 3, snapshot_turn_partitions=TURN) as w:
        for t in range(7):
            w.add_topic(f"t{t}", [(1 + p % 3, 1 + (p + 1) % 3) for p in range(50)])
        w.channels.snapshot()
        await settled(w)
        for broker in w.brokers.values():
            assert broker.apis() == "U" + "Lu" * 4
            knows_the_model(w, broker)
            told = [p for heard in broker.of(UPDATE_METADATA) for p in heard.partitions()]
            assert len(told) == len(set(told)) == 350
            assert all(len(heard.partitions()) <= TURN for heard in broker.heard)


async def test_partitions_added_later_never_name_a_topic_twice_in_a_request() -> None:
    async with world(1, snapshot_turn_partitions=TURN) as w:
        w.add_topic("a", [(1,)] * 3)
        w.add_topic("b", [(1,)] * 3)
        rows = w.cluster.observe_topic(topic("a", [(1,)] * 5))
        w.cluster.load_leadership(rows, [Leadership(1, 0, (1,), EPOCH, 0)] * 2)
        w.channels.snapshot()
        await settled(w)
        for heard in w.brokers[1].heard:
            names = [state.topic_name for state in heard.entity.topic_states]
            assert len(names) == len(set(names))
        knows_the_model(w, w.brokers[1])
        w.elect(*range(8))
        await settled(w)
        assert [state.topic_name for state in w.brokers[1].of(LEADER_AND_ISR)[-1].entity.topic_states] == ["a", "b"]


async def test_an_empty_cluster_hears_the_live_list_alone() -> None:
    async with world(1) as w:
        w.channels.snapshot()
        await settled(w)
        assert w.brokers[1].apis() == "U"


async def test_elections_overtake_the_turns_that_are_still_to_come() -> None:
    async with world(1, snapshot_turn_partitions=TURN) as w:
        rows = w.add_topic("t", [(1,)] * 400)
        w.brokers[1].hold()
        w.channels.snapshot()
        await eventually(lambda: w.brokers[1].apis() == "U")
        w.elect(rows[350], leader=1)
        w.brokers[1].let_go.set()
        await settled(w)
        leaders = w.brokers[1].of(LEADER_AND_ISR)
        assert [heard.partitions()[0] for heard in leaders] == [("t", p) for p in (0, 350, 100, 200, 300)]
        assert leaders[1].epochs() == {("t", 350): (4, 9)}
        never_lower(w.brokers[1])
        knows_the_model(w, w.brokers[1])


async def test_topics_that_are_created_during_a_snapshot_are_counted_once() -> None:
    """The last turn reaches beyond the end that the snapshot had when it began."""
    async with world(1, snapshot_turn_partitions=TURN) as w:
        w.add_topic("t", [(1,)] * 50)
        w.brokers[1].hold()
        w.channels.snapshot()
        await eventually(lambda: w.brokers[1].apis() == "U")
        w.add_topic("new", [(1,)] * 30)
        w.brokers[1].let_go.set()
        await settled(w)
        assert w.channels.lag()[1].partitions == 0
        knows_the_model(w, w.brokers[1])


async def test_a_turn_is_encoded_again_when_one_of_its_rows_changed() -> None:
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        rows = w.add_topic("t", [(1, 2)] * 300)
        w.brokers[2].hold()
        w.channels.snapshot()
        await eventually(lambda: w.brokers[1].apis() == "U" + "Lu" * 3)
        w.elect(*rows)
        await eventually(lambda: w.channels.lag()[1].partitions == 0)
        w.brokers[2].let_go.set()
        await settled(w)
        for broker in w.brokers.values():
            never_lower(broker)
            knows_the_model(w, broker)


async def test_a_turn_waits_for_the_live_list_though_its_seal_is_not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shared, "now_s", staticmethod(lambda: 100.0))
    async with world(1, 2, register=False) as w:
        w.register(1)
        await settled(w)
        w.add_topic("t", [(2, 1)])
        w.register(2)
        w.channels.snapshot([1])
        await settled(w)
        assert w.brokers[1].apis() == "U" + "ULu"


async def test_a_body_that_another_channel_asked_for_never_takes_a_broker_back_behind_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(Shared, "now_s", staticmethod(lambda: clock[0]))
    async with world(1, 2, snapshot_turn_partitions=TURN, seal_interval_ms=400) as w:
        rows = w.add_topic("t", [(1, 2)] * (2 * TURN - 1) + [(2,)])
        row, one, two = rows[-1], w.brokers[1], w.brokers[2]
        await settled(w)
        clock[0] = 110.0
        w.channels.leader_and_isr_to(2, rows[:1])
        await settled(w)
        two.hold()
        w.channels.snapshot([2])
        await eventually(lambda: two.apis() == "ULL")
        clock[0] = 110.2
        w.elect(row)
        await eventually(lambda: one.apis() == "Uu" and w.channels.lag()[1].partitions == 0)
        w.elect(row)
        two.let_go.set()
        await eventually(lambda: two.apis() == "ULLuLu")
        clock[0] = 110.5
        await eventually(lambda: two.apis().startswith("ULLuLuL"))
        clock[0] = 120.0
        await settled(w)
        never_lower(two)
        for broker in w.brokers.values():
            assert broker.of(UPDATE_METADATA)[-1].epochs()["t", 2 * TURN - 1] == (5, 10)


@pytest.mark.seed("S4-47", "S4-48")
async def test_a_returned_broker_hears_everything_and_the_others_only_the_live_list() -> None:
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        w.add_topic("t", [(1, 2)] * 250)
        w.channels.snapshot()
        await settled(w)
        w.deregister(1)
        w.brokers[1].epoch = 999
        w.brokers[1].heard.clear()
        before = len(w.brokers[2].heard)
        w.register(1)
        w.channels.snapshot([1], came_up=True)
        await settled(w)
        assert w.brokers[1].apis() == "uuu" + "LLL", "no client is told of its peers and of no topic"
        knows_the_model(w, w.brokers[1])
        assert w.brokers[2].apis()[before:].strip("U") == ""
        assert {b.id_ for b in w.brokers[2].heard[-1].entity.live_brokers} == {CONTROLLER, 1, 2}


async def test_what_changes_while_a_broker_hears_of_all_topics_follows() -> None:
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        rows = w.add_topic("t", [(1, 2)] * 250)
        one = w.brokers[1]
        await settled(w)
        one.heard.clear()
        one.hold()
        w.channels.snapshot([1], came_up=True)
        await eventually(lambda: one.apis() == "u")
        w.elect(rows[0], rows[249])
        w.add_topic("new", [(1,)] * 30)
        one.let_go.set()
        await settled(w)
        assert one.apis().startswith("uuu"), "nothing goes ahead of the topics"
        never_lower(one)
        knows_the_model(w, one)
        assert w.channels.lag()[1].partitions == 0


async def test_of_a_large_cluster_a_returned_broker_hears_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "INTRODUCED_ROWS_MAX", 249)
    async with world(1, register=False, snapshot_turn_partitions=TURN) as w:
        w.add_topic("t", [(1,)] * 250)
        w.register(1)
        w.channels.snapshot([1], came_up=True)
        await settled(w)
        assert w.brokers[1].apis() == "U" + "Lu" * 3
        knows_the_model(w, w.brokers[1])


async def test_topics_that_vanished_do_not_make_a_cluster_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows stay in the model until the term ends."""
    monkeypatch.setattr(channel, "INTRODUCED_ROWS_MAX", 20)
    async with world(1, register=False) as w:
        w.add_topic("gone", [(1,)] * 250)
        w.cluster.observe_topic_gone("gone")
        w.add_topic("t", [(1,)] * 20)
        w.register(1)
        w.channels.snapshot([1], came_up=True)
        await settled(w)
        first = w.brokers[1].heard[0]
        assert (first.api, len(first.partitions())) == (UPDATE_METADATA, 20), "all topics, before anything else"


async def test_topics_whose_ids_are_asked_for_are_left_out_of_the_metadata_of_brokers_that_did_not_answer() -> None:
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        w.add_topic("a", [(1, 2)] * 3)
        rows = w.add_topic("lost", [(1, 2)] * 3)
        index = w.cluster.rows[rows[0]].topic
        w.channels.withhold([index])
        assert w.channels.permit_metadata([1, 7]) == [1]
        w.channels.snapshot()
        await settled(w)
        w.elect(*rows, leader=2)
        await settled(w)
        for number, known in ((1, {"a", "lost"}), (2, {"a"})):
            assert {t for heard in w.brokers[number].of(UPDATE_METADATA) for t, _ in heard.partitions()} == known
            led = [heard.partitions() for heard in w.brokers[number].of(LEADER_AND_ISR)]
            assert {t for told in led for t, _ in told} == {"a", "lost"}, "a broker forgets nothing by that"
        assert w.channels.permit_metadata([1, 2]) == [2]
        w.channels.snapshot([2])
        await settled(w)
        for broker in w.brokers.values():
            knows_the_model(w, broker)


async def test_a_turn_that_another_broker_wanted_before_a_topic_was_withheld_is_encoded_again() -> None:
    async with world(1, 2, snapshot_turn_partitions=TURN) as w:
        rows = w.add_topic("lost", [(1, 2)] * (TURN + 1))
        w.brokers[2].hold()
        w.channels.snapshot()
        await eventually(lambda: w.channels.lag()[1].partitions == 0)
        w.channels.withhold([w.cluster.rows[rows[0]].topic])
        w.brokers[2].let_go.set()
        await settled(w)
        assert [heard.partitions() for heard in w.brokers[2].of(UPDATE_METADATA) if heard.partitions()] == []
        w.channels.hand_out([w.cluster.rows[rows[0]].topic])
        w.channels.metadata_changed(rows)
        await settled(w)
        for broker in w.brokers.values():
            knows_the_model(w, broker)


async def test_replicas_that_were_stopped_are_left_out_of_a_snapshot() -> None:
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(2, 1), (2, 1)])
        w.cluster.observe_shutting_down(1)
        w.cluster.apply_replicas([ReplicaMove(rows[0], 1, ReplicaState.OFFLINE, "x", stop=True)])
        w.channels.snapshot()
        await settled(w)
        assert w.brokers[1].of(LEADER_AND_ISR)[0].partitions() == [("t", 1)]
        assert w.brokers[2].of(LEADER_AND_ISR)[0].partitions() == [("t", 0), ("t", 1)]


@pytest.mark.seed("S4-81")
async def test_replicas_on_failed_log_directories_are_offline_in_a_snapshot() -> None:
    """Of partitions with the same replicas and ISR only those that are on the failed one."""
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(2, 1)] * 3)
        w.cluster.observe_failed_dirs(1, [rows[1]])
        w.channels.snapshot()
        await settled(w)
        assert w.brokers[1].of(LEADER_AND_ISR)[0].partitions() == [("t", 0), ("t", 2)]
        knows_the_model(w, w.brokers[2])
        told = w.brokers[2].of(UPDATE_METADATA)[-1].entity.topic_states[0].partition_states
        assert [p.offline_replicas for p in told] == [(), (1,), ()]


def audience_with(topics: int, partitions: int) -> Propagation:
    cluster = Cluster(EPOCH)
    cluster.observe_brokers(registered((1, 2)))
    for t in range(topics):
        rows = cluster.observe_topic(topic(f"t{t:03d}", [(1, 2)] * partitions))
        cluster.load_leadership(rows, [Leadership(1, 0, (1, 2), EPOCH, 0)] * partitions)
    propagation = Propagation(cluster)
    for broker in (1, 2):
        propagation.add(broker)
        propagation.snapshot(broker)
    return propagation


def test_one_pass_serves_all_and_a_dropped_turn_is_encoded_again_for_the_laggard() -> None:
    propagation = audience_with(4, TURN)
    snapshots = Snapshots(propagation, Ibp.parse("3.9"), TURN, cache_bytes_max=1)
    turn = snapshots.turn(1, 0)
    assert snapshots.turn(2, 0) is turn
    first = turn.take(1)
    assert first is not None
    propagation.pending[1].turn = turn.last
    propagation.pending[2].turn = turn.last
    ahead = snapshots.turn(1, TURN)
    ahead.take(1)
    propagation.pending[1].turn = ahead.last
    snapshots.turn(1, 2 * TURN)
    again = snapshots.turn(2, TURN)
    assert again is not ahead
    assert again.leads.keys() == {2}
    assert again.metadata == ahead.metadata


@pytest.mark.parametrize("what", ["row", "live list", "taken"])
def test_a_cached_turn_is_used_only_while_it_is_current_and_whole(what: str) -> None:
    propagation = audience_with(2, TURN)
    snapshots = Snapshots(propagation, Ibp.parse("3.9"), TURN)
    turn = snapshots.turn(1, 0)
    assert snapshots.turn(1, 0) is turn
    if what == "row":
        propagation.metadata_changed([TURN - 1])
    elif what == "live list":
        propagation.live_list_changed()
    else:
        turn.take(1)
    assert snapshots.turn(1, 0) is not turn


def test_the_cache_is_freed_when_nobody_waits_for_a_turn() -> None:
    propagation = audience_with(1, TURN)
    snapshots = Snapshots(propagation, Ibp.parse("3.9"), TURN)
    snapshots.turn(1, 0)
    snapshots.clear_if_unused()
    assert snapshots._cache
    for box in propagation.pending.values():
        box.turn = box.turn_end
    snapshots.clear_if_unused()
    assert not snapshots._cache


def bounce(w: World, broker: FakeBroker, dice: random.Random) -> None:
    """A broker goes and comes back as a new incarnation that knows nothing."""
    hosted = w.cluster.hosted(broker.id)
    w.deregister(broker.id)
    w.channels.metadata_changed(hosted)
    if dice.randrange(2):
        w.elect(*dice.sample(hosted, 3))
    broker.epoch += 1_000
    broker.heard.clear()
    w.register(broker.id)
    w.channels.metadata_changed(hosted)
    w.channels.snapshot([broker.id])


async def one_event(w: World, dice: random.Random) -> None:
    """Something happens: an election, metadata, a cut, a broker that hangs or returns, a snapshot, or a pause."""
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
async def test_whatever_happens_every_broker_ends_with_the_model_and_never_went_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    rows_max = dice.choice([4, 20_000])
    monkeypatch.setattr(channel, "REQUEST_ROWS_MAX", rows_max)
    monkeypatch.setattr(sealing, "REQUEST_ROWS_MAX", rows_max)
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
