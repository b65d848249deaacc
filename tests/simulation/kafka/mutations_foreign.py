"""Plants bugs around znodes that tools and people wrote, and around partitions that a term meets late."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from msgspec.structs import replace

from brokers.wire.partitions import PartitionEncoder
from controller.kafka.path.controller import Controller
from controller.kafka.topics import lost_ids, repair
from controller.kafka.topics.repair import States
from state_machines.decisions.topic_change import Evidence, Verdict
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change
from state_machines.model.types import Broker, PartitionRow, TopicAssignment
from state_machines.propagation.propagation import Propagation
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation, mutation_in_a_story


@mutation
def new_id_for_a_known_topic(stack: ExitStack) -> None:
    """Gives another id to a topic that lost its id while a term knows it (KAFKA-14190)."""

    def id_of(c: Controller, topic: TopicAssignment, states: States) -> bytes | None:
        return topic.topic_id or (uuid.uuid4().bytes if c.ibp.topic_ids else None)

    put(stack, repair, "_id_of", id_of)


@mutation
def new_id_at_failover(stack: ExitStack) -> None:
    """Gives every topic without an id a new one at a failover, without a request to brokers."""

    def judged(
        lost: Iterable[str], evidence: Evidence, *, complete: bool, none_had_one: bool
    ) -> dict[str, bytes | Verdict]:
        return dict.fromkeys(lost, Verdict.NEVER_HAD_ONE)

    put(stack, lost_ids, "judge_ids", judged)


@mutation
def topics_are_sent_without_their_ids(stack: ExitStack) -> None:
    """Sends brokers the topics by name alone, although their znodes have ids."""
    encoded = PartitionEncoder.topic
    put(stack, PartitionEncoder, "topic", lambda self, topic: encoded(self, replace(topic, topic_id=None)))


@mutation_in_a_story
def metadata_before_the_answer(stack: ExitStack) -> None:
    """Sends brokers topics without ids before their replies: they forget the ids, so no topic seems to have one."""
    put(stack, Propagation, "withheld_from", lambda self, pending: ())


@mutation_in_a_story
def silent_brokers_know_nothing(stack: ExitStack) -> None:
    """Takes a broker without a reply, or a restarted one, for one that was sent no id."""

    def complete(self: Evidence, live: Mapping[int, Broker]) -> bool:
        self.sent_none = True
        return True

    put(stack, Evidence, "complete", complete)


@mutation
def late_partitions_as_new(stack: ExitStack) -> None:
    """Sends a late partition with a history as new, with the leader epoch that was read."""

    def created(self: Cluster, row: PartitionRow) -> bool:
        return True

    put(stack, Cluster, "_created", created)


@mutation
def late_partitions_keep_their_epoch(stack: ExitStack) -> None:
    """Sends a late partition as it was read: brokers take no notice of a leader epoch that they know."""
    put(stack, Change, "is_late", property(lambda self: False))
    put(stack, Controller, "take_up", lambda self, rows: None)
