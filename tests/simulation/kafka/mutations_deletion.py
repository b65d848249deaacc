"""Plants bugs in the deletion of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from controller.kafka.brokers import broker_change
from controller.kafka.path import adoption
from controller.kafka.path import agenda as deleting
from controller.kafka.topics import deletion
from state_machines.admin_rules.broker_settings import InForce, Reported, Value, in_force
from state_machines.decisions import deletion as decisions
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation, mutation_in_a_story


@mutation
def delete_znodes_before_the_answers(stack: ExitStack) -> None:
    """Ends a topic as soon as its brokers were sent StopReplica."""

    put(stack, deleting, "any_waits", lambda _cluster, _rows: False)
    put(stack, deleting, "all_deleted", lambda _cluster, _rows: True)


@mutation
def guards_of_brokers_are_ignored(stack: ExitStack) -> None:
    """Ignores the settings that brokers report: Kafka's defaults hold."""

    def defaults(
        chosen: Mapping[str, Value], _reported: Mapping[int, Reported], _live: Iterable[int] | None = None
    ) -> dict[str, InForce]:
        return in_force(chosen, {0: {}})

    put(stack, adoption, "in_force", defaults)


@mutation_in_a_story
def defaults_hold_until_brokers_have_spoken(stack: ExitStack) -> None:
    """Allows everything in a term that begins before brokers have reported their settings."""

    def guessed(
        chosen: Mapping[str, Value], reported: Mapping[int, Reported], live: Iterable[int] | None = None
    ) -> dict[str, InForce]:
        return in_force(chosen, reported or {0: {}}, live)

    put(stack, adoption, "in_force", guessed)


@mutation_in_a_story
def only_known_leaderships_are_ended(stack: ExitStack) -> None:
    """Ends no partition whose state znode is gone, or cannot be used, when its topic is deleted."""

    def forget(draft: Draft, rows: list[int]) -> None:
        partitions = PartitionStateMachine(draft)
        known = [i for i in rows if draft.row(i).has_leadership]
        partitions.take_offline(known, decisions.DELETED)
        partitions.remove(known, decisions.DELETED)

    put(stack, decisions, "_forget_partitions", forget)


@mutation_in_a_story
def the_next_term_waits_again(stack: ExitStack) -> None:
    """Forgets in the next term which waits operators have ended."""
    put(stack, deletion, "recall_given_up", lambda _c, _topics: None)


@mutation
def no_deletion_after_a_return(stack: ExitStack) -> None:
    """Sends a broker that comes back no request to delete its logs."""
    put(stack, broker_change, "resume_deletions", lambda c, gone, back: None)
