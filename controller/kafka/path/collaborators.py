"""Lists the collaborators of a controller in one term, as the term hands them over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from brokers.outbound.channels import Channels
from brokers.queries import Dial
from brokers.security.attested import Seals
from brokers.wire.versions import Ibp
from controller.kafka.access.authorizer import Authorizer
from controller.kafka.access.principals import Principals
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.path.adoption import Adoption
from controller.kafka.path.default_configs import DefaultConfigs
from controller.kafka.path.deletion_queue import DeletionQueue
from controller.kafka.path.event_queue import EventQueue
from controller.kafka.path.gate import Gate
from controller.kafka.path.leader_balance import LeaderBalance
from controller.kafka.path.topic_policy import TopicPolicy
from controller.metrics.counters import Counters
from metadata_store.kafka_store import KafkaStore
from state_machines.model.cluster import Cluster


async def no_seals() -> Seals | None:
    """Returns no seals: the daemon has no secret."""
    return None


@dataclass(frozen=True, slots=True)
class StoreSide:
    """ZooKeeper, and when the term may write there."""

    store: KafkaStore
    gate: Gate
    conflict_rounds_max: int


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """The brokers, and this daemon as they see it.

    ``daemons``: ids of all daemons, which host no replica; ``daemon_id``: this daemon's. ``joined`` is called with the
    brokers that registered.
    """

    channels: Channels
    ibp: Ibp
    inherited: DefaultConfigs
    daemons: frozenset[int]
    daemon_id: int = 0
    dial: Dial | None = None
    seals: Callable[[], Awaitable[Seals | None]] = no_seals
    joined: Callable[[Collection[int]], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class TermMemory:
    """The model of the term, its queue of events, and what else it remembers until it ends."""

    cluster: Cluster
    queue: EventQueue
    counters: Counters
    adoption: Adoption
    balance: LeaderBalance
    deletion_queue: DeletionQueue
    journal: KafkaJournal = field(default_factory=KafkaJournal)
    authorizer: Authorizer = field(default_factory=lambda: Authorizer(Principals()))
    topic_policy: TopicPolicy | None = None
