"""Registrations: deaths, returns, bounces, changed endpoints, and registrations that cannot be understood."""

from __future__ import annotations

import asyncio

import pytest

from metadata_store import paths
from state_machines.decisions.broker_change import LEADER_DIED
from state_machines.model.types import PartitionState
from tests.kit.controller_kafka import registration
from tests.kit.controller_parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.controller_world import World, in_world


async def running(w: World) -> None:
    """Topic t over three brokers, each leading one partition."""
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await w.serve()
    w.forget()


def live(w: World, broker: int) -> set[int]:
    """Brokers in the live list that a broker was told last, the daemon left out."""
    return {b.id_ for b in w.wires.requests(broker, UPDATE_METADATA)[-1].live_brokers} - {1_000_001}


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-75")
@in_world(before=running)
async def test_a_death_moves_leaders_shrinks_isrs_and_is_sent_to_every_live_broker(w: World) -> None:
    w.die(1)
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 3)), ("t", 2): (3, (3, 2))}
    for broker in (2, 3):
        assert live(w, broker) == {2, 3}
        assert set(w.wires.offline(broker).values()) == {(1,)}
    assert not w.wires.requests(1), "there is nobody to tell"


@pytest.mark.kafka(
    "ControllerIntegrationTest.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled",
    "LeaderElectionTest.testLeaderElectionAndEpoch",
    "UncleanLeaderElectionTest.testUncleanLeaderElectionDisabled",
)
@pytest.mark.seed("S4-44", "S4-49")
@in_world()
async def test_a_partition_whose_last_replica_dies_is_offline_until_it_comes_back(w: World) -> None:
    await w.topic("single", (1,), leaders=True)
    await running(w)
    w.die(1)
    await w.propagated()
    assert w.leaders()["single", 0] == (-1, (1,))
    row = w.term.cluster.find("single", 0)
    assert row is not None
    assert w.term.cluster.rows[row].state is PartitionState.OFFLINE
    await w.boot(1)
    await w.propagated()
    assert w.leaders()["single", 0] == (1, (1,))
    assert w.wires.last_sent(1, LEADER_AND_ISR)["single", 0] == (1, 5)


@pytest.mark.seed("S4-47", "S4-48")
@in_world(before=running)
async def test_a_broker_that_returns_is_sent_everything_and_the_others_the_live_list(w: World) -> None:
    w.die(1)
    await w.propagated()
    w.wires.frames.clear()
    await w.boot(1)
    await w.propagated()
    led = {name: (state.leader, state.leader_epoch) for name, state in w.states.items()}
    assert w.wires.last_sent(1, UPDATE_METADATA) == led
    assert w.wires.last_sent(1, LEADER_AND_ISR) == led
    assert live(w, 2) == {1, 2, 3}
    assert not w.wires.requests(2, LEADER_AND_ISR), "nothing changed for them"
    assert w.leaders()["t", 0] == (2, (2, 3)), "the leader takes it back into the ISR, not the controller"


@pytest.mark.kafka(
    "ControllerIntegrationTest.testControllerDetectsBouncedBrokers",
    "BrokerEpochIntegrationTest.testControllerBrokerEpochCacheMatchesWithZk",
)
@pytest.mark.seed("S4-86")
@in_world(before=running)
async def test_a_bounce_faster_than_we_look_is_seen_by_its_epoch(w: World) -> None:
    before = w.broker_epoch(1)
    await w.bounce(1)
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 3)), ("t", 2): (3, (3, 2))}
    assert w.term.cluster.brokers[1].epoch == w.broker_epoch(1) > before
    led = {name: (state.leader, state.leader_epoch) for name, state in w.states.items()}
    assert w.wires.last_sent(1, LEADER_AND_ISR) == led, "its new life was told everything"
    assert {entity.broker_epoch for entity in w.wires.requests(1)} == {w.broker_epoch(1)}


