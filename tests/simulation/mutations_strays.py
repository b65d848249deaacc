"""Plants bugs in the memory of removed replicas whose brokers were away."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack

from controller.engine.controller import Controller
from controller.handlers import reassignment, strays
from tests.simulation.planting import mutation, put


@mutation
def forget_missed_removals(stack: ExitStack) -> None:
    """Finishes reassignments as if every broker had stopped its removed replicas."""

    async def finish(_c: Controller, _rows: Collection[int]) -> set[int]:
        return set()

    put(stack, reassignment, "finish_missed", finish)


@mutation
def leave_remembered_replicas(stack: ExitStack) -> None:
    """Remembers removals that brokers missed, and sends no StopReplica when they return."""
    put(stack, strays, "_send", lambda _c: None)
