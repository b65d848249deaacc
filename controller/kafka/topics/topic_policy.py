"""Asks the operator's policy about new topics, beside the queue: no other event waits for its answers.

Kafka's own rules judge a call first. A task asks the policy about the topics that pass; then the call is handled again
with the answers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from brokers.wire.messages.topics import CreateTopicsRequest
from configs.sections import ControllerSettings
from controller.kafka.path.adoption import JAVA
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import Event, EventKind, EventQueue, QueueFull
from controller.kafka.requests.calls import PendingCarried, Verdicts
from controller.process.policy_hooks import CommandHook, Hook, HttpHook, JvmHook, PolicyFailed
from controller.process.wording import counted
from state_machines.admin_rules.create_topics import (
    NewTopic,
    TopicContext,
    TopicError,
    TopicRefusal,
    WantedTopic,
    judge_topic,
)
from state_machines.admin_rules.topic_configs import TakenNames

log = logging.getLogger("regent.controller")

CALL_S_MAX = 60.0
"""Longest wait of a call for its verdicts: admin clients wait for as long by default."""

NO_ANSWER = "controller.create_topic_policy gave no answer, so nothing is created: {}; try again"
"""Reason for clients: the setting's value, which may have credentials, is not theirs."""


class TopicFields(Struct, frozen=True, rename="camel"):
    """Kafka's ``CreateTopicPolicy.RequestMetadata``: counts or assignments, the others are null."""

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class TopicPolicy:
    """Asks the policy that the settings name. ``class_name``: returns the brokers' policy class, for a JVM."""

    def __init__(self, settings: ControllerSettings, class_name: Callable[[], str | None] = lambda: None) -> None:
        assert settings.create_topic_policy is not None
        self._words = settings.create_topic_policy
        self._needs_class = self._words[0] == JAVA
        self._timeout_s = settings.create_topic_policy_timeout_ms / 1000
        self._free = asyncio.Semaphore(settings.create_topic_policy_calls_max)
        self._class_name = class_name
        self._hooks: dict[str, Hook] = {}

    async def verdicts(self, wanted: Sequence[TopicFields], within_s: float = CALL_S_MAX) -> Verdicts:
        """Asks for each topic; one that gets no answer in time, or an error, is refused with the cause.

        ``within_s``: for all of them; the caller waits no longer. Each has its own time at least.
        """
        causes: dict[str, str] = {}
        within_s = min(CALL_S_MAX, max(within_s, self._timeout_s))
        asked = {asyncio.ensure_future(self._verdict(one, causes)): one.topic for one in wanted}
        try:
            _, late = await asyncio.wait(asked, timeout=within_s)
        finally:
            for one in asked:
                one.cancel()
        causes |= {asked[one]: f"its turn did not come within {within_s:g} s" for one in late}
        _tell(causes)
        refused = {topic: NO_ANSWER.format(cause) for topic, cause in causes.items()}
        return {topic: refused.get(topic) or one.result() for one, topic in asked.items()}

    async def _verdict(self, fields: TopicFields, causes: dict[str, str]) -> str | None:
        """Returns the policy's answer; enters into ``causes`` why there is none."""
        async with self._free:
            try:
                hook = self._hook()
                if hook is None:
                    return None
                async with asyncio.timeout(self._timeout_s):
                    return await hook.ask(msgspec.json.encode(fields))
            except TimeoutError:
                causes[fields.topic] = f"it did not answer within {self._timeout_s:g} s"
            except PolicyFailed as failed:
                causes[fields.topic] = str(failed)
            except Exception as error:  # a fault of asking: it ends this topic alone
                log.exception("the policy could not be asked about topic %s", fields.topic)
                causes[fields.topic] = f"the daemon could not ask it ({type(error).__name__})"
            return None

    def _hook(self) -> Hook | None:
        """Returns the hook; a new one where brokers have another class by now. None where they have no class."""
        key = self._class_name() if self._needs_class else self._words[0]
        if key is None:
            raise PolicyFailed("no broker has reported its create.topic.policy.class.name yet")
        if key and key not in self._hooks:
            self._hooks[key] = self._made(key)
        return self._hooks.get(key)

    def _made(self, key: str) -> Hook:
        if self._needs_class:
            return JvmHook(key, *self._words[1:])
        if key.startswith(("http://", "https://")):
            return HttpHook(key, self._timeout_s)
        return CommandHook(self._words)

    async def close(self) -> None:
        """Ends what hooks have started."""
        await asyncio.gather(*(hook.close() for hook in self._hooks.values()))


def _tell(causes: Mapping[str, str]) -> None:
    """Logs one line for the topics of a call."""
    for topic, cause in islice(causes.items(), 1):
        log.warning(
            "%s not created, because the policy gave no answer, the first is %s: %s; mend "
            "controller.create_topic_policy, and have the client try again",
            counted(len(causes), "topic"),
            topic,
            cause,
        )


CHANGED = TopicRefusal(TopicError.REQUEST_TIMED_OUT, "the cluster changed while the policy judged it: try again")


def asked_for(
    c: Controller, policy: TopicPolicy | None, calls: Sequence[PendingCarried], wanted: Sequence[Sequence[WantedTopic]]
) -> list[bool]:
    """Returns which calls have their answers, or need none; has the policy asked for the others."""
    ready: list[bool] = []
    for pending, topics in zip(calls, wanted, strict=True):
        fields = _fields(c, topics) if policy is not None and pending.verdicts is None else []
        ready.append(not fields)
        if policy is not None and fields:
            c.spawn(_ask(c.queue, policy, pending, fields), pending.refuse_unasked)
    return ready


def verdict(pending: PendingCarried, topic: str) -> TopicRefusal | None:
    """Returns the refusal of a sound topic by the policy; None where it may be created."""
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


async def _ask(queue: EventQueue, policy: TopicPolicy, pending: PendingCarried, fields: Sequence[TopicFields]) -> None:
    assert isinstance(pending.call.body, CreateTopicsRequest)
    pending.verdicts = await policy.verdicts(fields, pending.call.body.timeout_ms / 1000)
    try:
        queue.post(Event(EventKind.CREATE_TOPICS, pending, preempt=pending.refuse))
    except QueueFull:
        pending.refuse()
