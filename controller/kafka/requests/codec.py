"""Turns calls of admin clients from messages into values, for handlers that do not know the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from brokers.listener.envelopes import CarriedCall
from brokers.wire.errors import Error
from brokers.wire.messages import partitions as p
from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from brokers.wire.versions import Api
from controller.kafka.access import payer
from controller.kafka.path.events import EventKind
from controller.kafka.requests.values import (
    AlterReassignments,
    AlterReassignmentsReply,
    DeleteTopicsCall,
    DeleteTopicsReply,
    Elected,
    ElectLeadersCall,
    ElectLeadersReply,
    ListReassignments,
    ListReassignmentsReply,
)
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.reassignment import NotReassigned
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Caller

C = TypeVar("C")
R = TypeVar("R")

NAME_CHARS_MAX: Final = 500
"""Characters of a principal or a client in a record; clients choose their names."""
DISABLED_FIRST_VERSION: Final = 3
"""DeleteTopics: older clients do not know TOPIC_DELETION_DISABLED (KIP-322)."""
NAME_OR_ID: Final = "a topic is named by its name or by its id, not by both"


def caller_of(call: CarriedCall) -> Caller:
    """Returns the caller of a call. Its nonce is the id of the call, the same in every attempt."""
    client = f"{call.client_id} at {call.client_host}" if call.client_id else call.client_host
    return Caller(call.principal[:NAME_CHARS_MAX], client[:NAME_CHARS_MAX], nonce=call.call_id.hex())


class Unacceptable(Exception):
    """Refuses a request that its version allows and that has no meaning; the text is the reason."""


class Translation(NamedTuple, Generic[C, R]):
    """Translates one API. ``kind``: of the event in which the value waits; ``read`` raises :class:`Unacceptable`."""

    kind: EventKind
    read: Callable[[CarriedCall], C]
    write: Callable[[CarriedCall, R], Struct]


def _deletion(call: CarriedCall) -> DeleteTopicsCall:
    body = call.body
    assert isinstance(body, t.DeleteTopicsRequest)
    if any(topic.name is not None and topic.topic_id != ZERO_ID for topic in body.topics):
        raise Unacceptable(NAME_OR_ID)
    named = [topic.topic_id if topic.name is None else topic.name for topic in body.topics]
    wanted = tuple(dict.fromkeys([*body.topic_names, *named]))
    return DeleteTopicsCall(wanted, body.timeout_ms, payer(call), again=call.attempt > 0, caller=caller_of(call))


def _deleted(call: CarriedCall, reply: DeleteTopicsReply) -> t.DeleteTopicsResponse:
    def error(found: Error) -> Error:
        unknown = found is Error.TOPIC_DELETION_DISABLED and call.version < DISABLED_FIRST_VERSION
        return Error.INVALID_REQUEST if unknown else found

    return t.DeleteTopicsResponse(
        tuple(
            t.DeletedTopic(topic.name, error(topic.error), topic.why, topic.topic_id or ZERO_ID)
            for topic in reply.topics
        ),
        reply.throttle_time_ms,
    )


def _election(call: CarriedCall) -> ElectLeadersCall:
    body = call.body
    assert isinstance(body, p.ElectLeadersRequest)
    try:
        kind = ElectionType(body.election_type)
    except ValueError:
        raise Unacceptable(f"election type {body.election_type} is neither preferred (0) nor unclean (1)") from None
    wanted = (
        None if body.topic_partitions is None else _names((one.topic, one.partitions) for one in body.topic_partitions)
    )
    timeout_s = max(body.timeout_ms, 0) / 1000
    return ElectLeadersCall(kind, wanted, timeout_s, again=call.attempt > 0, caller=caller_of(call))


def _elected(_: CarriedCall, reply: ElectLeadersReply) -> p.ElectLeadersResponse:
    topics: dict[str, list[p.ElectedPartition]] = {}
    for one in reply.results:
        topics.setdefault(one.topic, []).append(_outcome(one))
    return p.ElectLeadersResponse(tuple(p.ElectedTopic(name, tuple(found)) for name, found in topics.items()))


def _outcome(one: Elected) -> p.ElectedPartition:
    return p.ElectedPartition(one.partition, int(one.error), one.why)


def _reassignment(call: CarriedCall) -> AlterReassignments:
    body = call.body
    assert isinstance(body, p.AlterPartitionReassignmentsRequest)
    return AlterReassignments(
        {TopicPartition(one.name, at.partition_index): at.replicas for one in body.topics for at in one.partitions},
        again=call.attempt > 0,
        principal=call.principal,
        caller=caller_of(call),
    )


def _reassigned(call: CarriedCall, reply: AlterReassignmentsReply) -> p.AlterPartitionReassignmentsResponse:
    topics: dict[str, list[p.ReassignmentOutcome]] = {}
    for name in _reassignment(call).targets:
        topics.setdefault(name.topic, []).append(_begun(name.partition, reply.refused.get(name)))
    return p.AlterPartitionReassignmentsResponse(
        tuple(p.TopicReassignmentOutcome(name, tuple(found)) for name, found in topics.items())
    )


def _begun(partition: int, refused: NotReassigned | None) -> p.ReassignmentOutcome:
    if refused is None:
        return p.ReassignmentOutcome(partition)
    return p.ReassignmentOutcome(partition, int(refused.error), refused.why)


def _listing(call: CarriedCall) -> ListReassignments:
    body = call.body
    assert isinstance(body, p.ListPartitionReassignmentsRequest)
    if body.topics is None:
        return ListReassignments()
    return ListReassignments(tuple(_names((one.name, one.partition_indexes) for one in body.topics)))


def _listed(_: CarriedCall, reply: ListReassignmentsReply) -> p.ListPartitionReassignmentsResponse:
    topics: dict[str, list[p.OngoingReassignment]] = {}
    for (name, partition), found in reply.under_way.items():
        ongoing = p.OngoingReassignment(partition, found.replicas, found.adding, found.removing)
        topics.setdefault(name, []).append(ongoing)
    return p.ListPartitionReassignmentsResponse(
        tuple(p.OngoingTopic(name, tuple(found)) for name, found in topics.items())
    )


def _names(topics: Iterable[tuple[str, Iterable[int]]]) -> list[TopicPartition]:
    return list(dict.fromkeys(TopicPartition(topic, number) for topic, numbers in topics for number in numbers))


TRANSLATIONS: Final[Mapping[Api, Translation[Any, Any]]] = {
    Api.DELETE_TOPICS: Translation(EventKind.DELETE_TOPICS, _deletion, _deleted),
    Api.ELECT_LEADERS: Translation(EventKind.ELECT_LEADERS, _election, _elected),
    Api.ALTER_PARTITION_REASSIGNMENTS: Translation(EventKind.ALTER_REASSIGNMENTS, _reassignment, _reassigned),
    Api.LIST_PARTITION_REASSIGNMENTS: Translation(EventKind.LIST_REASSIGNMENTS, _listing, _listed),
}
