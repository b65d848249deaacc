"""Writes of others: each retry until its bound, and one between any request of a handler and its response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from brokers.wire.messages.security import FeatureUpdate, UpdateFeaturesRequest
from controller.daemon.handback import finish
from controller.kafka.path.controller import CONTENDED, ConflictRounds
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.reassignment_requests import CONTENDED as ZNODE_CONTENDED
from controller.role.own_znodes import BROKER_SETTINGS
from controller.role.queue import ClaimRefused
from metadata_store import paths
from metadata_store.codecs.cluster import FeatureRange, Features, encode_features
from metadata_store.errors import SessionLost
from metadata_store.fencing.fenced import WRITES_MAX
from state_machines.decisions.leader_election import ElectionType
from state_machines.model.types import NO_LEADER
from testing.memory import MemoryServer
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.calls import carried
from tests.kit.kafka.parts import DAEMON, UPDATE_METADATA
from tests.kit.kafka.reassignments import alter, caught_up, request_by_znode, written
from tests.kit.kafka.world import KafkaWorld, in_world, world

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


REASSIGNMENT: Final = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,4]}]}'

Act = Callable[[KafkaWorld], Awaitable[object]]
End = tuple[object, ...]

REQUESTS_MAX: Final = 400
"""Requests to ZooKeeper that one trigger may take here: a handler that never rests is a failure."""

STEP: Final = 4
"""From one request that a foreign write interrupts to the next."""


async def dies(w: KafkaWorld) -> None:
    """Its session ends, if it has one."""
    if 2 in w.brokers:
        w.die(2)


async def restarts(w: KafkaWorld) -> None:
    """It has a new registration before anything reads that the old one is gone."""
    await dies(w)
    with suppress(SessionLost):
        await w.boot(2)


async def shrinks(w: KafkaWorld, name: str, partition: int) -> None:
    """The leader of a partition that exists and is led removes the others from the ISR."""
    held = w.states.get((name, partition))
    if held is not None and held.leader in w.brokers:
        await w.leader_writes(name, partition, (held.leader,), notify=True)


async def grows(w: KafkaWorld, name: str) -> None:
    """A tool adds a partition, if the topic is there."""
    if w.node(paths.topic(name)) is not None:
        await w.expand(name, (3, 1))


async def marks(w: KafkaWorld, name: str) -> None:
    """A tool asks for the deletion of a topic that is there."""
    if w.node(paths.topic(name)) is not None:
        await w.mark(name)


async def calls(w: KafkaWorld, call: Awaitable[object]) -> None:
    """A call goes on beside the test; what becomes of it shows in ZooKeeper."""

    async def answered() -> None:
        with suppress(NotController):
            await call

    w.tasks.append(asyncio.ensure_future(answered()))  # type: ignore[attr-defined]


ACTS: Final[dict[str, Act]] = {
    "a broker dies": dies,
    "a broker restarts": restarts,
    "a broker registers": lambda w: w.boot(5),
    "a leader shrinks an ISR": lambda w: shrinks(w, "t", 0),
    "a leader changes another ISR": lambda w: shrinks(w, "u", 0),
    "a topic grows": lambda w: grows(w, "t"),
    "a topic is created": lambda w: w.topic("n", (1, 2), (2, 3)),
    "another topic is created": lambda w: w.topic("m", (2, 4)),
    "a topic is to be deleted": lambda w: marks(w, "t"),
    "another topic is to be deleted": lambda w: marks(w, "u"),
    "a reassignment is requested": lambda w: w.operator.create(paths.REASSIGN_PARTITIONS, REASSIGNMENT),
    "preferred leaders are requested": lambda w: w.request_preferred(("v", 0)),
    "a log directory fails": lambda w: w.log_directory_fails(3),
    "a topic allows unclean elections": lambda w: w.configure("topics", "u", unclean_leader_election_enable="true"),
    "a broker asks to shut down": lambda w: calls(w, w.controlled_shutdown(3)),
    "a leader requests an ISR": lambda w: calls(w, w.alter_partition(2, w.proposal("t", 1, isr=(2,)))),
}


async def prepared(w: KafkaWorld) -> None:
    """Three topics and four brokers; v is led by its second replica."""
    await w.topic("t", (1, 2), (2, 3), leaders=True)
    await w.topic("u", (3, 1), leaders=True)
    await w.topic("v", (1, 3), leaders=True, led_by=3)
    w.tasks = []  # type: ignore[attr-defined]
    await w.serve()


async def rested(w: KafkaWorld) -> End:
    """Waits until nothing is left to do; checks that model, brokers and ZooKeeper agree; returns how things stand."""
    await w.propagated()
    await asyncio.sleep(120.0)
    await w.propagated()
    w.agreed()
    live, marked = frozenset(w.brokers), w.children(paths.DELETE_TOPICS)
    for broker in live:
        known = w.wires.last_sent(broker, UPDATE_METADATA)
        wrong = {
            name: (known.get(name), (state.leader, state.leader_epoch))
            for name, state in w.states.items()
            if name[0] not in marked and known.get(name) != (state.leader, state.leader_epoch)
        }
        assert not wrong, f"broker {broker} knows otherwise: {wrong}"
    led = {name: state for name, state in w.states.items() if name[0] not in marked}
    stuck = [name for name, state in led.items() if state.leader == NO_LEADER and live & set(state.isr)]
    assert not stuck, f"without a leader although one is in sync: {stuck}"
    return how(w)


def how(w: KafkaWorld) -> End:
    """Leaders, ISRs, replicas, and what is left to do; of a topic whose deletion waits for a broker, that it waits."""
    marked = w.children(paths.DELETE_TOPICS)
    led = {n: (s.leader, frozenset(s.isr)) for n, s in sorted(w.states.items()) if n[0] not in marked}
    assigned = {name: replicas for name, replicas in w.assignments().items() if name not in marked}
    open_requests = [p for p in (paths.REASSIGN_PARTITIONS, paths.PREFERRED_ELECTION) if w.node(p) is not None]
    return led, assigned, open_requests, marked


class Interruption:
    """Runs ``act`` after the ``number``-th request of a session was carried out, before its answer."""

    def __init__(self, w: KafkaWorld, number: int, act: Act) -> None:
        self.seen = 0
        self._w, self._number, self._act = w, number, act
        zk = w.active.zk
        self._turn = zk._turn
        zk._turn = self._counted  # type: ignore[method-assign]

    async def _counted(self) -> None:
        self.seen += 1
        assert self.seen < REQUESTS_MAX
        if self.seen == self._number:
            await self._act(self._w)
        await self._turn()


async def played(trigger: Act, foreign: Act, number: int) -> tuple[End, int]:
    """The end where ``foreign`` comes at the ``number``-th request (0: after all), and how many requests there were."""
    async with world(1, 2, 3, 4) as w:
        await prepared(w)
        watched = Interruption(w, number, foreign)
        await trigger(w)
        await w.propagated()
        requests = watched.seen
        if number == 0 or requests < number:
            await foreign(w)
        return await rested(w), requests


async def one_after_the_other(first: Act, second: Act) -> End:
    """The end where nothing interrupts anything."""
    return (await played(first, second, 0))[0]


async def strange_ends(name: str, foreign: str, first: int = 1, step: int = 1) -> list[str]:
    """The requests of a trigger at which a foreign write leads to another end than before it or after it.

    Only the ``first`` request and each ``step``-th after it are interrupted.
    """
    trigger, other = ACTS[name], ACTS[foreign]
    last, requests = await played(trigger, other, 0)
    allowed = last, await one_after_the_other(other, trigger)
    found = []
    for number in range(first, requests + 1, step):
        end, _ = await played(trigger, other, number)
        if end not in allowed:
            found.append(f"{name}, at request {number} of {requests} {foreign}: {end} instead of one of {allowed}")
    return found


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
