"""Writes of others: each retry until its bound, and one between any request of a handler and its response."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from unittest import mock

import pytest

from brokers.wire.messages.security import FeatureUpdate, UpdateFeaturesRequest
from controller.daemon.handback import finish
from controller.kafka.path.controller import CONTENDED, ConflictRounds
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.reassignment_requests import CONTENDED as ZNODE_CONTENDED
from controller.role.own_znodes import BROKER_SETTINGS
from controller.role.queue import ClaimRefused
from metadata_store import paths
from metadata_store.codecs.cluster import FeatureRange, Features, encode_features
from metadata_store.fencing.fenced import WRITES_MAX
from state_machines.decisions.leader_election import ElectionType
from testing.memory import MemoryServer
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.calls import carried
from tests.kit.kafka.foreign_writes import ACTS, strange_ends
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.reassignments import alter, caught_up, request_by_znode, written
from tests.kit.kafka.world import KafkaWorld, in_world

Attempt = Callable[[KafkaWorld, int], Awaitable[bool]]
"""Meets a number of foreign writes, and returns whether it succeeded all the same."""


def contend(w: KafkaWorld, path: str, times: int) -> None:
    """Another client writes a znode right before each of the daemon's next writes of it."""
    w.seats[-1].script.at(path, partial(w.touch, path), exact=True, times=times)


# -- the claim, the hand-back


async def claim(w: KafkaWorld, conflicts: int) -> bool:
    contend(w, paths.CONTROLLER_EPOCH, conflicts)
    try:
        await w.seats[-1].role.claim()
    except ClaimRefused:
        return False
    return True


async def hand_back(w: KafkaWorld, conflicts: int) -> bool:
    """An interrupted hand-back of another daemon is completed."""
    if w.node(paths.CONTROLLER) is None:
        data = b'{"version":2,"brokerid":1000009,"timestamp":"0","regent":"a nonce"}'
        await w.operator.create(paths.CONTROLLER, data)
    await w.give_role_to("brokers")
    contend(w, paths.CONTROLLER, conflicts)
    return await finish(w.seats[-1].role) is not None


# -- in a term


async def allocate_producer_ids(w: KafkaWorld, conflicts: int) -> bool:
    contend(w, paths.PRODUCER_IDS, conflicts)
    return (await w.producer_ids(1)).error == 0


async def delete_feature(w: KafkaWorld, conflicts: int) -> bool:
    await w.operator.set(paths.FEATURE, encode_features(Features(2, True, {"old": FeatureRange(3)})), -1)
    contend(w, paths.FEATURE, conflicts)
    update = UpdateFeaturesRequest(10_000, (FeatureUpdate("old", 0, upgrade_type=2),), False)
    return bool((await carried(w, update)).error_code == 0)


async def set_up_features(w: KafkaWorld, conflicts: int) -> bool:
    """The next term brings ``/feature`` up to date."""
    await w.active.crash()
    await w.operator.set(paths.FEATURE, encode_features(Features(1, True)), -1)
    seat = await w.seat()
    contend(w, paths.FEATURE, conflicts)
    await seat.begin()
    await w.settle()
    assert not w.term.gate.ended
    node = w.node(paths.FEATURE)
    assert node is not None
    return bool(json.loads(node.data or b"")["version"] == 2)


async def elect(w: KafkaWorld, conflicts: int) -> bool:
    """A preferred leader is elected; it has lost the role by a restart before."""
    await w.bounce(1)
    await w.propagated()
    await w.alter_partition(2, w.proposal("t", 0, (2, 1)))
    contend(w, paths.state("t", 0), conflicts)
    before = w.counters.failures[CONTENDED]
    await w.elect(ElectionType.PREFERRED, ("t", 0))
    elected = w.leaders()["t", 0][0] == 1
    assert w.counters.failures[CONTENDED] - before == (not elected)
    return elected


async def rewrite_topic(w: KafkaWorld, conflicts: int) -> bool:
    """A reassignment is written into the topic's znode."""
    target = written(w, "t").replicas[::-1]
    contend(w, paths.topic("t"), conflicts)
    refused = await alter(w, {("t", 0): target})
    await caught_up(w)
    assert (written(w, "t").replicas == target) == (not refused)
    return not refused


async def withdraw(w: KafkaWorld, conflicts: int) -> bool:
    """A call withdraws what the znode of reassignments requests for the same partition."""
    name = f"n{len(w.assignments())}"
    await w.topic(name, (1, 2), leaders=True)
    await w.propagated()
    await request_by_znode(w, {(name, 0): (1, 2, 3)})
    contend(w, paths.REASSIGN_PARTITIONS, conflicts)
    before = w.counters.failures[ZNODE_CONTENDED]
    await alter(w, {(name, 0): (1, 2)})
    given_up = w.counters.failures[ZNODE_CONTENDED] > before
    await caught_up(w)
    return not given_up


