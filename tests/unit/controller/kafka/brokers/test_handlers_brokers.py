"""Registrations: deaths, returns, bounces, changed endpoints, and the admin endpoint's znode."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import structs

from brokers.security.shared_secret import Seals
from controller.kafka.brokers.broker_change import GONE_S
from controller.kafka.path.events import EventKind
from metadata_store import paths
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce, decode_endpoint, endpoint_path
from state_machines.decisions.broker_change import LEADER_DIED
from state_machines.model.types import PartitionState
from testing.memory import MemoryZooKeeper
from tests.kit.kafka.cluster import registration
from tests.kit.kafka.parts import DAEMON, LEADER_AND_ISR, SECRET, UPDATE_METADATA
from tests.kit.kafka.world import KafkaWorld, in_world


async def running(w: KafkaWorld) -> None:
    """Topic t over three brokers, each leading one partition."""
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await w.serve()
    w.forget()


def live(w: KafkaWorld, broker: int) -> set[int]:
    """Brokers in the live list that a broker was told last, the daemon left out."""
    return {b.id_ for b in w.wires.requests(broker, UPDATE_METADATA)[-1].live_brokers} - {1_000_001}


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-75")
@in_world(before=running)
async def test_a_death_moves_leaders_shrinks_isrs_and_is_sent_to_every_live_broker(w: KafkaWorld) -> None:
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
async def test_a_partition_whose_last_replica_dies_is_offline_until_it_comes_back(w: KafkaWorld) -> None:
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
async def test_a_broker_that_returns_is_sent_everything_and_the_others_the_live_list(w: KafkaWorld) -> None:
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
async def test_a_bounce_faster_than_we_look_is_seen_by_its_epoch(w: KafkaWorld) -> None:
    before = w.broker_epoch(1)
    await w.bounce(1)
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 3)), ("t", 2): (3, (3, 2))}
    assert w.term.cluster.brokers[1].epoch == w.broker_epoch(1) > before
    led = {name: (state.leader, state.leader_epoch) for name, state in w.states.items()}
    assert w.wires.last_sent(1, LEADER_AND_ISR) == led, "its new life was told everything"
    assert {entity.broker_epoch for entity in w.wires.requests(1)} == {w.broker_epoch(1)}


@in_world(1, 2, 3, 4)
async def test_deaths_returns_and_bounces_at_once_are_one_look(w: KafkaWorld) -> None:
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
async def test_changed_endpoints_are_propagated_and_used(w: KafkaWorld) -> None:
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
async def test_a_malformed_registration_is_not_live_until_it_is_repaired(w: KafkaWorld, data: bytes | None) -> None:
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
async def test_a_live_brokers_registration_that_breaks_counts_as_its_death(w: KafkaWorld) -> None:
    await w.operator.set(paths.broker(1), b"broken", 0)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert live(w, 2) == {2, 3}
    await w.operator.set(paths.broker(1), registration(1), 1)
    await w.propagated()
    assert live(w, 2) == {1, 2, 3}


@in_world(before=running)
async def test_a_registration_without_our_listener_does_not_stop_the_others(w: KafkaWorld) -> None:
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
async def test_a_death_while_its_commit_waits_is_handled_after_it(w: KafkaWorld) -> None:
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


AT = AdminEndpoint("CLIENT", "regent1", 9096)
SEALS = Seals(SECRET, "")


async def endpoint(w: KafkaWorld, daemon: int = DAEMON, at: AdminEndpoint = AT) -> MemoryZooKeeper:
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    assert await announce(zk, daemon, SEALS.announced(daemon, zk.session_id, at)) is None
    return zk


def listed(w: KafkaWorld, broker: int = 2) -> dict[str, tuple[str, int]]:
    """The daemon's endpoints by listener, as a broker was told last."""
    told = w.wires.requests(broker, UPDATE_METADATA)[-1]
    [mine] = [entry for entry in told.live_brokers if entry.id_ == DAEMON]
    return {e.listener: (e.host, e.port) for e in mine.endpoints}


def entries(w: KafkaWorld, broker: int = 2) -> list[Any]:
    """The daemon's entries in all lists that a broker was sent."""
    told = w.wires.requests(broker, UPDATE_METADATA)
    return [entry for request in told for entry in request.live_brokers if entry.id_ == DAEMON]


def shown(w: KafkaWorld) -> str | None:
    """As status says it."""
    found = w.term.parts.endpoint.found
    return None if found is None else str(found)


INTERNAL = {"INTERNAL": ("127.0.0.1", 9095)}
BOTH = INTERNAL | {"CLIENT": ("regent1", 9096)}


