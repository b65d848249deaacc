"""Admits calls: refuses the part without permission, as brokers do (``KafkaApis``), and charges quotas (KIP-599)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, structs

from brokers.listener.envelopes import CarriedCall
from brokers.wire.errors import Error
from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from brokers.wire.refusals import refusal
from brokers.wire.versions import Api
from controller.kafka.access import Account, Authorizer, Payer
from controller.kafka.path.controller import Controller
from metadata_store.codecs.base import MalformedNode
from metadata_store.nodes.entity_configs import read_rates
from state_machines.admin_rules.acls import Operation, Resource
from state_machines.admin_rules.create_topics import TopicError, TopicRefusal
from state_machines.admin_rules.mutation_quotas import Level

NameOf = Callable[[bytes], str | None]
"""The topic with an id, None where there is none."""
_ON_CLUSTER: Final[Mapping[Api, Operation]] = {
    Api.ELECT_LEADERS: Operation.ALTER,
    Api.ALTER_PARTITION_REASSIGNMENTS: Operation.ALTER,
    Api.LIST_PARTITION_REASSIGNMENTS: Operation.DESCRIBE,
    Api.UPDATE_FEATURES: Operation.ALTER,
    Api.ALTER_USER_SCRAM_CREDENTIALS: Operation.ALTER,
}
"""Required operations on the cluster; topics have their own. An API that is not here is refused."""
THROTTLED: Final = TopicRefusal(TopicError.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class Permitted(NamedTuple):
    """Holds the permitted ``body``, None where nothing is left. ``whole`` completes the response to it."""

    body: Struct | None
    whole: Callable[[Struct | None], Struct]


def permitted(authorizer: Authorizer, call: CarriedCall, name_of: NameOf) -> Permitted:
    """Returns the permitted part of a call. The authorizer must be ready."""
    if authorizer.unrestricted(call.principal):
        return Permitted(call.body, _as_it_is)
    asker = _Asker(authorizer, call.principal, call.client_host)
    match call.body:
        case t.CreateTopicsRequest() as body:
            return _creation(asker, body)
        case t.CreatePartitionsRequest() as body:
            return _growth(asker, body)
        case t.DeleteTopicsRequest() as body:
            return _deletion(asker, body, name_of, again=call.attempt > 0)
    operation = _ON_CLUSTER.get(call.api)
    if operation is not None and authorizer.may_cluster(call.principal, call.client_host, operation):
        return Permitted(call.body, _as_it_is)
    why = f"{call.principal} may not {operation or 'do this'} on the cluster"
    refused = refusal(call.body, Error.CLUSTER_AUTHORIZATION_FAILED, why)
    return Permitted(None, lambda _: refused)


class _Asker(NamedTuple):
    authorizer: Authorizer
    principal: str
    host: str

    def may(self, operation: Operation, topic: str) -> bool:
        return self.authorizer.may(self.principal, self.host, operation, Resource.TOPIC, topic)

    def why(self, operation: Operation) -> str:
        return f"{self.principal} may not {operation} this topic"


def _as_it_is(answer: Struct | None) -> Struct:
    assert answer is not None
    return answer


def _refused(names: Iterable[str], may: Callable[[str], bool]) -> set[str]:
    """Lists refused names once; the handler refuses duplicates as such."""
    return {name for name, count in Counter(names).items() if count == 1 and not may(name)}


def _creation(asker: _Asker, body: t.CreateTopicsRequest) -> Permitted:
    """Judges CreateTopics. Create on the cluster covers all topics; DescribeConfigs shows a topic's configurations."""
    names = [topic.name for topic in body.topics]
    if asker.authorizer.may_cluster(asker.principal, asker.host, Operation.CREATE):
        refused = set[str]()
    else:
        refused = _refused(names, lambda name: asker.may(Operation.CREATE, name))
    left = tuple(topic for topic in body.topics if topic.name not in refused)

    def whole(answer: Struct | None) -> Struct:
        made = answer.topics if isinstance(answer, t.CreateTopicsResponse) else ()
        found = {one.name: _shown(asker, one) for one in made}
        why = asker.why(Operation.CREATE)
        found |= {name: t.CreatedTopic(name, Error.TOPIC_AUTHORIZATION_FAILED, why) for name in refused}
        return t.CreateTopicsResponse(tuple(found[name] for name in dict.fromkeys(names)), _throttle_ms(answer))

    return Permitted(structs.replace(body, topics=left) if left else None, whole)


