"""Asks the operator's policy about new topics, beside the queue: no other event waits for its answers.

Kafka's own rules judge a call first. A task asks the policy about the topics that pass; then the call is handled again
with the answers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from brokers.wire.messages.topics import CreateTopicsRequest
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import Event, EventKind, QueueFull
from controller.kafka.path.topic_policy import TopicFields
from controller.kafka.requests.calls import PendingCarried
from state_machines.admin_rules.create_topics import (
    NewTopic,
    TopicContext,
    TopicError,
    TopicRefusal,
    WantedTopic,
    judge_topic,
)
from state_machines.admin_rules.topic_configs import TakenNames

CHANGED = TopicRefusal(TopicError.REQUEST_TIMED_OUT, "the cluster changed while the policy judged it: try again")


def asked_for(c: Controller, calls: Sequence[PendingCarried], wanted: Sequence[Sequence[WantedTopic]]) -> list[bool]:
    """Returns which calls have their answers, or need none; has the policy asked for the others."""
    ready: list[bool] = []
    for pending, topics in zip(calls, wanted, strict=True):
        fields = _fields(c, topics) if c.topic_policy is not None and pending.verdicts is None else []
        ready.append(not fields)
        if fields:
            c.spawn(_ask(c, pending, fields), pending.refuse_unasked)
    return ready


def verdict(c: Controller, pending: PendingCarried, topic: str) -> TopicRefusal | None:
    """Returns the refusal of a sound topic by the policy; None where it may be created."""
    if c.topic_policy is None:
        return None
    if pending.verdicts is None or topic not in pending.verdicts:
        return CHANGED
    why = pending.verdicts[topic]
    return None if why is None else TopicRefusal(TopicError.POLICY_VIOLATION, why)


def _fields(c: Controller, wanted: Sequence[WantedTopic]) -> list[TopicFields]:
    """Returns the fields of topics that could be created as far as the model knows, as Kafka's controller has them."""
    context = TopicContext(
        brokers={broker.id: broker.rack for broker in c.cluster.brokers.values()},
        daemons=c.daemons,
        taken=TakenNames([]),
        defaults=c.adoption.values.new_topics,
        policy=c.adoption.values.policy,
        remote_storage=c.adoption.values.remote_storage,
        cordoned=c.cluster.cordoned,
    )
    found: dict[str, TopicFields] = {}
    for one in wanted:
        new = judge_topic(context, one, random.getrandbits(31), random.getrandbits(31))
        if isinstance(new, NewTopic):
            found[one.name] = _as_kafka_has_them(one, new)
    return list(found.values())


def _as_kafka_has_them(wanted: WantedTopic, new: NewTopic) -> TopicFields:
    if wanted.assignments:
        assigned = {partition: assignment.replicas for partition, assignment in new.partitions.items()}
        return TopicFields(new.name, None, None, assigned, new.configs)
    return TopicFields(new.name, len(new.partitions), len(new.partitions[0].replicas), None, new.configs)


async def _ask(c: Controller, pending: PendingCarried, fields: Sequence[TopicFields]) -> None:
    assert c.topic_policy is not None
    assert isinstance(pending.call.body, CreateTopicsRequest)
    pending.verdicts = await c.topic_policy.verdicts(fields, pending.call.body.timeout_ms / 1000)
    try:
        c.queue.post(Event(EventKind.CREATE_TOPICS, pending, preempt=pending.refuse))
    except QueueFull:
        pending.refuse()