async def repair(w: KafkaWorld, conflicts: int) -> bool:
    """A daemon among the replicas of a new topic is replaced; at the bound the topic's next event does it."""
    name = f"auto-{len(w.assignments())}"
    contend(w, paths.topic(name), conflicts)
    before = w.counters.failures.total()
    await w.topic(name, (3, DAEMON))
    await w.propagated()
    assert DAEMON not in w.assignments()[name][0]
    return w.counters.failures.total() == before


async def keep_settings(w: KafkaWorld, conflicts: int) -> bool:
    """What a broker reported is written for the next term; where that was given up, the next report writes it."""
    if w.node(BROKER_SETTINGS) is None:
        await w.operator.create(BROKER_SETTINGS, b"{}")
    contend(w, BROKER_SETTINGS, conflicts)
    w.term.controller.adoption.hear(w.term.cluster.brokers[1], {"num.partitions": f"1{conflicts}"})
    w.term.queue.signal(EventKind.BROKER_SETTINGS)
    await w.settle()
    node = w.node(BROKER_SETTINGS)
    assert node is not None
    return f'"1{conflicts}"'.encode() in (node.data or b"")


async def queued(w: KafkaWorld) -> None:
    await w.seat()
    await w.operator.create(paths.CONTROLLER_EPOCH, b"5")


async def serving(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.serve()


BOUNDS: list[tuple[Attempt, int]] = [
    (claim, 20),
    (hand_back, 10),
    (allocate_producer_ids, 10),
    (delete_feature, 10),
    (set_up_features, 10),
    (elect, 6),
    (rewrite_topic, 10),
    (withdraw, 10),
    (repair, 3),
    (keep_settings, 3),
]


@pytest.mark.parametrize(("attempt", "bound"), BOUNDS, ids=[attempt.__name__ for attempt, _ in BOUNDS])
@in_world()
async def test_a_write_that_others_contend_is_given_up_at_its_bound_and_not_before(
    w: KafkaWorld, attempt: Attempt, bound: int
) -> None:
    await (queued if attempt in (claim, hand_back) else serving)(w)
    for conflicts in (bound - 1, bound, bound - 1, 0, bound):
        assert await attempt(w, conflicts) == (conflicts < bound), f"{conflicts} foreign writes"
        assert w.seats[-1].script.left == 0, "each foreign write was met"


def test_writes_share_multis_at_first_and_go_alone_in_the_end() -> None:
    assert list(ConflictRounds(2, alone=3)) == [WRITES_MAX, WRITES_MAX, 1, 1, 1]
    assert list(ConflictRounds(2)) == [WRITES_MAX, WRITES_MAX]


def test_a_round_that_met_no_other_writer_is_not_counted() -> None:
    rounds = ConflictRounds(1, alone=1)
    lost = 5
    seen = []
    for writes_max in rounds:
        seen.append(writes_max)
        if lost:
            lost -= 1
            rounds.repeat()
    assert seen == [WRITES_MAX] * 6 + [1]


STEP: Final = 4
"""From one request that a foreign write interrupts to the next."""


@pytest.mark.parametrize("name", ACTS)
@in_virtual_time
async def test_a_foreign_write_at_any_request_of_a_handler_ends_as_if_it_came_before_or_after(name: str) -> None:
    """Each foreign write comes at every fourth request, so that each request has some; tests/verify plays all."""
    others = [foreign for foreign in ACTS if foreign != name]
    found = [s for at, foreign in enumerate(others) for s in await strange_ends(name, foreign, 1 + at % STEP, STEP)]
    assert not found, "\n".join(found)


def armed_late(arm: Callable[..., None]) -> Callable[..., None]:
    """A server whose watches see what happens after they are armed, and nothing since the read before."""

    def late(self: MemoryServer, session: int, *lists: list[str], since_zxid: int) -> None:
        arm(self, session, *lists, since_zxid=max(since_zxid, self.tree.zxid))

    return late


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("a broker dies", "a broker registers"),
        ("a leader shrinks an ISR", "a leader changes another ISR"),
        ("a topic is created", "another topic is created"),
        ("a topic is to be deleted", "another topic is to be deleted"),
        ("a reassignment is requested", "a topic grows"),
    ],
)
@in_virtual_time
async def test_a_watch_that_is_armed_late_is_noticed(name: str, foreign: str) -> None:
    with mock.patch.object(MemoryServer, "arm", armed_late(MemoryServer.arm)):
        try:
            found = await strange_ends(name, foreign)
        except AssertionError as error:
            found = [str(error)]
    assert found
