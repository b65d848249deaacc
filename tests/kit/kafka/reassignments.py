"""Reassignments in the controller's world: requests, leaders that bring new replicas into the ISR, and strays."""

from __future__ import annotations

import json
from typing import Any

from controller.kafka.requests.calls import Calls
from controller.kafka.requests.values import AlterReassignments, ListReassignments
from metadata_store import paths
from metadata_store.nodes.stray_nodes import PARENT
from state_machines.decisions.reassignment import NotReassigned
from state_machines.model.types import Assignment, TopicPartition
from tests.kit.kafka.parts import STOP_REPLICA
from tests.kit.kafka.world import KafkaWorld

ReassignmentRequest = dict[tuple[str, int], tuple[int, ...] | None]
Refused = dict[tuple[str, int], NotReassigned]


async def alter(w: KafkaWorld, asked: ReassignmentRequest) -> Refused:
    """Makes a call of an admin client; returns the refusals."""
    targets = {TopicPartition(*name): target for name, target in asked.items()}
    return dict((await Calls(w.term.queue).alter_reassignments(AlterReassignments(targets))).refused.items())


async def listed(w: KafkaWorld, *names: tuple[str, int]) -> dict[tuple[str, int], Assignment]:
    """Lists reassignments, of these partitions or of all."""
    wanted = tuple(TopicPartition(*name) for name in names) or None
    return dict((await Calls(w.term.queue).list_reassignments(ListReassignments(wanted))).under_way.items())


async def request_by_znode(w: KafkaWorld, asked: dict[tuple[str, int], tuple[int, ...]]) -> None:
    """Writes the znode of requests, and handles the event."""
    found = [{"topic": t, "partition": p, "replicas": replicas} for (t, p), replicas in asked.items()]
    data = json.dumps({"version": 1, "partitions": found}).encode()
    if w.node(paths.REASSIGN_PARTITIONS) is None:
        await w.operator.create(paths.REASSIGN_PARTITIONS, data)
    else:
        await w.operator.set(paths.REASSIGN_PARTITIONS, data, -1)
    await w.settle()


def requested_by_znode(w: KafkaWorld) -> dict[tuple[str, int], tuple[int, ...]] | None:
    """Reads the znode of requests; None where there is none."""
    node = w.node(paths.REASSIGN_PARTITIONS)
    if node is None:
        return None
    return {(p["topic"], p["partition"]): tuple(p["replicas"]) for p in json.loads(node.data or b"")["partitions"]}


def written(w: KafkaWorld, topic: str, partition: int = 0) -> Assignment:
    """Reads a partition's assignment from the topic znode."""
    return w.assignment(topic).partitions[partition]


async def propagated(w: KafkaWorld) -> None:
    """Waits until brokers have acknowledged all changes, three times, because responses raise further events."""
    for _ in range(3):
        await w.propagated()


async def join(w: KafkaWorld, *only: tuple[str, int], by_call: bool = True) -> None:
    """Leaders take the replicas of targets into the ISR; ``by_call`` False: by writing it, without a notification."""
    for name, state in w.states.items():
        moved = written(w, *name)
        joining = [b for b in moved.target if moved.moving and b not in state.isr and b in w.brokers]
        if not joining or state.leader not in w.brokers or (only and name not in only):
            continue
        isr = (*state.isr, *joining)
        if by_call:
            await w.alter_partition(state.leader, w.proposal(*name, isr))
        else:
            await w.leader_writes(*name, isr)
    await w.settle()


async def caught_up(w: KafkaWorld, *, by_call: bool = True) -> None:
    """Plays brokers and leaders until all reassignments have ended."""
    for _ in range(3):
        await propagated(w)
        await join(w, by_call=by_call)
    await propagated(w)


GONE: tuple[int, ...] = (2, 3)


def remembered(w: KafkaWorld) -> dict[str, dict[str, Any]]:
    """Reads the memories by name."""
    if w.node(PARENT) is None:
        return {}
    found = {name: w.node(f"{PARENT}/{name}") for name in w.children(PARENT)}
    return {name: json.loads(node.data or b"") for name, node in found.items() if node is not None}


def stops(w: KafkaWorld, broker: int) -> list[tuple[tuple[str, int], int, bool]]:
    """Returns partition, leader epoch and deletion of each entry in StopReplica to a broker."""
    return [(name, p.leader_epoch, p.delete_partition) for name, p in w.wires.partitions(broker, STOP_REPLICA)]


async def moved_while_away(w: KafkaWorld, *names: str) -> None:
    """Partition 0 of topics (``t``) moves from 1, 2 to 2, 3 while broker 1 is away; a term runs."""
    names = names or ("t",)
    for name in names:
        await w.topic(name, (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    w.forget()
    assert await alter(w, dict.fromkeys(((name, 0) for name in names), GONE)) == {}
    await caught_up(w)
    assert {written(w, name) for name in names} == {Assignment(GONE)}


async def next_term(w: KafkaWorld) -> None:
    """The daemon dies, and another one begins a term."""
    await w.active.crash()
    await w.begin_term()
    await propagated(w)
