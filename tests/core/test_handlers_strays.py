"""Replicas that a reassignment removes while their brokers are away are remembered, and stopped when these return."""

from __future__ import annotations

from metadata_store import paths
from metadata_store.nodes.stray_nodes import PARENT
from state_machines.model.types import Assignment
from tests.core.controller_world import World, in_world
from tests.core.reassignment_kit import alter, caught_up, propagated, written


def remembered(w: World) -> set[str]:
    """Reads the names of the memories."""
    return {path.removeprefix(f"{PARENT}/") for path in w.server.tree._nodes if path.startswith(f"{PARENT}/")}


async def moved_while_away(w: World) -> None:
    """t-0 moves from 1, 2 to 2, 3 while broker 1 is away."""
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    w.forget()
    assert await alter(w, {("t", 0): (2, 3)}) == {}
    await caught_up(w)
    assert written(w, "t") == Assignment((2, 3))


@in_world(1, 2, 3)
async def test_a_replica_that_was_removed_while_its_broker_was_away_is_stopped_at_its_return(w: World) -> None:
    await moved_while_away(w)
    assert remembered(w) == {"1-t"}
    topic = [written_ for written_ in w.active.script.writes if paths.topic("t") in written_][-1]
    assert topic[1:] == [f"{PARENT}/1-t", paths.topic("t")], "one multi"
    assert w.wires.deleted(1) == []
    await w.boot(1)
    await propagated(w)
    assert w.wires.deleted(1) == [("t", 0)]
    assert remembered(w) == set()
