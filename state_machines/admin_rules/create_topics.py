"""Judges the topics of a CreateTopics request, in Kafka's order (``ZkAdminManager``, ``AdminZkClient``).

The random numbers of a placement, the brokers and the existing topics are arguments; nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.admin_rules.placement import PlacementError, place
from state_machines.admin_rules.topic_configs import (
    METADATA_TOPIC,
    TakenNames,
    wants_remote_storage,
    wrong_config,
    wrong_name,
)
from state_machines.model.types import Assignment

DEFAULT: Final = -1
"""As a number of partitions or replicas: the cluster's default (KIP-464)."""
PARTITIONS_MAX: Final = 100_000
"""Partitions that one request may create: a topic's znode with more would not fit into ZooKeeper."""


class TopicError(IntEnum):
    """Kafka's error codes of a topic that is not created or does not grow."""

    UNKNOWN_SERVER_ERROR = -1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    INVALID_TOPIC = 17
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    REASSIGNMENT_IN_PROGRESS = 60
    THROTTLING_QUOTA_EXCEEDED = 89


class TopicRefusal(Struct, frozen=True, gc=False):
    """A topic that is refused; the text has the cause and the remedy."""

    error: TopicError
    why: str | None


class RefusedTopic(Exception):  # an outcome, not a fault
    """Carries a refusal out of the functions that judge."""

    def __init__(self, error: TopicError, why: str) -> None:
        super().__init__(why)
        self.refusal = TopicRefusal(error, why)


class WantedTopic(Struct, frozen=True, gc=False):
    """A topic of a request; numbers may be :data:`DEFAULT`, ``assignments`` pairs of partition and brokers."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


class TopicDefaults(NamedTuple):
    """The values of :data:`DEFAULT` (``num.partitions``, ``default.replication.factor``); None: not known yet."""

    partitions: int | None = 1
    replication_factor: int | None = 1


DEFAULTS: Final = TopicDefaults()
"""Kafka's defaults."""
_UNKNOWN: Final = "no broker has reported its {} yet (the log of the controlling daemon has the cause): try again, {}"
UNKNOWN_PARTITIONS: Final = _UNKNOWN.format("num.partitions", "give a number, or set controller.num_partitions")
UNKNOWN_FACTOR: Final = _UNKNOWN.format(
    "default.replication.factor", "give a number, or set controller.default_replication_factor"
)
UNKNOWN_REMOTE: Final = _UNKNOWN.format(
    "remote.log.storage.system.enable", "or set controller.remote_log_storage_system_enable"
)
UNKNOWN_POLICY: Final = _UNKNOWN.format(
    "create.topic.policy.class.name",
    "or set controller.ignore_create_topic_policy = true to create topics without a policy",
)
"""Refusals that pass by themselves: they are errors after which clients may try again."""


class NewTopic(Struct, frozen=True, gc=False):
    """A topic as it is to be written. ``topic_id``: 16 bytes, None below IBP 2.8."""

    name: str
    topic_id: bytes | None
    partitions: dict[int, Assignment]
    configs: dict[str, str]


class TopicContext(Struct):
    """The state of the cluster that topics are judged against.

    ``brokers``: rack by id of all that are registered; ``cordoned`` ones are not chosen. ``daemons``: ids that host no
    replica. ``existing``: names that brokers show. ``found``: names that ZooKeeper has, though no broker shows them;
    ``marked``: those that wait for their deletion. ``spare``: partitions that the request may still create. ``policy``:
    why no topic is created at all. ``remote_storage``: whether brokers have tiered storage. Both are None where that is
    not known yet.
    """

    brokers: Mapping[int, str | None]
    daemons: Collection[int]
    taken: TakenNames
    defaults: TopicDefaults = DEFAULTS
    existing: Collection[str] = frozenset()
    found: Collection[str] = frozenset()
    marked: Collection[str] = frozenset()
    spare: int = PARTITIONS_MAX
    policy: str | None = ""
    remote_storage: bool | None = True
    cordoned: Collection[int] = frozenset()


def judge_topic(context: TopicContext, wanted: WantedTopic, start: int, shift: int) -> NewTopic | TopicRefusal:
    """Returns the topic to be written, without an id, or the refusal.

    ``start`` and ``shift``: random numbers from 0 on, of which the placement takes what it needs.
    """
    try:
        return _judged(context, wanted, start, shift)
    except RefusedTopic as refused:
        return refused.refusal


