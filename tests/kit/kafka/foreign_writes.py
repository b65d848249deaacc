"""Interrupts handlers of the controller by writes of others at any request, and compares the ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from brokers.listener.controller_listener import NotController
from metadata_store import paths
from metadata_store.errors import SessionLost
from state_machines.model.types import NO_LEADER
from tests.kit.kafka.parts import UPDATE_METADATA
from tests.kit.kafka.world import KafkaWorld, world

REASSIGNMENT: Final = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,4]}]}'
Act = Callable[[KafkaWorld], Awaitable[object]]
End = tuple[object, ...]
REQUESTS_MAX: Final = 400
"""Requests to ZooKeeper that one trigger may take here: a handler that never rests is a failure."""


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
    """Returns leaders with ISRs, replicas, and open requests; topics that wait for deletion stand apart."""
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
    """Returns the end where ``foreign`` comes at the ``number``-th request (0: after all), and their number."""
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
    """Returns the end where nothing interrupts anything."""
    return (await played(first, second, 0))[0]


async def strange_ends(name: str, foreign: str, first: int = 1, step: int = 1) -> list[str]:
    """Returns the requests of a trigger at which a foreign write leads to another end than before it or after it.

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