@in_world(1, 2, 3, 4)
async def test_deaths_returns_and_bounces_at_once_are_one_look(w: World) -> None:
    await w.topic("u", (4, 1), (3, 4), leaders=True)
    await running(w)
    w.server.hold_watches(w.active.zk.session_id)
    w.die(1)
    await w.bounce(2)
    await w.boot(5)
    w.die(4)
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert set(w.term.cluster.brokers) == {2, 3, 5}
    assert w.leaders()["t", 1] == (3, (3,)), "1 is gone, 2 lost its place in the ISR by its restart"
    assert w.leaders()["u", 0] == (-1, (4,)), "no ISR is ever emptied"
    assert w.counters.events["broker_change"].count <= 2
    w.agreed()


@in_world(before=running)
async def test_changed_endpoints_are_propagated_and_used(w: World) -> None:
    await w.operator.set(paths.broker(3), registration(3, port=7000, rack="r"), 0)
    await w.propagated()
    [three] = [b for b in w.wires.requests(2, UPDATE_METADATA)[-1].live_brokers if b.id_ == 3]
    assert (three.rack, {e.port for e in three.endpoints}) == ("r", {7000, 7001})
    assert not w.wires.requests(2, LEADER_AND_ISR)
    assert w.witness.propagated == []


MALFORMED = {
    "no JSON": b"{",
    "NULL": None,
    "unknown version": b'{"version":77,"endpoints":["INTERNAL://h:1"]}',
    "no endpoints": b'{"version":5,"endpoints":[]}',
    "not UTF-8": b'{"version":5,"host":"\xff"}',
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
@in_world(before=running)
async def test_a_malformed_registration_is_not_live_until_it_is_repaired(w: World, data: bytes | None) -> None:
    await w.operator.create(paths.broker(7), data)
    await w.operator.create(f"{paths.BROKER_IDS}/not-a-number", registration(8))
    await w.topic("new", (7, 1))
    await w.propagated()
    assert not w.term.gate.ended
    assert {paths.broker(7), f"{paths.BROKER_IDS}/not-a-number"} <= set(w.counters.malformed)
    assert w.leaders()["new", 0] == (1, (1,)), "the rest of the cluster is served"
    assert live(w, 1) == {1, 2, 3}
    await w.operator.set(paths.broker(7), registration(7), 0)
    await w.propagated()
    assert live(w, 1) == {1, 2, 3, 7}
    assert w.wires.last_sent(7, LEADER_AND_ISR)["new", 0] == (1, 0)
    assert paths.broker(7) not in w.counters.malformed


@in_world(before=running)
async def test_a_live_brokers_registration_that_breaks_counts_as_its_death(w: World) -> None:
    await w.operator.set(paths.broker(1), b"broken", 0)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert live(w, 2) == {2, 3}
    await w.operator.set(paths.broker(1), registration(1), 1)
    await w.propagated()
    assert live(w, 2) == {1, 2, 3}


@in_world(before=running)
async def test_a_registration_without_our_listener_does_not_stop_the_others(w: World) -> None:
    data = registration(4).replace(b"INTERNAL", b"EXTERNAL")
    await w.operator.create(paths.broker(4), data)
    w.die(1)
    await w.settle()
    await w.term.channels.quiesced(0.5)
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert w.wires.last_sent(2, LEADER_AND_ISR)["t", 0] == (2, 4)
    assert "EXTERNAL" not in str(w.term.channels.lag()[4].last_error)
    assert "no listener named INTERNAL" in str(w.term.channels.lag()[4].last_error)


@in_world(before=running)
async def test_a_death_while_its_commit_waits_is_handled_after_it(w: World) -> None:
    """One queue, one consumer: the second look happens when the first is done, on what is there then."""
    may_commit = asyncio.Event()
    w.active.script.at("t/partitions/0/state", may_commit.wait)
    w.die(1)
    await asyncio.sleep(0.1)
    w.die(2)
    await asyncio.sleep(0.1)
    may_commit.set()
    await w.propagated()
    assert {leader for leader, _ in w.leaders().values()} == {3}
    assert [change.why for change in w.witness.propagated if not change.writes] in ([], [LEADER_DIED])
    w.agreed()
