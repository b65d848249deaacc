"""Lists every event: the watch that raises it, the handler of its kind, and its state in Kafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from controller.kafka.access import Authorizer
from controller.kafka.brokers.broker_change import ShownEndpoint, broker_change
from controller.kafka.brokers.broker_settings import broker_settings
from controller.kafka.brokers.log_directories import Failed, log_dir_event, replicas_failed
from controller.kafka.brokers.marks import cordon_change, pause_change, undrain_call
from controller.kafka.clients import (
    allocate_producer_ids,
    alter_scram_credentials,
    expired_tokens,
    update_features,
)
from controller.kafka.metrics.exposition import KafkaState, KafkaStates
from controller.kafka.partitions.controlled_shutdown import controlled_shutdown_call, undo_shutdown_call
from controller.kafka.partitions.elections import AutoBalance, elect_leaders, preferred_election
from controller.kafka.partitions.isr_changes import alter_partition, isr_notification
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import Event, EventKind, settled
from controller.kafka.reassignments import reassignment, reassignment_requests
from controller.kafka.reassignments.given_up import give_up_call
from controller.kafka.reassignments.strays import remove_strays, stop_strays
from controller.kafka.requests.calls import PendingCall
from controller.kafka.topics.configurations import DefaultConfigs, config_change
from controller.kafka.topics.create_partitions import create_partitions
from controller.kafka.topics.create_topics import create_topics
from controller.kafka.topics.delete_topics import delete_topics_call
from controller.kafka.topics.deletion import deletion_progress, topic_deletion
from controller.kafka.topics.ghosts import end_ghosts
from controller.kafka.topics.lost_ids import lost_ids
from controller.kafka.topics.repair import replace_daemons
from controller.kafka.topics.topic_change import late_partitions, partition_modifications, repaired_state, topic_change
from controller.kafka.topics.topic_policy import TopicPolicy
from metadata_store import paths
from metadata_store.nodes.acl_nodes import CHANGES as ACL_CHANGES
from metadata_store.nodes.cordon_node import PATH as CORDONS
from metadata_store.nodes.endpoint_znode import endpoint_path
from metadata_store.nodes.pause_node import PATH as PAUSE
from metadata_store.port import WatchEvent, WatchKind
from state_machines.admin_rules.credentials import Token

_REASSIGNING: Final = KafkaState.PARTITION_REASSIGNMENT


class Watched(Enum):
    """Groups znodes whose changes raise the same event."""

    BROKERS = auto()
    TOPICS = auto()
    TOPIC = auto()
    DELETIONS = auto()
    ISR_CHANGES = auto()
    REASSIGNMENT = auto()
    LOG_DIR_EVENTS = auto()
    PREFERRED_ELECTION = auto()
    CONFIG = auto()
    ENDPOINT = auto()
    CORDONS = auto()
    PAUSE = auto()
    ACL_CHANGES = auto()
    STATE = auto()
    MALFORMED_STATE = auto()


STATES: Final = frozenset({Watched.STATE, Watched.MALFORMED_STATE})
_SINGLE: Final[Mapping[str, Watched]] = {
    paths.TOPICS: Watched.TOPICS,
    paths.DELETE_TOPICS: Watched.DELETIONS,
    paths.ISR_CHANGES: Watched.ISR_CHANGES,
    paths.REASSIGN_PARTITIONS: Watched.REASSIGNMENT,
    paths.LOG_DIR_EVENTS: Watched.LOG_DIR_EVENTS,
    paths.PREFERRED_ELECTION: Watched.PREFERRED_ELECTION,
    CORDONS: Watched.CORDONS,
    PAUSE: Watched.PAUSE,
}


def changed(event: WatchEvent, me: int, *, repaired: bool) -> Iterator[tuple[Watched, str | None]]:
    """Yields the meaning of a watch, and the detail of the event that it raises.

    ``me``: the daemon's id. ``repaired``: the znode could not be understood before.
    """
    path, kind = event
    if (found := _SINGLE.get(path)) is not None:
        yield found, None
    elif path == endpoint_path(me):
        yield Watched.ENDPOINT, None
    elif path in ACL_CHANGES:
        yield Watched.ACL_CHANGES, path
    elif path.startswith(paths.CONFIG):
        yield Watched.CONFIG, None
    elif path.startswith(paths.BROKER_IDS):
        yield Watched.BROKERS, None
    elif paths.partition_of_state(path) is not None:
        yield (Watched.MALFORMED_STATE, path) if repaired else (Watched.STATE, None)
    elif path.startswith(f"{paths.TOPICS}/"):
        if kind is WatchKind.DELETED:
            yield Watched.TOPICS, None
        yield Watched.TOPIC, path.rpartition("/")[2]


class Parts(NamedTuple):
    """What handlers get of a term: the controller, and what the handlers of one kind alone need.

    ``configs``: those that new topics inherit. ``registered``: queries brokers that registered.
    """

    c: Controller
    authorizer: Authorizer
    endpoint: ShownEndpoint
    balance: AutoBalance
    policy: TopicPolicy | None
    configs: DefaultConfigs
    registered: Callable[[Collection[int]], None]


Handler = Callable[[Parts, Event], Awaitable[None]]


class Handling(NamedTuple):
    """Describes one kind. ``handler``: None where the term handles it itself; ``kafka``: Kafka's controller state.

    ``reread``: signalled after a reconnect, because its handler reads the changes since and arms its watches.
    ``watch``: the znodes whose changes raise it.
    """

    handler: Handler | None
    kafka: KafkaState | None = None
    reread: bool = False
    watch: Watched | None = None


def unread(handler: Callable[[Controller], Awaitable[None]]) -> Handler:
    """Returns the handler of an event that carries nothing: the truth is read."""
    return lambda parts, _: handler(parts.c)


def call(handler: Callable[[Controller, Any], Awaitable[None]]) -> Handler:
    """Returns the handler of an event that carries a call; it responds to it or refuses it before the term ends."""
    return lambda parts, event: handler(parts.c, pending(event))


async def acl_change(parts: Parts, event: Event) -> None:
    """Reads changed access control lists: those that the event's notification names, or all of them."""
    parts.authorizer.look_again(everything=event.detail is None)


