"""Declares DeleteTopics as values, independent of the wire.

Permissions, and errors in the versions of the request, are the concern of :mod:`controller.kafka.requests`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from brokers.wire.errors import Error
from controller.kafka.access.quota_buckets import Payer
from state_machines.procedures.record import Caller


class DeleteTopicsCall(Struct, frozen=True):
    """Topics by name, or by id (16 bytes). ``timeout_ms``: how long the caller waits; 0 or less: not at all.

    Marked topics are deleted, whether a caller waits or not. ``payer``: owner of the charged quota.
    ``again``: an earlier attempt of the call may have deleted a topic; then one that is unknown is a success.
    ``caller``: of the call's record, None without one.
    """

    topics: Sequence[str | bytes]
    timeout_ms: int
    payer: Payer | None = None
    again: bool = False
    caller: Caller | None = None


class DeletedTopic(Struct, frozen=True):
    """Outcome of one topic. ``name`` is None where an id is unknown, ``topic_id`` where the topic has none.

    Errors: TOPIC_DELETION_DISABLED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, THROTTLING_QUOTA_EXCEEDED,
    REQUEST_TIMED_OUT (brokers may still show it, or have not said whether they allow it), UNKNOWN_SERVER_ERROR
    (ZooKeeper refused the marker). ``why``: the message for people, if any.
    """

    name: str | None
    topic_id: bytes | None
    error: Error
    why: str | None = None


class DeleteTopicsReply(Struct, frozen=True):
    """Results in the order of the call, and the throttle time of the caller."""

    topics: Sequence[DeletedTopic]
    throttle_time_ms: int = 0
