"""Answers to what clients bring to the wrong node: records."""

from __future__ import annotations

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.messages import traffic as x


def wrong_node(request: Struct) -> Struct | None:
    """The answer to Produce and Fetch: nobody's leader is here, ask for metadata again. None: hang up instead.

    A producer that wants no acknowledgement reads no answer; brokers hang up to make it look again (``KafkaApis``).
    """
    error = Error.NOT_LEADER_OR_FOLLOWER
    match request:
        case x.ProduceRequest(acks=0):
            return None
        case x.ProduceRequest():
            return x.ProduceResponse(
                tuple(
                    x.TopicProduceResponse(
                        topic.name, tuple(x.PartitionProduceResponse(at.index, error) for at in topic.partition_data)
                    )
                    for topic in request.topic_data
                )
            )
        case x.FetchRequest(session_id=0):
            return x.FetchResponse(tuple(_not_fetched(topic, error) for topic in request.topics))
        case x.FetchRequest():
            return x.FetchResponse((), Error.FETCH_SESSION_ID_NOT_FOUND)
        case _:
            raise TypeError(f"{type(request).__name__} is not refused")


def _not_fetched(topic: x.FetchedTopic, error: int) -> x.TopicFetchResponse:
    found = tuple(x.PartitionFetchResponse(at.partition, error) for at in topic.partitions)
    return x.TopicFetchResponse(found, topic.topic, topic.topic_id)
