"""Handles CreateTopics (KIP-4): judges, writes and starts topics; responds once each partition has a leader.

Adjacent calls are written together. Every await is a crash point: a topic exists as a whole or not at all, and the next
controller starts an existing one. A call that is tried again after a failover finds the topics of its first attempt by
their ids, which are derived from the call's own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from brokers.listener.envelopes import CarriedCall
from brokers.wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from controller.kafka.access import payer
from controller.kafka.partitions.await_leaders import topics_without_leaders
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.requests.admission import THROTTLED, accounts
from controller.kafka.requests.calls import PendingCarried
from controller.kafka.topics.configurations import DefaultConfigs
from controller.kafka.topics.create_topics_call import CreationCall, Inherited, Outcome, creation_response
from controller.kafka.topics.topic_change import start_topics
from controller.kafka.topics.topic_policy import TopicPolicy, asked_for, verdict
from controller.process.wording import abbreviate, counted
from metadata_store.commits import topic_commit
from metadata_store.commits.topic_commit import TopicZnodes, read_contexts
from metadata_store.errors import Code, NotConnected, OutcomeUnknown
from metadata_store.fencing.companion import Companion
from state_machines.admin_rules.create_topics import (
    PARTITIONS_MAX,
    NewTopic,
    TopicContext,
    TopicError,
    TopicRefusal,
    WantedTopic,
    judge_topic,
)
from state_machines.admin_rules.topic_configs import TakenNames, wrong_name
from state_machines.model.types import Topic, TopicAssignment

CALLS_MAX: Final = 200
"""Calls that are written together at the most."""
TOPICS_MAX: Final = 2_000
"""Topics in the calls of a commit at which no further call is added."""
TWICE: Final = TopicRefusal(TopicError.INVALID_REQUEST, "it is named more than once in the request")
CONTENDED: Final = TopicRefusal(TopicError.REQUEST_TIMED_OUT, "others write to the same znodes all the time: try again")

SHOWS_TOPICS_FIRST_VERSION: Final = 5
"""First version whose response describes the topic (KIP-525)."""

log = logging.getLogger("regent.controller")


Planned = dict[str, tuple[CreationCall, NewTopic]]
"""New topics by name, and the call that creates each."""


async def create_topics(
    c: Controller, policy: TopicPolicy | None, configs: DefaultConfigs, first: PendingCarried
) -> None:
    """Handles a call and those that directly follow it. ``configs``: those that new topics inherit."""
    taken = c.queue.following(EventKind.CREATE_TOPICS, first, CALLS_MAX, _topics, TOPICS_MAX)
    ready = asked_for(c, policy, taken, [[_wanted(topic) for topic in _body(pending).topics] for pending in taken])
    calls = [pending for pending, is_ready in zip(taken, ready, strict=True) if is_ready]
    waits: set[int] = set()
    try:
        paid = await accounts(c, [payer(pending.call) for pending in calls])
        asked = [
            CreationCall(c, pending, account, policed=policy is not None)
            for pending, account in zip(calls, paid, strict=True)
        ]
        await _create(c, asked)
        for one in asked:
            if one.shows_topics:
                waits.add(id(one.pending))
                c.spawn(_answer_later(c, configs, one), one.pending.refuse)
            else:
                one.pending.answer(creation_response(one, frozenset(one.created), None))
    finally:
        for pending in calls:
            if id(pending) not in waits:
                pending.refuse()


def _body(pending: PendingCarried) -> CreateTopicsRequest:
    body = pending.call.body
    assert isinstance(body, CreateTopicsRequest)
    return body


def _topics(pending: PendingCarried) -> int:
    return len(_body(pending).topics)


# -- deciding


async def _create(c: Controller, asked: Sequence[CreationCall]) -> None:
    contexts = await _contexts(c, asked)
    planned: Planned = {}
    changed = set[int]()
    context = TopicContext(
        brokers={broker.id: broker.rack for broker in c.cluster.brokers.values()},
        daemons=c.daemons,
        taken=TakenNames([*c.cluster.topic_index]),
        defaults=c.adoption.values.new_topics,
        policy=c.adoption.values.policy,
        remote_storage=c.adoption.values.remote_storage,
        cordoned=c.cluster.cordoned,
    )
    for one in asked:
        context = structs.replace(context, spare=PARTITIONS_MAX)
        _judge(c, context, contexts, one, planned)
    if planned:
        created = await _commit(c, planned, contexts)
        await _start(c, [name for name, outcome in created.items() if isinstance(outcome, NewTopic)])
        changed = {id(planned[name][0]) for name, outcome in created.items() if isinstance(outcome, NewTopic)}
    for one in asked:
        await one.record.close(one.result(), changed=id(one) in changed)


async def _contexts(c: Controller, asked: Sequence[CreationCall]) -> dict[str, TopicZnodes]:
    """Reads the znodes of names that the model does not have, or that an earlier attempt may have created."""
    wanted = dict[str, None]()
    for one in asked:
        known = () if one.call.attempt else c.cluster.topic_index
        wanted.update((name, None) for name in one.names if name not in known and wrong_name(name) is None)
    return await _read(c, list(wanted))


async def _read(c: Controller, names: list[str]) -> dict[str, TopicZnodes]:
    return await c.until_read(partial(read_contexts, c.zk, names)) if names else {}


def _judge(
    c: Controller,
    context: TopicContext,
    contexts: dict[str, TopicZnodes],
    one: CreationCall,
    planned: Planned,
) -> None:
    counts = Counter(topic.name for topic in one.body.topics)
    for topic in one.body.topics:
        name, topic_id = topic.name, _topic_id(c, one.call, topic.name)
        there = contexts.get(name)
        if there is not None and (earlier := _earlier(there, topic, topic_id)) is not None and one.call.attempt:
            one.outcomes[name] = earlier
            one.created.add(name)
            continue
        known = c.cluster.topic(name)
        queued = known is not None and known.index in c.cluster.deletions
        exists = name in planned or known is not None or (there is not None and there.topic is not None)
        seen = structs.replace(
            context,
            existing={name} if known is not None and not queued and _is_shown(c, known) else frozenset(),
            found={name} if exists else frozenset(),
            marked={name} if queued or (there is not None and there.marked) else frozenset(),
        )
        new = judge_topic(seen, _wanted(topic), random.getrandbits(31), random.getrandbits(31))
        outcome = TWICE if counts[name] > 1 else new
        if isinstance(outcome, NewTopic) and not (one.validates_only or one.account.charge(len(outcome.partitions))):
            outcome = THROTTLED
        else:
            context.spare = seen.spare
            if isinstance(outcome, NewTopic) and one.policed:
                outcome = verdict(one.pending, name) or outcome
        one.outcomes[name] = outcome
        if isinstance(outcome, NewTopic) and not one.validates_only:
            planned[name] = one, structs.replace(outcome, topic_id=topic_id)
            context.taken.add(name)


def _is_shown(c: Controller, topic: Topic) -> bool:
    """Checks whether brokers show a topic: they are not sent one that never had a leader."""
    return any(c.cluster.rows[i].has_leadership for i in topic.rows)


def _wanted(topic: CreatableTopic) -> WantedTopic:
    return WantedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((given.partition_index, given.broker_ids) for given in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


def _topic_id(c: Controller, call: CarriedCall, name: str) -> bytes | None:
    """Derives the id, the same in every attempt. As in Kafka none begins with a dash: tools take it for an option."""
    if not c.ibp.topic_ids:
        return None
    made = hashlib.sha256(call.call_id + name.encode()).digest()
    while base64.urlsafe_b64encode(made).startswith(b"-"):
        made = hashlib.sha256(made).digest()
    return made[:16]


def _earlier(there: TopicZnodes, topic: CreatableTopic, topic_id: bytes | None) -> NewTopic | None:
    """Returns the topic if an earlier attempt of the same call created it."""
    found = there.topic
    if not isinstance(found, TopicAssignment) or topic_id is None or found.topic_id != topic_id:
        return None
    configs = {config.name: config.value or "" for config in topic.configs}
    return NewTopic(topic.name, topic_id, found.partitions, configs)


# -- writing


async def _commit(c: Controller, planned: Planned, contexts: dict[str, TopicZnodes]) -> dict[str, Outcome]:
    """Writes until every topic is created or refused; contended ones are written singly in the end."""
    outcomes: dict[str, Outcome] = {}
    waiting = {name: topic for name, (_, topic) in planned.items()}
    for writes_max in c.conflict_rounds():
        await c.connected()
        versions = [(topic, contexts[name].config_version) for name, topic in waiting.items()]
        companions = await _companions(waiting, planned)
        outcome = await topic_commit.create_topics(c.zk, versions, c.fence, writes_max, companions)
        c.gate.check()
        outcomes.update((topic.name, topic) for topic in outcome.applied)
        outcomes.update((name, _refused(code)) for name, code in outcome.refused)
        waiting = {name: topic for name, topic in waiting.items() if name not in outcomes}
        if waiting:
            contexts = await _read(c, list(waiting))
            for name in [name for name in waiting if contexts[name].topic is not None]:
                outcomes[name] = _met(contexts[name], waiting.pop(name))
        _settle(outcomes, planned)
        if not waiting:
            return outcomes
    outcomes |= dict.fromkeys(waiting, CONTENDED)
    _settle(outcomes, planned)
    return outcomes


async def _companions(waiting: Mapping[str, NewTopic], planned: Planned) -> dict[str, Companion]:
    """Returns the records that go along, each by the topics of its call."""
    calls: dict[int, tuple[CreationCall, dict[str, NewTopic]]] = {}
    for name, topic in waiting.items():
        one = planned[name][0]
        calls.setdefault(id(one), (one, {}))[1][name] = topic
    companions: dict[str, Companion] = {}
    for one, expected in calls.values():
        companion = await one.record.companion(one.result(expected) or "")
        if companion is not None:
            companions |= dict.fromkeys(expected, companion)
    return companions


def _settle(outcomes: Mapping[str, Outcome], planned: Planned) -> None:
    """Gives each call the outcomes of its topics."""
    for name, outcome in outcomes.items():
        one = planned[name][0]
        one.outcomes[name] = outcome
        if isinstance(outcome, NewTopic):
            one.created.add(name)


def _met(there: TopicZnodes, topic: NewTopic) -> Outcome:
    """Judges a topic that exists after all: ours, if only the reply was lost, or another client's."""
    found = there.topic
    if isinstance(found, TopicAssignment) and (found.topic_id, found.partitions) == (topic.topic_id, topic.partitions):
        return topic
    return TopicRefusal(TopicError.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")


def _refused(code: Code) -> TopicRefusal:
    if code is Code.TOO_BIG:
        why = "it has more partitions or replicas than fit into a znode: give fewer"
        return TopicRefusal(TopicError.INVALID_PARTITIONS, why)
    why = f"ZooKeeper refused the write ({code.name}): check the ACLs of /brokers/topics and /config/topics"
    return TopicRefusal(TopicError.UNKNOWN_SERVER_ERROR, why)


async def _start(c: Controller, names: list[str]) -> None:
    """Elects leaders now; where the connection is lost, the event of the parent's new children does."""
    if not names:
        return
    log.info("created %s: %s", counted(len(names), "topic"), abbreviate(names))
    try:
        await start_topics(c, [name for name in names if c.cluster.topic(name) is None])
    except (NotConnected, OutcomeUnknown):
        c.queue.signal(EventKind.TOPIC_CHANGE)


# -- responding


async def _answer_later(c: Controller, configs: DefaultConfigs, one: CreationCall) -> None:
    """Responds beside the queue, once topics have leaders and a broker has sent the inherited configurations."""
    inherited = asyncio.ensure_future(_inherited(configs, one))
    try:
        late = await topics_without_leaders(c, one.created, one.body.timeout_ms, one.counts)
        one.pending.answer(creation_response(one, late, await inherited))
    finally:
        inherited.cancel()


async def _inherited(configs: DefaultConfigs, one: CreationCall) -> Inherited:
    return await configs.known() if one.call.version >= SHOWS_TOPICS_FIRST_VERSION else None
