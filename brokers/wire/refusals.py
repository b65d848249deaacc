"""Makes responses that refuse a request, with the error where each API has its errors."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.messages import partitions as p
from brokers.wire.messages import security as s
from brokers.wire.messages import topics as t


def refusal(request: Struct, error: int, why: str | None = None) -> Struct:
    """Returns the response to ``request`` with ``error`` for each of its items (Kafka's ``getErrorResponse``)."""
    match request:
        case t.CreateTopicsRequest():
            names = _once(topic.name for topic in request.topics)
            return t.CreateTopicsResponse(tuple(t.CreatedTopic(name, error, why) for name in names))
        case t.DeleteTopicsRequest():
            named = tuple(t.DeletedTopic(name, error, why) for name in request.topic_names)
            states = tuple(t.DeletedTopic(topic.name, error, why, topic.topic_id) for topic in request.topics)
            return t.DeleteTopicsResponse(named + states)
        case t.CreatePartitionsRequest():
            names = _once(topic.name for topic in request.topics)
            return t.CreatePartitionsResponse(tuple(t.CreatedPartitions(name, error, why) for name in names))
        case p.ElectLeadersRequest():
            return _elections(request, error, why)
        case p.AlterPartitionReassignmentsRequest():
            return _reassignments(request, error, why)
        case p.ListPartitionReassignmentsRequest():
            return p.ListPartitionReassignmentsResponse((), error, why)
        case s.UpdateFeaturesRequest():
            return s.UpdateFeaturesResponse((), error, why)
        case s.AlterUserScramCredentialsRequest():
            users = _once([change.name for change in request.deletions] + [new.name for new in request.upsertions])
            return s.AlterUserScramCredentialsResponse(tuple(s.AlteredUser(user, error, why) for user in users))
        case _:
            raise TypeError(f"{type(request).__name__} has no such response")


def _once(names: Iterable[str]) -> Iterable[str]:
    """Returns each name once, because clients look results up by name."""
    return dict.fromkeys(names)


def _elections(request: p.ElectLeadersRequest, error: int, why: str | None) -> p.ElectLeadersResponse:
    """Sets the error at the top and in each partition; NOT_CONTROLLER in the partitions alone (``KafkaController``).

    A request for all partitions names none. There the top-level error is set in any case: without it the response would
    mean success.
    """
    if request.topic_partitions is None:
        return p.ElectLeadersResponse((), error)
    results = tuple(
        p.ElectedTopic(topic.topic, tuple(p.ElectedPartition(i, error, why) for i in topic.partitions))
        for topic in request.topic_partitions
    )
    return p.ElectLeadersResponse(results, Error.NONE if error == Error.NOT_CONTROLLER else error)


def _reassignments(
    request: p.AlterPartitionReassignmentsRequest, error: int, why: str | None
) -> p.AlterPartitionReassignmentsResponse:
    """Sets the error in each partition, too: Java's client counts the results."""
    topics = tuple(
        p.TopicReassignmentOutcome(
            topic.name, tuple(p.ReassignmentOutcome(at.partition_index, error, why) for at in topic.partitions)
        )
        for topic in request.topics
    )
    return p.AlterPartitionReassignmentsResponse(topics, error, why)
