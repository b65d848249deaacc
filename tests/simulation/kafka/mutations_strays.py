"""Plants bugs in the memory of removed replicas whose brokers were away."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack

from controller.kafka.path.controller import Controller
from controller.kafka.reassignments import reassignment, strays
from state_machines.model.cluster import Cluster
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation, mutation_in_a_story


@mutation
def forget_missed_removals(stack: ExitStack) -> None:
    """Finishes reassignments as if every broker had stopped its removed replicas."""

    async def finish(_c: Controller, _rows: Collection[int]) -> set[int]:
        return set()

    put(stack, reassignment, "finish_remembering", finish)


@mutation
def leave_remembered_replicas(stack: ExitStack) -> None:
    """Remembers removals that brokers missed, and sends no StopReplica when they return."""

    async def send(_c: Controller) -> None:
        """Sends nothing."""

    put(stack, strays, "_send", send)


@mutation_in_a_story
def doubt_an_id_after_its_refusal_is_gone(stack: ExitStack) -> None:
    """Doubts a topic's id also when the log that had another one is deleted."""
    put(stack, Cluster, "observe_logs_deleted", lambda _cluster, _broker, _rows: None)