def _judged(context: TopicContext, wanted: WantedTopic, start: int, shift: int) -> NewTopic:
    if wanted.name == METADATA_TOPIC:
        raise RefusedTopic(TopicError.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if wanted.name in context.existing:
        raise _exists(wanted.name)
    unset = [name for name, value in wanted.configs if value is None]
    if unset:
        raise RefusedTopic(TopicError.INVALID_CONFIG, f"{', '.join(unset)} without a value: leave it out or give one")
    partitions = _given(wanted) if wanted.assignments else _placed(context, wanted, start, shift)
    _check_name(context, wanted.name)
    if wanted.assignments:
        _check_assignments(context, partitions)
    configs = {name: value for name, value in wanted.configs if value is not None}
    if (wrong := wrong_config(configs, remote_storage=context.remote_storage is not False)) is not None:
        raise RefusedTopic(TopicError.INVALID_CONFIG, wrong)
    if context.remote_storage is None and wants_remote_storage(configs):
        raise RefusedTopic(TopicError.REQUEST_TIMED_OUT, UNKNOWN_REMOTE)
    if context.policy is None:
        raise RefusedTopic(TopicError.REQUEST_TIMED_OUT, UNKNOWN_POLICY)
    if context.policy:
        raise RefusedTopic(TopicError.POLICY_VIOLATION, context.policy)
    context.spare -= len(partitions)
    return NewTopic(wanted.name, None, {p: Assignment(partitions[p]) for p in sorted(partitions)}, configs)


def _exists(name: str) -> RefusedTopic:
    return RefusedTopic(TopicError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _given(wanted: WantedTopic) -> dict[int, tuple[int, ...]]:
    if wanted.partitions != DEFAULT or wanted.replication_factor != DEFAULT:
        why = "assignments are given, and numbers of partitions or replicas too: give one of both"
        raise RefusedTopic(TopicError.INVALID_REQUEST, why)
    return dict(wanted.assignments)


def _placed(context: TopicContext, wanted: WantedTopic, start: int, shift: int) -> dict[int, tuple[int, ...]]:
    count = context.defaults.partitions if wanted.partitions == DEFAULT else wanted.partitions
    factor = context.defaults.replication_factor if wanted.replication_factor == DEFAULT else wanted.replication_factor
    if count is None:
        raise RefusedTopic(TopicError.REQUEST_TIMED_OUT, UNKNOWN_PARTITIONS)
    if factor is None:
        raise RefusedTopic(TopicError.REQUEST_TIMED_OUT, UNKNOWN_FACTOR)
    brokers = uncordoned(context.brokers, context.cordoned)
    check_numbers(count, factor, len(brokers), context.spare, len(context.brokers) - len(brokers))
    drawn = len(brokers)
    return spread(brokers, count, factor, start % drawn, shift % drawn)


def uncordoned(brokers: Mapping[int, str | None], cordoned: Collection[int]) -> Mapping[int, str | None]:
    """Returns the brokers on which replicas may be placed."""
    return {broker: rack for broker, rack in brokers.items() if broker not in cordoned} if cordoned else brokers


def check_numbers(count: int, factor: int, brokers: int, spare: int, cordoned: int = 0) -> None:
    """Checks whether ``count`` partitions with ``factor`` replicas can be placed on so many brokers.

    ``cordoned``: brokers that are registered besides.
    """
    if count <= 0:
        raise RefusedTopic(TopicError.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if factor <= 0:
        raise RefusedTopic(TopicError.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if factor > brokers:
        why = f"Replication factor: {factor} larger than available brokers: {brokers}."
        if cordoned:
            why += f" {cordoned} more are cordoned: see 'regent list brokers'."
        raise RefusedTopic(TopicError.INVALID_REPLICATION_FACTOR, why)
    if count > spare:
        why = f"{count} partitions: a request may create {PARTITIONS_MAX} together"
        raise RefusedTopic(TopicError.POLICY_VIOLATION, why)


def spread(
    brokers: Mapping[int, str | None], count: int, factor: int, start: int, shift: int, first: int = 0
) -> dict[int, tuple[int, ...]]:
    """Places replicas as Kafka does; a cluster where only some brokers have a rack is an error."""
    try:
        return place(brokers, count, factor, start=start, shift=shift, first_partition=first)
    except PlacementError as error:
        raise RefusedTopic(TopicError.UNKNOWN_SERVER_ERROR, str(error)) from error


def _check_name(context: TopicContext, name: str) -> None:
    if (wrong := wrong_name(name)) is not None:
        raise RefusedTopic(TopicError.INVALID_TOPIC, f"Topic name is invalid: {wrong}")
    if name in context.marked:
        raise RefusedTopic(TopicError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    if name in context.found:
        raise _exists(name)
    if (other := context.taken.colliding(name)) is not None:
        why = f"Topic '{name}' collides with existing topics: {other}"
        raise RefusedTopic(TopicError.INVALID_TOPIC, why)


def _check_assignments(context: TopicContext, partitions: Mapping[int, tuple[int, ...]]) -> None:
    """Checks given assignments. Unknown brokers are accepted, as by Kafka; daemons are not: they host no replica."""
    wrong = None
    if len({len(replicas) for replicas in partitions.values()}) != 1:
        wrong = "all partitions must have the same number of replicas"
    elif any(len(set(replicas)) != len(replicas) for replicas in partitions.values()):
        wrong = "a broker is named twice for one partition"
    elif sorted(partitions) != list(range(len(partitions))):
        wrong = "partitions must be numbered from 0 on without holes"
    elif not all(partitions.values()):
        wrong = "a partition without a replica"
    elif any(broker < 0 or broker in context.daemons for replicas in partitions.values() for broker in replicas):
        wrong = "it names a broker that cannot host replicas"
    elif len(partitions) > context.spare:
        why = f"{len(partitions)} partitions: a request may create {PARTITIONS_MAX} together"
        raise RefusedTopic(TopicError.POLICY_VIOLATION, why)
    if wrong is not None:
        raise RefusedTopic(TopicError.INVALID_REPLICA_ASSIGNMENT, wrong)
