"""Which handler an event of the queue has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from controller.engine.controller import Controller
from controller.engine.event_queue import Event, settled
from controller.handlers import reassignment
from controller.handlers.acl_change import acl_change
from controller.handlers.alter_partition import alter_partition
from controller.handlers.auto_balance import auto_balance
from controller.handlers.broker_change import broker_change
from controller.handlers.broker_settings import broker_settings
from controller.handlers.carried import CARRIED_HANDLERS, Handler
from controller.handlers.config_change import config_change
from controller.handlers.controlled_shutdown import controlled_shutdown_call
from controller.handlers.daemon_replicas import replace_daemons
from controller.handlers.delete_topics import delete_topics_call
from controller.handlers.deletion import deletion_progress, topic_deletion
from controller.handlers.elections import elect_leaders, preferred_election
from controller.handlers.endpoint_change import endpoint_change
from controller.handlers.isr_notification import isr_notification
from controller.handlers.late_partitions import late_partitions
from controller.handlers.log_directories import Failed, log_dir_event, replicas_failed
from controller.handlers.lost_ids import lost_ids
from controller.handlers.producer_ids import allocate_producer_ids
from controller.handlers.repaired_state import repaired_state
from controller.handlers.token_expiry import expired_tokens
from controller.handlers.topic_change import partition_modifications, topic_change
from controller.requests.calls import PendingCall, event_kind
from state_machines.admin_rules.delegation_tokens import Token


def pending(event: Event) -> PendingCall:
    """The call that an event carries."""
    assert isinstance(event.detail, PendingCall)
    return event.detail


def failed(event: Event) -> Failed:
    """What a broker's answer said of its log directories."""
    assert isinstance(event.detail, Failed)
    return event.detail


def ended(event: Event) -> tuple[Token, ...]:
    """Delegation tokens that have expired."""
    assert isinstance(event.detail, tuple)
    return event.detail


def carried(handler: Handler) -> Callable[[Controller, Event], Awaitable[None]]:
    """The handler of an event that carries a call of an admin client."""
    return lambda c, event: handler(c, pending(event))


HANDLERS: Final[Mapping[str, Callable[[Controller, Event], Awaitable[None]]]] = {
    "broker_change": lambda c, _: broker_change(c),
    "topic_change": lambda c, _: topic_change(c),
    "partition_modifications": lambda c, e: partition_modifications(c, str(e.detail)),
    "topic_deletion": lambda c, _: topic_deletion(c),
    "deletion_progress": lambda c, _: deletion_progress(c),
    "isr_notification": lambda c, _: isr_notification(c),
    "late_partitions": lambda c, _: late_partitions(c),
    "lost_ids": lambda c, _: lost_ids(c),
    "mended_state": lambda c, e: repaired_state(c, str(e.detail)),
    "alter_partition": lambda c, e: alter_partition(c, pending(e)),
    "controlled_shutdown": lambda c, e: controlled_shutdown_call(c, pending(e)),
    "allocate_producer_ids": lambda c, e: allocate_producer_ids(c, pending(e)),
    "reassign_partitions": lambda c, _: reassignment.reassign_partitions(c),
    "resume_reassignments": lambda c, _: reassignment.resume_reassignments(c),
    "advance_reassignments": lambda c, _: reassignment.advance_reassignments(c),
    "finish_reassignments": lambda c, _: reassignment.finish_reassignments(c),
    "dropped_replicas": lambda c, _: reassignment.dropped_replicas(c),
    "replace_daemons": lambda c, _: replace_daemons(c),
    "reassigned_state": lambda c, _: reassignment.reassigned_state(c),
    "reassigned_states": lambda c, _: reassignment.reassigned_states(c),
    "alter_reassignments": lambda c, e: reassignment.alter_reassignments(c, pending(e)),
    "list_reassignments": lambda c, e: reassignment.list_reassignments(c, pending(e)),
    "delete_topics": lambda c, e: delete_topics_call(c, pending(e)),
    "log_dir_event": lambda c, _: log_dir_event(c),
    "replicas_failed": lambda c, e: replicas_failed(c, failed(e)),
    "preferred_election": lambda c, _: preferred_election(c),
    "elect_leaders": lambda c, e: elect_leaders(c, pending(e)),
    "auto_balance": lambda c, _: auto_balance(c),
    "broker_settings": lambda c, _: broker_settings(c),
    "config_change": lambda c, _: config_change(c),
    "expired_tokens": lambda c, e: expired_tokens(c, ended(e)),
    "endpoint_change": lambda c, _: endpoint_change(c),
    "acl_change": lambda c, e: acl_change(c, known=e.detail is not None),
    "settled": lambda _, e: settled(e),
    **{event_kind(api): carried(handler) for api, handler in CARRIED_HANDLERS.items()},
}