def pending(event: Event) -> Any:
    """Returns the call that an event carries."""
    assert isinstance(event.detail, PendingCall)
    return event.detail


def failed(event: Event) -> Failed:
    """Returns the replicas that a broker's response reports on failed log directories."""
    assert isinstance(event.detail, Failed)
    return event.detail


def expired(event: Event) -> tuple[Token, ...]:
    """Returns the delegation tokens that have expired."""
    assert isinstance(event.detail, tuple)
    return event.detail


EVENTS: Final[Mapping[EventKind, Handling]] = {
    EventKind.FAILOVER: Handling(None, KafkaState.CONTROLLER_CHANGE),
    EventKind.RECONNECTED: Handling(None),
    # read again after a reconnect, in this order
    EventKind.BROKER_CHANGE: Handling(
        lambda parts, _: broker_change(parts.c, parts.registered),
        KafkaState.LEADER_ELECTION,
        reread=True,
        watch=Watched.BROKERS,
    ),
    EventKind.TOPIC_CHANGE: Handling(unread(topic_change), KafkaState.TOPIC_CHANGE, reread=True, watch=Watched.TOPICS),
    EventKind.TOPIC_DELETION: Handling(
        unread(topic_deletion), KafkaState.TOPIC_DELETION, reread=True, watch=Watched.DELETIONS
    ),
    EventKind.ISR_NOTIFICATION: Handling(
        unread(isr_notification), KafkaState.ISR_CHANGE, reread=True, watch=Watched.ISR_CHANGES
    ),
    EventKind.REASSIGN_PARTITIONS: Handling(
        unread(reassignment_requests.reassign_partitions), _REASSIGNING, reread=True, watch=Watched.REASSIGNMENT
    ),
    EventKind.REASSIGNED_STATES: Handling(unread(reassignment.reassigned_states), _REASSIGNING, reread=True),
    EventKind.LOG_DIR_EVENT: Handling(
        unread(log_dir_event), KafkaState.LOG_DIR_CHANGE, reread=True, watch=Watched.LOG_DIR_EVENTS
    ),
    EventKind.PREFERRED_ELECTION: Handling(
        unread(preferred_election), KafkaState.MANUAL_LEADER_BALANCE, reread=True, watch=Watched.PREFERRED_ELECTION
    ),
    EventKind.CONFIG_CHANGE: Handling(
        lambda parts, _: config_change(parts.c, parts.configs),
        KafkaState.UNCLEAN_LEADER_ELECTION_ENABLE,
        reread=True,
        watch=Watched.CONFIG,
    ),
    EventKind.ENDPOINT_CHANGE: Handling(lambda parts, _: parts.endpoint.change(), reread=True, watch=Watched.ENDPOINT),
    EventKind.CORDON_CHANGE: Handling(unread(cordon_change), reread=True, watch=Watched.CORDONS),
    EventKind.PAUSE_CHANGE: Handling(unread(pause_change), reread=True, watch=Watched.PAUSE),
    EventKind.ACL_CHANGE: Handling(acl_change, reread=True, watch=Watched.ACL_CHANGES),
    # raised by other watches
    EventKind.PARTITION_MODIFICATIONS: Handling(
        lambda parts, e: partition_modifications(parts.c, str(e.detail)), KafkaState.TOPIC_CHANGE, watch=Watched.TOPIC
    ),
    EventKind.REPAIRED_STATE: Handling(
        lambda parts, e: repaired_state(parts.c, str(e.detail)), watch=Watched.MALFORMED_STATE
    ),
    EventKind.REASSIGNED_STATE: Handling(unread(reassignment.reassigned_state), _REASSIGNING, watch=Watched.STATE),
    # raised by other events, by brokers' responses and by timers
    EventKind.DELETION_PROGRESS: Handling(unread(deletion_progress), KafkaState.TOPIC_DELETION),
    EventKind.LATE_PARTITIONS: Handling(unread(late_partitions)),
    EventKind.LOST_IDS: Handling(unread(lost_ids)),
    EventKind.RESUME_REASSIGNMENTS: Handling(unread(reassignment_requests.resume_reassignments), _REASSIGNING),
    EventKind.ADVANCE_REASSIGNMENTS: Handling(unread(reassignment.advance_reassignments), _REASSIGNING),
    EventKind.FINISH_REASSIGNMENTS: Handling(unread(reassignment_requests.finish_reassignments), _REASSIGNING),
    EventKind.DROPPED_REPLICAS: Handling(unread(reassignment.dropped_replicas), _REASSIGNING),
    EventKind.STRAYS: Handling(unread(stop_strays)),
    EventKind.GHOSTS: Handling(unread(end_ghosts)),
    EventKind.REPLACE_DAEMONS: Handling(unread(replace_daemons), _REASSIGNING),
    EventKind.REPLICAS_FAILED: Handling(
        lambda parts, e: replicas_failed(parts.c, failed(e)), KafkaState.LEADER_AND_ISR_RESPONSE_RECEIVED
    ),
    EventKind.AUTO_BALANCE: Handling(lambda parts, _: parts.balance.look(), KafkaState.AUTO_LEADER_BALANCE),
    EventKind.BROKER_SETTINGS: Handling(unread(broker_settings)),
    EventKind.EXPIRED_TOKENS: Handling(lambda parts, e: expired_tokens(parts.c, expired(e))),
    EventKind.PROCEDURES: Handling(None),
    EventKind.SETTLED: Handling(lambda _, e: settled(e)),
    # calls
    EventKind.ALTER_PARTITION: Handling(call(alter_partition), KafkaState.ISR_CHANGE),
    EventKind.CONTROLLED_SHUTDOWN: Handling(call(controlled_shutdown_call), KafkaState.CONTROLLED_SHUTDOWN),
    EventKind.UNDO_SHUTDOWN: Handling(call(undo_shutdown_call)),
    EventKind.UNDRAIN: Handling(call(undrain_call)),
    EventKind.REMOVE_STRAYS: Handling(call(remove_strays)),
    EventKind.ALLOCATE_PRODUCER_IDS: Handling(call(allocate_producer_ids)),
    EventKind.DELETE_TOPICS: Handling(call(delete_topics_call), KafkaState.TOPIC_DELETION),
    EventKind.GIVE_UP: Handling(call(give_up_call)),
    EventKind.ELECT_LEADERS: Handling(call(elect_leaders), KafkaState.MANUAL_LEADER_BALANCE),
    EventKind.ALTER_REASSIGNMENTS: Handling(call(reassignment_requests.alter_reassignments), _REASSIGNING),
    EventKind.LIST_REASSIGNMENTS: Handling(
        call(reassignment_requests.list_reassignments), KafkaState.LIST_PARTITION_REASSIGNMENT
    ),
    EventKind.CREATE_TOPICS: Handling(lambda parts, e: create_topics(parts.c, parts.policy, parts.configs, pending(e))),
    EventKind.CREATE_PARTITIONS: Handling(call(create_partitions)),
    EventKind.ALTER_SCRAM_CREDENTIALS: Handling(call(alter_scram_credentials)),
    EventKind.UPDATE_FEATURES: Handling(call(update_features)),
}


HANDLERS: Final = {kind: row.handler for kind, row in EVENTS.items() if row.handler is not None}
REREAD: Final = tuple(kind for kind, row in EVENTS.items() if row.reread)
RAISED: Final = {row.watch: kind for kind, row in EVENTS.items() if row.watch is not None}
"""Kinds by the watch that raises them."""
KAFKA_STATES: Final[KafkaStates] = {kind: row.kafka for kind, row in EVENTS.items() if row.kafka is not None}


def controller_state(kind: EventKind | None) -> int:
    """Returns the value of Kafka's gauge ``ControllerState`` while an event is handled; 0 (Idle) without one."""
    state = None if kind is None else KAFKA_STATES.get(kind)
    return 0 if state is None else state.number
