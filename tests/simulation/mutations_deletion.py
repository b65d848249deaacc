"""Bugs in the deletion of topics."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from controller import deleting
from controller.handlers import broker_change
from state_machines.cluster import Cluster
from tests.simulation.planting import mutation, put


@mutation
def delete_znodes_before_the_answers(stack: ExitStack) -> None:
    """A topic ends as soon as its brokers were told."""

    def nobody_waits(_cluster: Cluster, _topics: Iterable[int]) -> list[int]:
        return []

    def all_ended(cluster: Cluster, topics: Iterable[int]) -> list[int]:
        return [index for index in topics if index in cluster.deletions]

    put(stack, deleting, "under_way", nobody_waits)
    put(stack, deleting, "finished", all_ended)


@mutation
def no_deletion_after_a_return(stack: ExitStack) -> None:
    """A broker that comes back is not told which logs it has to delete."""
    put(stack, broker_change, "brokers_changed", lambda c, gone, back: None)
