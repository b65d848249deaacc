"""Responds to Produce and Fetch, which clients send to the endpoint only by mistake: it leads no partition."""

from __future__ import annotations

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.messages import traffic as x


def wrong_node(request: Struct) -> Struct | None:
    """Returns the response to Produce and Fetch, which makes the client refresh its metadata. None: hang up instead.

    A producer with acks=0 reads no response; brokers hang up to make it refresh its metadata (``KafkaApis``).
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
