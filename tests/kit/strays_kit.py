"""Strays in the controller's world: what is remembered of them, and replicas that are moved away meanwhile."""

from __future__ import annotations

import json
from typing import Any

from metadata_store.nodes.stray_nodes import PARENT
from state_machines.model.types import Assignment
from tests.kit.controller_parts import STOP_REPLICA
from tests.kit.controller_world import World
from tests.kit.reassignment_kit import alter, caught_up, propagated, written

GONE: tuple[int, ...] = (2, 3)


def remembered(w: World) -> dict[str, dict[str, Any]]:
    """Reads the memories by name."""
    if w.node(PARENT) is None:
        return {}
    found = {name: w.node(f"{PARENT}/{name}") for name in w.children(PARENT)}
    return {name: json.loads(node.data or b"") for name, node in found.items() if node is not None}


def stops(w: World, broker: int) -> list[tuple[tuple[str, int], int, bool]]:
    """Returns partition, leader epoch and deletion of each entry in StopReplica to a broker."""
    return [(name, p.leader_epoch, p.delete_partition) for name, p in w.wires.partitions(broker, STOP_REPLICA)]


async def moved_while_away(w: World, *names: str) -> None:
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


async def next_term(w: World) -> None:
    """The daemon dies, and another one begins a term."""
    await w.active.crash()
    await w.begin_term()
    await propagated(w)