@in_world()
async def test_it_is_shown_from_the_terms_beginning_and_not_much_longer_than_it_lives(w: KafkaWorld) -> None:
    zk = await endpoint(w)
    await w.serve()
    assert listed(w) == BOTH
    assert shown(w) == "regent1:9096 on listener CLIENT"
    w.server.expire(zk.session_id)
    await asyncio.sleep(GONE_S + 0.1)
    await w.propagated()
    assert listed(w) == INTERNAL
    assert shown(w) is None
    await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH


@in_world()
async def test_it_comes_in_a_term_and_a_second_life_replaces_the_first(w: KafkaWorld) -> None:
    await w.serve()
    assert listed(w) == INTERNAL
    first = await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH
    second = await endpoint(w)
    w.server.expire(first.session_id)
    await w.propagated()
    assert listed(w) == BOTH
    w.server.expire(second.session_id)
    await w.propagated()
    await endpoint(w, at=AdminEndpoint("CLIENT", "regent1", 9999))
    await w.propagated()
    assert listed(w)["CLIENT"] == ("regent1", 9999)
    told = {tuple(sorted(e.listener for e in entry.endpoints)) for entry in entries(w)}
    assert told == {("INTERNAL",), ("CLIENT", "INTERNAL")}


@in_world()
async def test_an_endpoint_that_restarts_is_listed_all_the_time(w: KafkaWorld) -> None:
    """Brokers log an error at each UpdateMetadata that lists a node without one of the others' listeners."""
    zk = await endpoint(w)
    await w.begin_term()
    for _ in range(3):
        w.server.expire(zk.session_id)
        await asyncio.sleep(GONE_S - 1.0)
        w.die(3)
        await w.propagated()
        await w.boot(3)
        zk = await endpoint(w)
        await asyncio.sleep(2.0)
        await w.propagated()
    assert len(entries(w)) > 3, "brokers were sent a list meanwhile"
    assert {tuple(sorted(e.listener for e in entry.endpoints)) for entry in entries(w)} == {("CLIENT", "INTERNAL")}
    assert shown(w) == "regent1:9096 on listener CLIENT"


@in_world()
async def test_another_daemons_endpoint_and_a_scribble_are_not_shown(w: KafkaWorld) -> None:
    await w.begin_term()
    await endpoint(w, DAEMON + 1)
    await w.propagated()
    assert listed(w) == INTERNAL
    await w.operator.create(endpoint_path(DAEMON), b"scribble")
    await w.propagated()
    assert listed(w) == INTERNAL


@pytest.mark.parametrize("how", ["unsealed", "other secret", "other cluster", "other daemon", "copied", "moved"])
@in_world()
async def test_an_address_that_no_endpoint_of_ours_has_sealed_is_not_shown(
    w: KafkaWorld, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await w.begin_term()
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    session = zk.session_id + (how == "copied")
    seals = Seals(b"x" * 32 if how == "other secret" else SECRET, "another" if how == "other cluster" else "")
    sealed = seals.announced(DAEMON + (how == "other daemon"), session, AT)
    if how in ("unsealed", "moved"):
        sealed = structs.replace(sealed, **({"seal": ""} if how == "unsealed" else {"host": "stranger"}))
    assert await announce(zk, DAEMON, sealed) is None
    await w.propagated()
    assert listed(w) == INTERNAL
    assert "is not sealed with this daemon's secret" in caplog.text
    await zk.close()
    await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH


@in_world()
async def test_a_listener_that_no_broker_has_is_complained_of(w: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    await w.begin_term()
    await endpoint(w, at=AdminEndpoint("OUTSIDE", "regent1", 9096))
    await w.propagated()
    assert "no broker has a listener OUTSIDE" in caplog.text


@in_world()
async def test_on_a_listener_that_brokers_share_with_clients_it_stands_for_the_daemon(w: KafkaWorld) -> None:
    """It passes brokers' calls on; without it brokers find the daemon itself."""
    await w.begin_term()
    zk = await endpoint(w, at=AdminEndpoint("INTERNAL", "regent1", 9096))
    await w.propagated()
    assert listed(w) == {"INTERNAL": ("regent1", 9096)}
    w.server.expire(zk.session_id)
    await w.propagated()
    assert listed(w) == INTERNAL


@in_world()
async def test_the_endpoints_znode_is_read_again_after_a_reconnect(w: KafkaWorld) -> None:
    await w.serve()
    w.term.queue.signal(EventKind.RECONNECTED)
    await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH


def test_an_endpoint_without_listener_host_or_port_is_malformed() -> None:
    good = {"listener": "CLIENT", "host": "h", "port": 1}
    assert decode_endpoint(json.dumps(good).encode()) == AdminEndpoint("CLIENT", "h", 1)
    for bad in ({"port": 0}, {"port": 65_536}, {"host": ""}, {"listener": ""}, {"port": "9"}, {"host": None}):
        assert decode_endpoint(json.dumps(good | bad).encode()) is None
    assert decode_endpoint(None) is None
