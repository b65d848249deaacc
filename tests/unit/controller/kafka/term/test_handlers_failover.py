"""A term begins: everything is read and decided in bounded turns, and every broker is told everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

from controller.kafka.term.failover import GROWTH_MAX
from metadata_store import paths, reads
from metadata_store.acl import CREATE, READ
from metadata_store.codecs.cluster import decode_features
from metadata_store.codecs.topic import TopicDecoder
from metadata_store.nodes.cluster_nodes import Contended
from state_machines.model.cluster import Cluster
from state_machines.model.types import Leadership, TopicAssignment, TopicPartition
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import VirtualTimeLoop
from tests.kit.kafka.parts import DAEMON, LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.world import KafkaWorld, in_world


def led(w: KafkaWorld) -> dict[tuple[str, int], tuple[int, int]]:
    return {name: (state.leader, state.leader_epoch) for name, state in w.states.items()}


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68")
@in_world()
async def test_a_term_decides_the_open_elections_and_sends_everything_to_every_broker(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.topic("single", (1,), leaders=True)
    await w.topic("new", (3, 2))
    w.die(1)
    await w.serve()
    assert w.leaders() == {
        ("t", 0): (2, (2, 3)),
        ("t", 1): (2, (2, 3)),
        ("single", 0): (-1, (1,)),
        ("new", 0): (3, (3, 2)),
    }
    for broker in (2, 3):
        assert w.wires.last_sent(broker, UPDATE_METADATA) == led(w)
        hosted = {name: found for name, found in led(w).items() if name[0] != "single"}
        assert w.wires.last_sent(broker, LEADER_AND_ISR) == hosted
    w.agreed()


@pytest.mark.seed("S4-66")
@in_world()
async def test_a_commit_that_an_earlier_term_did_not_propagate_is_propagated(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.serve()
    w.active.script.at("t/partitions/0/state", lambda: w.term.gate.end("dies now"), when="after")
    w.die(1)
    await w.active.ended()
    await w.active.crash()
    w.wires.frames.clear()
    zxid = w.server.tree.zxid
    await w.serve()
    assert w.wires.last_sent(3, LEADER_AND_ISR) == {("t", 0): (2, 4)}
    assert w.states["t", 0].leader_epoch == 4, "nothing left to decide"
    assert w.server.tree.zxid > zxid


@in_world()
async def test_update_metadata_comes_before_the_first_leader_and_isr(w: KafkaWorld) -> None:
    """A follower that hears of a leader outside of its live list ignores it for good (KAFKA-4443)."""
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.serve()
    for broker in (1, 2, 3):
        first = next(frame for to, frame in w.wires.frames if to == broker)
        assert int.from_bytes(first[:2], "big") == UPDATE_METADATA
        live = {b.id_ for b in w.wires.requests(broker, UPDATE_METADATA)[0].live_brokers}
        assert live == {1, 2, 3, DAEMON}


@pytest.mark.seed("S4-85")
@pytest.mark.parametrize(
    ("ibp", "version", "enabled"), [("2.6", 1, False), ("2.7-IV1", 1, True), ("3.2", 1, True), ("3.9", 2, True)]
)
@in_world()
async def test_the_feature_znode_follows_the_ibp(w: KafkaWorld, ibp: str, version: int, enabled: bool) -> None:
    await w.begin_term(ibp)
    node = w.node(paths.FEATURE)
    assert node is not None
    found = decode_features(paths.FEATURE, node.data)
    assert (found.version, found.enabled) == (version, enabled)  # type: ignore[union-attr]
    await w.active.crash()
    await w.begin_term(ibp)
    again = w.node(paths.FEATURE)
    assert again is not None
    assert again.stat.version == node.stat.version, "nothing to change the next time"


@in_world()
async def test_a_feature_znode_that_cannot_be_understood_is_reported_and_left(w: KafkaWorld) -> None:
    await w.operator.create(paths.FEATURE, b"broken")
    await w.begin_term()
    assert w.term.serving.is_set()
    assert paths.FEATURE in w.counters.malformed
    node = w.node(paths.FEATURE)
    assert node is not None
    assert node.data == b"broken"


@in_world()
async def test_a_term_begins_although_others_rewrite_features_all_the_time(w: KafkaWorld) -> None:
    w.restrict(paths.LOG_DIR_EVENTS, CREATE | READ)
    await w.operator.create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", b"{}", sequential=True)
    contended = mock.AsyncMock(side_effect=Contended("/feature was changed by others"))
    with mock.patch("metadata_store.nodes.cluster_nodes.set_up_features", contended):
        await w.begin_term()
    assert w.term.serving.is_set()
    assert not w.term.gate.ended


@pytest.mark.kafka(
    "KafkaZkClientTest.testIsrChangeNotificationsDeletion", "KafkaZkClientTest.testLogDirEventNotificationsDeletion"
)
@in_world()
async def test_notes_of_brokers_for_the_controller_before_us_are_discarded(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.leader_writes("t", 0, (1, 2), notify=True)
    await w.operator.create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", b"{}", sequential=True)
    await w.begin_term("2.7-IV1")
    assert w.children(paths.ISR_CHANGES) == w.children(paths.LOG_DIR_EVENTS) == []
    w.agreed()


@in_world()
async def test_a_term_creates_the_znodes_that_every_broker_creates(w: KafkaWorld) -> None:
    w.die(1, 2, 3)
    await w.operator.delete(paths.ISR_CHANGES, -1)
    await w.operator.delete(paths.LOG_DIR_EVENTS, -1)
    await w.begin_term()
    assert all(w.node(path) is not None for path in paths.PERSISTENT)
    await w.boot(1)
    await w.topic("first", (1,))
    await w.propagated()
    assert w.leaders()["first", 0] == (1, (1,))


@pytest.mark.seed("S4-67")
@in_world()
async def test_events_at_the_begin_of_a_term_are_handled_after_it(w: KafkaWorld) -> None:
    """Watches are armed before anything is read: nothing falls between the two."""
    await w.topic("t", (1, 2, 3), leaders=True)
    seat = await w.seat()

    async def meanwhile() -> None:
        w.die(1)
        await w.topic("new", (2, 3))
        await w.expand("t", (3, 2))
        await w.leader_writes("t", 0, (1, 2))
        await w.notify(TopicPartition("t", 0))

    seat.script.at(paths.FEATURE, meanwhile)
    seat.script.at("t/partitions/0/state", lambda: w.boot(4))
    await seat.begin("2.7-IV1")
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2,)), ("t", 1): (3, (3, 2)), ("new", 0): (2, (2, 3))}
    assert set(w.term.cluster.brokers) == {2, 3, 4}
    w.agreed()


@in_world()
async def test_the_events_between_two_reads_of_the_start_are_not_lost_either(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    seat = await w.seat()
    claim = await seat.role.claim()
    term = seat.term_now(claim, "3.9", frozenset({DAEMON}))
    store, number = term.controller.store, 0
    really = {name: getattr(store, name) for name in ("load_brokers", "load_topics", "load_states")}

    def after(name: str):  # type: ignore[no-untyped-def]
        async def read(*args: object, **options: object) -> object:
            nonlocal number
            setattr(store, name, really[name])
            found = await really[name](*args, **options)
            number += 1
            await w.topic(f"after-{number}", (2, 3))
            await w.boot(10 + number)
            return found

        return read

    for name in really:
        setattr(store, name, after(name))
    await w.propagated()
    assert number == 3
    assert {f"after-{n}" for n in range(1, number + 1)} <= {topic for topic, _ in w.leaders()}
    assert {10 + n for n in range(1, number + 1)} <= set(w.term.cluster.brokers)
    w.agreed()


@in_world()
async def test_a_term_that_ends_while_reading_decides_and_sends_nothing(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    w.die(1)
    seat = await w.seat()
    seat.script.at(paths.FEATURE, lambda: w.term.gate.end("a test"), when="after")
    await seat.begin()
    assert await seat.ended() == "a test"
    await asyncio.sleep(0.1)
    assert w.leaders()["t", 0] == (1, (1, 2, 3))
    assert w.wires.frames == []


TURN_ROWS = 50
TURN_BYTES = 2_000
LARGEST = 130
SMALL, LARGE = 10, 30


@contextmanager
def counted() -> Iterator[dict[str, Counter[int]]]:
    """Counts partitions that are observed, loaded and decoded by turn of the loop."""
    found: dict[str, Counter[int]] = {"observed": Counter(), "loaded": Counter(), "decoded": Counter()}
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    observe, load, decode = Cluster.observe_topic, Cluster.load_leadership, TopicDecoder.decode

    def observed(cluster: Cluster, topic: TopicAssignment) -> list[int]:
        found["observed"][loop.turns] += len(topic.partitions)
        return observe(cluster, topic)

    def loaded(cluster: Cluster, rows: Iterable[int], states: Iterable[Leadership | None]) -> None:
        known = list(rows)
        found["loaded"][loop.turns] += len(known)
        load(cluster, known, states)

    def decoded(decoder: TopicDecoder, path: str, name: str, data: bytes | None, *more: int) -> Any:
        found["decoded"][loop.turns] += len(data or b"")
        return decode(decoder, path, name, data, *more)

    with (
        mock.patch("controller.kafka.term.failover.TURN_ROWS", TURN_ROWS),
        mock.patch.object(reads, "TURN_BYTES", TURN_BYTES),
        mock.patch.object(Cluster, "observe_topic", observed),
        mock.patch.object(Cluster, "load_leadership", loaded),
        mock.patch.object(TopicDecoder, "decode", decoded),
    ):
        yield found


async def skewed(w: KafkaWorld) -> int:
    """Creates small topics, then large ones, then one beyond a turn, in the order of names; returns partitions."""
    for number in range(SMALL):
        await w.topic(f"a-{number:02d}", (1, 2, 3), leaders=True)
    for number in range(LARGE):
        await w.topic(f"b-{number:02d}", *[(1, 2, 3)] * 20, leaders=True)
    await w.topic("c", *[(2, 3, 1)] * LARGEST, leaders=True)
    return SMALL + LARGE * 20 + LARGEST


@in_world()
async def test_a_turn_of_the_loop_has_a_bounded_number_of_partitions(w: KafkaWorld) -> None:
    partitions = await skewed(w)
    with counted() as found:
        await w.begin_term()
    assert sum(found["observed"].values()) == sum(found["loaded"].values()) == partitions
    assert max(found["loaded"].values()) <= TURN_ROWS
    *rest, most = sorted(found["observed"].values())
    assert most == LARGEST, "a topic enters whole"
    assert max(rest) <= TURN_ROWS
    largest_znode = len(w.node("/brokers/topics/c").data or b"")  # type: ignore[union-attr]
    assert max(found["decoded"].values()) <= TURN_BYTES + largest_znode
    assert len(w.term.cluster.rows) == partitions
    w.agreed()


@in_world()
async def test_reads_grow_by_a_bounded_factor_after_small_topics(w: KafkaWorld) -> None:
    reads_of: list[int] = []
    read_many = MemoryZooKeeper.read_many

    async def counted_read(zk: MemoryZooKeeper, paths: list[str], **options: int) -> Any:
        reads_of.append(sum(path.count("/") == 3 and path.startswith("/brokers/topics/") for path in paths))
        return await read_many(zk, paths, **options)

    await skewed(w)
    with (
        mock.patch("controller.kafka.term.failover.TURN_ROWS", 1_000),
        mock.patch("controller.kafka.term.failover.FIRST_TOPICS", 1),
        mock.patch.object(MemoryZooKeeper, "read_many", counted_read),
    ):
        await w.begin_term()
    counts = [count for count in reads_of if count]
    assert (counts[0], sum(counts)) == (1, SMALL + LARGE + 1)
    assert all(later <= GROWTH_MAX * max(earlier, 1) for earlier, later in pairwise(counts))
