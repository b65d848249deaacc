"""Holds one CreateTopics call while it is handled, and builds its response (KIP-525)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from brokers.wire.errors import Error
from brokers.wire.messages.topics import CreatedConfig, CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from controller.kafka.access import Account
from controller.kafka.path.controller import Controller
from controller.kafka.requests.calls import PendingCarried, call_result
from controller.kafka.requests.codec import caller_of
from controller.procedures.recorder import CallKind
from state_machines.admin_rules.create_topics import NewTopic, TopicRefusal
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.admin_rules.topic_configs import as_shown

DYNAMIC_TOPIC_CONFIG: Final = 1
"""Source of a configuration that the topic has itself (Kafka ``ConfigSource``)."""

Outcome = NewTopic | TopicRefusal
Inherited = Mapping[str, Setting] | None


class CreationCall:
    """Holds one call and the outcome of each topic that it names. ``policed``: a policy judges new topics."""

    def __init__(self, c: Controller, pending: PendingCarried, account: Account, *, policed: bool) -> None:
        self.pending = pending
        self.account = account
        self.policed = policed
        call = self.call = pending.call
        self.record = c.recorder.call(CallKind.CREATE_TOPICS, caller_of(call), again=call.attempt > 0)
        body = pending.call.body
        assert isinstance(body, CreateTopicsRequest)
        self.body = body
        self.outcomes: dict[str, Outcome] = {}
        self.created: set[str] = set()

    @property
    def validates_only(self) -> bool:
        """Checks whether nothing is to be created."""
        return self.body.validate_only

    @property
    def shows_topics(self) -> bool:
        """Checks whether the response describes topics: a call without a time-out does not wait for leaders."""
        succeeded = any(isinstance(outcome, NewTopic) for outcome in self.outcomes.values())
        return succeeded and (self.validates_only or self.body.timeout_ms > 0)

    def result(self, expected: Mapping[str, NewTopic] | None = None) -> str | None:
        """Returns a sentence on the created topics, with ``expected`` ones; None without any."""
        outcomes = {**self.outcomes, **(expected or {})}
        created = [name for name in outcomes if name in self.created or name in (expected or {})]
        refused = [outcome.error for outcome in outcomes.values() if isinstance(outcome, TopicRefusal)]
        return call_result("created", created, "topic", refused) if created else None

    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of partitions of each created topic: one of the same name, made since, may have fewer."""
        return {name: len(one.partitions) for name, one in self.outcomes.items() if isinstance(one, NewTopic)}

    @property
    def names(self) -> list[str]:
        """Lists every name once."""
        return list(dict.fromkeys(topic.name for topic in self.body.topics))


def creation_response(one: CreationCall, late: frozenset[str], inherited: Inherited) -> CreateTopicsResponse:
    """Builds the response. ``late``: topics without leaders in time. ``inherited``: None where no broker sent it."""
    topics = tuple(_created(topic.name, one, late, inherited) for topic in one.body.topics)
    return CreateTopicsResponse(topics, one.account.throttle_ms)


def _created(name: str, one: CreationCall, late: frozenset[str], inherited: Inherited) -> CreatedTopic:
    outcome = one.outcomes[name]
    if isinstance(outcome, TopicRefusal):
        return CreatedTopic(name, outcome.error, outcome.why)
    if name in late:
        return CreatedTopic(name, Error.REQUEST_TIMED_OUT)
    factor = len(outcome.partitions[0].replicas)
    created = CreatedTopic(name, num_partitions=len(outcome.partitions), replication_factor=factor)
    if inherited is None:
        created = structs.replace(created, topic_config_error_code=Error.BROKER_NOT_AVAILABLE)
    else:
        created = structs.replace(created, configs=_configs(inherited, outcome.configs))
    if outcome.topic_id is None:
        return created
    return structs.replace(created, topic_id=outcome.topic_id)


def _configs(inherited: Mapping[str, Setting], own: Mapping[str, str]) -> tuple[CreatedConfig, ...]:
    """Lists the configurations of a topic, as a broker describes them."""
    shown = {key: Setting(as_shown(key, value), DYNAMIC_TOPIC_CONFIG) for key, value in own.items()}
    return tuple(
        CreatedConfig(key, setting.value, config_source=setting.source)
        for key, setting in sorted({**inherited, **shown}.items())
    )