def _shown(asker: _Asker, topic: t.CreatedTopic) -> t.CreatedTopic:
    if topic.error_code != Error.NONE or asker.may(Operation.DESCRIBE_CONFIGS, topic.name):
        return topic
    hidden = Error.TOPIC_AUTHORIZATION_FAILED
    return structs.replace(
        topic, topic_id=ZERO_ID, topic_config_error_code=hidden, num_partitions=-1, replication_factor=-1, configs=()
    )


def _throttle_ms(answer: Struct | None) -> int:
    return getattr(answer, "throttle_time_ms", 0)


def _growth(asker: _Asker, body: t.CreatePartitionsRequest) -> Permitted:
    names = [topic.name for topic in body.topics]
    refused = _refused(names, lambda name: asker.may(Operation.ALTER, name))
    left = tuple(topic for topic in body.topics if topic.name not in refused)

    def whole(answer: Struct | None) -> Struct:
        found = {one.name: one for one in answer.results} if isinstance(answer, t.CreatePartitionsResponse) else {}
        why = asker.why(Operation.ALTER)
        found |= {name: t.CreatedPartitions(name, Error.TOPIC_AUTHORIZATION_FAILED, why) for name in refused}
        return t.CreatePartitionsResponse(tuple(found[name] for name in dict.fromkeys(names)), _throttle_ms(answer))

    return Permitted(structs.replace(body, topics=left) if left else None, whole)


def _deletion(asker: _Asker, body: t.DeleteTopicsRequest, name_of: NameOf, *, again: bool) -> Permitted:
    """Judges DeleteTopics. Without Describe the response hides the name that belongs to an id.

    ``again``: an earlier attempt of the call may have deleted the topic of an unknown id.
    """
    refused: list[t.DeletedTopic] = []
    why = asker.why(Operation.DELETE)

    def judged(name: str, topic_id: bytes = ZERO_ID) -> bool:
        described = topic_id == ZERO_ID or asker.may(Operation.DESCRIBE, name)
        if described and asker.may(Operation.DELETE, name):
            return True
        shown = name if described else None
        refused.append(t.DeletedTopic(shown, Error.TOPIC_AUTHORIZATION_FAILED, why, topic_id))
        return False

    def left(topic: t.TopicToDelete) -> bool:
        if topic.name is not None:
            return judged(topic.name)
        if (
            name := name_of(topic.topic_id)
        ) is None:  # not handed on: the id may be known by the time the call is handled
            error = Error.NONE if again else Error.UNKNOWN_TOPIC_ID
            refused.append(t.DeletedTopic(None, error, None, topic.topic_id))
            return False
        return judged(name, topic.topic_id)

    names, topics = tuple(filter(judged, body.topic_names)), tuple(filter(left, body.topics))

    def whole(answer: Struct | None) -> Struct:
        done = answer.responses if isinstance(answer, t.DeleteTopicsResponse) else ()
        return t.DeleteTopicsResponse((*done, *refused), _throttle_ms(answer))

    rest = structs.replace(body, topic_names=names, topics=topics)
    return Permitted(rest if names or topics or not refused else None, whole)


async def accounts(c: Controller, payers: Sequence[Payer]) -> list[Account]:
    """Returns the accounts in the order of the calls. Reads rates of callers that are unknown or were changed."""
    unknown = c.quotas.unknown(payers)
    return c.quotas.accounts(payers, await _rates(c, unknown) if unknown else {})


async def _rates(c: Controller, levels: Sequence[Level]) -> dict[Level, float]:
    """Reads rates. A malformed znode sets none; it is reported, and watched until it is repaired."""

    async def read() -> tuple[dict[Level, float], list[MalformedNode]]:
        since = c.zk.last_zxid
        rates, malformed = await read_rates(c.zk, levels)
        if malformed:
            await c.zk.watch(data=[found.path for found in malformed], since_zxid=since)
        return rates, malformed

    rates, malformed = await c.until_read(read)
    for found in malformed:
        c.malformed(found)
    return rates
