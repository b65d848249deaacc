"""Finds work that the controller has still to do in ZooKeeper: missing leaders, deletions, reassignments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from controller.kafka.reassignments.reassignment import STOPPED_S_MAX
from controller.kafka.reassignments.strays import AGAIN_S
from state_machines.model.types import Assignment
from tests.simulation.kafka.history import Key

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka


class Unfinished(NamedTuple):
    """One piece of work; its words change with every step of it.

    ``brokers`` must be well for the controller to do it. ``patience_s``: the time that it may take longer than other
    work.
    """

    what: str
    brokers: frozenset[int] = frozenset()
    patience_s: float = 0.0


def unfinished(world: SimulatedKafka) -> Iterator[Unfinished]:
    """Yields all unfinished work (I5, I12, I22)."""
    yield from _deletions(world)
    yield from _leaders(world)
    yield from _reassignments(world)
    yield from _removed_replicas(world)


def can_end(world: SimulatedKafka, key: Key, moved: Assignment) -> bool:
    """Returns whether a reassignment can end: no replica joins the ISR of a partition that is not led.

    Nor does one where brokers refuse its topic id or epochs.
    """
    history = world.invariants.history
    state = history.current(key)
    led = state is not None and state.leader in history.registered
    unheeded = key in history.former or key in history.spoilt
    return led and not unheeded and all(broker in history.registered for broker in moved.target)


def held_up(world: SimulatedKafka, name: str) -> bool:
    """Returns whether a deletion waits, as with Kafka's controller, for a reassignment that cannot end."""
    topic = world.invariants.history.topics.get(name)
    moving = {p: a for p, a in topic.partitions.items() if a.moving} if topic is not None else {}
    return any(not can_end(world, (name, partition), moved) for partition, moved in moving.items())


def _deletions(world: SimulatedKafka) -> Iterator[Unfinished]:
    history = world.invariants.history
    for name in sorted(history.markers):
        topic = history.topics.get(name)
        if topic is None:
            yield Unfinished(f"{name} has a marker and does not exist")
        elif not held_up(world, name):
            replicas = {((name, partition), b) for partition, a in topic.partitions.items() for b in a.replicas}
            refused = any(b in history.unstopped.get(key, ()) or has_failed(world, b, key) for key, b in replicas)
            awaited = {b for _, b in replicas if not history.given_up.get((topic.czxid, b))}
            if not refused and awaited <= history.registered.keys():
                yield Unfinished(f"{name} is still not deleted", frozenset(history.registered))


def _leaders(world: SimulatedKafka) -> Iterator[Unfinished]:
    history = world.invariants.history
    for topic in history.topics.values():
        for partition, assignment in topic.partitions.items() if topic.name not in history.markers else ():
            key = topic.name, partition
            state = history.current(key)
            if state is not None and (_leads(world, state.leader, key) or key in history.spoilt):
                continue
            if not any(_can_lead(world, broker, key) for broker in (state.isr if state else assignment.replicas)):
                continue
            if state is None:
                yield Unfinished(f"{key} never started, its replicas are {assignment.replicas}")
            else:
                leader = frozenset(history.registered.keys() & {state.leader})
                yield Unfinished(f"{key} has no live leader: {state}", leader)


def _leads(world: SimulatedKafka, leader: int, key: Key) -> bool:
    """Returns whether a leader lives, and its log is not on a directory that failed."""
    node = world.brokers.get(leader)
    return leader in world.invariants.history.registered and (node is None or key not in node.core.hosting.offline)


def has_failed(world: SimulatedKafka, broker: int, key: Key) -> bool:
    """Returns whether a broker's log of a partition is on a directory that failed."""
    node = world.brokers.get(broker)
    return node is not None and (key in node.core.hosting.failed or key in node.core.hosting.offline)


def _can_lead(world: SimulatedKafka, broker: int, key: Key) -> bool:
    """Returns whether nothing keeps a broker from leading a partition."""
    node, there = world.brokers.get(broker), broker in world.invariants.history.registered
    return node is not None and there and not node.stopping and not has_failed(world, broker, key)


def _reassignments(world: SimulatedKafka) -> Iterator[Unfinished]:
    """Yields reassignments that can end, ISRs with dropped members, and requests without a reassignment under way."""
    history = world.invariants.history
    moving = history.moving()
    for key, moved in moving.items():
        state = history.current(key)
        if state is not None and can_end(world, key, moved):
            what = f"{key} is still reassigned: {moved}"
            if not any(has_failed(world, broker, key) for broker in moved.replicas):
                yield Unfinished(what, frozenset(moved.replicas), STOPPED_S_MAX)  # it may wait for two final rewrites
            if set(moved.target) <= set(state.isr):
                yield Unfinished(f"{what}, with the ISR {state.isr}", patience_s=STOPPED_S_MAX)
    for key, states in history.states.items():
        replicas = history.assignment(key)
        strays = set(states[-1].isr).difference(replicas)
        if strays and key not in history.spoilt:
            yield Unfinished(f"{key} has {strays} in the ISR, which are not assigned", frozenset(replicas))
    for name, target in history.request.items():
        if name not in moving or moving[name].target != target:
            yield Unfinished(f"{name} to {target} is still requested")


def _is_doubted(world: SimulatedKafka, name: str) -> bool:
    """Checks whether a broker has a log of an earlier topic of this name."""
    topic = world.invariants.history.topics.get(name)
    if topic is None or topic.topic_id is None:
        return False
    logs = (log for node in world.brokers.values() for log in node.core.hosting.logs.items())
    return any(key[0] == name and topic_id not in (None, topic.topic_id) for key, topic_id in logs)


def _is_fenced(world: SimulatedKafka, broker: int, key: Key) -> bool:
    """Checks whether a running broker knows a partition with a higher leader epoch than ZooKeeper."""
    state, replica = world.invariants.history.current(key), world.brokers[broker].core.hosting.replicas.get(key)
    return state is not None and replica is not None and replica.leader_epoch > state.leader_epoch


def _removed_replicas(world: SimulatedKafka) -> Iterator[Unfinished]:
    """Yields logs of replicas that daemons removed, on brokers that are there (I22).

    A broker that started without a log directory reports its logs as deleted, and has them again later. Where another
    client created a topic anew below the logs of an earlier one, its id is in doubt, and no log of it is deleted. A
    broker that knows a higher leader epoch deletes the log once it has restarted, and a topic's deletion comes first.
    A broker that knows another cluster's controller epoch refuses all requests.
    """
    history = world.invariants.history
    for key, brokers in history.removed.items():
        for broker in sorted(brokers & history.registered.keys() & world.brokers.keys()):
            unfound = broker in history.unfound.get(key, ()) or has_failed(world, broker, key)
            logs = world.brokers[broker].core.hosting.logs
            waits = key[0] in history.markers or _is_fenced(world, broker, key) or world.brokers[broker].foreign
            if key in logs and not unfound and not waits and not _is_doubted(world, key[0]):
                yield Unfinished(
                    f"broker {broker} keeps the log of {key}, which no assignment names", patience_s=AGAIN_S
                )
