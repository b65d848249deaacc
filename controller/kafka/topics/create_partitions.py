"""Handles CreatePartitions (KIP-195): grows topics, and responds once the new partitions have leaders."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from brokers.wire.errors import Error
from brokers.wire.messages.topics import (
    CreatedPartitions,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    GrownTopic,
)
from controller.kafka.access import Account, payer
from controller.kafka.partitions.await_leaders import topics_without_leaders
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.requests.admission import THROTTLED, accounts
from controller.kafka.requests.calls import PendingCarried, call_result
from controller.kafka.requests.codec import caller_of
from controller.kafka.topics.create_topics import CONTENDED, TWICE
from controller.kafka.topics.topic_change import modified
from controller.procedures.recorder import CallKind
from metadata_store.codecs.base import MalformedNode
from metadata_store.commits.topic_commit import TopicZnodes, read_contexts
from metadata_store.errors import Code, NotConnected, OutcomeUnknown
from state_machines.admin_rules.create_partitions import WantedGrowth, judge_growth
from state_machines.admin_rules.create_topics import PARTITIONS_MAX, TopicError, TopicRefusal
from state_machines.admin_rules.topic_configs import wrong_name
from state_machines.decisions.reassignment import is_complete
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, TopicAssignment

ABSENT: Final = TopicZnodes(None, False, None)
GROWN: Final = "partitions added by an admin client"

log = logging.getLogger("regent.controller")


class _Asked:
    """Holds the call, its refused topics, and those that have grown (or had already, at an earlier attempt).

    ``paid``: topics whose new partitions were charged to the quota; they are not charged again.
    """

    def __init__(self, c: Controller, pending: PendingCarried, account: Account) -> None:
        self.pending = pending
        self.account = account
        self.paid: set[str] = set()
        call = self.call = pending.call
        self.record = c.recorder.call(CallKind.CREATE_PARTITIONS, caller_of(call), again=call.attempt > 0)
        body = pending.call.body
        assert isinstance(body, CreatePartitionsRequest)
        self.body = body
        self.refused: dict[str, TopicRefusal] = {}
        self.grown: set[str] = set()

    def answer(self, late: frozenset[str]) -> CreatePartitionsResponse:
        """Builds the response. ``late``: topics that have no leaders in time."""
        names = dict.fromkeys(topic.name for topic in self.body.topics)
        return CreatePartitionsResponse(tuple(self._outcome(name, late) for name in names), self.account.throttle_ms)

    def result(self, expected: Iterable[str] = ()) -> str | None:
        """Returns a sentence on the grown topics, with ``expected`` ones; None without any."""
        counts = {topic.name: topic.count for topic in self.body.topics}
        grown = [f"{name} to {counts[name]}" for name in counts if name in self.grown.union(expected)]
        refused = [refusal.error for refusal in self.refused.values()]
        return call_result("added partitions to", grown, "topic", refused) if grown else None

    def pays(self, name: str, partitions: int) -> bool:
        """Checks whether the quota allows so many new partitions of a topic, and charges them."""
        if name not in self.paid and partitions and not self.body.validate_only:
            if not self.account.charge(partitions):
                return False
            self.paid.add(name)
        return True

    def _outcome(self, name: str, late: frozenset[str]) -> CreatedPartitions:
        if (refused := self.refused.get(name)) is not None:
            return CreatedPartitions(name, refused.error, refused.why)
        return CreatedPartitions(name, Error.REQUEST_TIMED_OUT if name in late else Error.NONE)


async def create_partitions(c: Controller, pending: PendingCarried) -> None:
    """Judges the present znodes and writes them; after a foreign write in between it judges again."""
    waits = False
    try:
        [account] = await accounts(c, [payer(pending.call)])
        asked = _Asked(c, pending, account)
        await _grow(c, asked)
        if asked.grown and asked.body.timeout_ms > 0:
            c.spawn(_answer_when_led(c, asked), pending.refuse)
            waits = True
        else:
            pending.answer(asked.answer(frozenset(asked.grown)))
    finally:
        if not waits:
            pending.refuse()


async def _answer_when_led(c: Controller, asked: _Asked) -> None:
    counts = {topic.name: topic.count for topic in asked.body.topics}
    asked.pending.answer(asked.answer(await topics_without_leaders(c, asked.grown, asked.body.timeout_ms, counts)))


async def _grow(c: Controller, asked: _Asked) -> None:
    topics: Sequence[GrownTopic] = asked.body.topics
    counts = Counter(topic.name for topic in topics)
    asked.refused.update((name, TWICE) for name, count in counts.items() if count > 1)
    waiting = {topic.name: topic for topic in topics if counts[topic.name] == 1}
    changed: list[str] = []
    again = asked.call.attempt > 0
    try:
        await _write(c, asked, waiting, changed, again=again)
    except (NotConnected, OutcomeUnknown):
        await asked.record.close()
        raise
    await _start(c, changed or sorted(asked.grown))
    await asked.record.close(asked.result(), changed=bool(changed))


async def _write(
    c: Controller, asked: _Asked, waiting: dict[str, GrownTopic], changed: list[str], *, again: bool
) -> None:
    """Writes until each topic has grown or is refused; adds the topics that it wrote to ``changed``."""
    for _ in c.conflict_rounds():
        changes = _judge(c, asked, waiting, await _read(c, list(waiting)), again)
        if not changes:
            break
        names = [change.topic for change in changes]
        companion = await asked.record.companion(asked.result(names) or "")
        companions = dict.fromkeys(names, companion) if companion is not None else None
        outcome = await c.store.commit_topics(changes, c.fence, companions=companions)
        c.gate.check()
        changed += [change.topic for change in outcome.applied]
        asked.grown.update(changed)
        asked.refused.update((topic, _refused(code)) for topic, code in outcome.refused)
        waiting = {name: waiting[name] for name in {*outcome.unsettled, *outcome.gone}}
        again = again or bool(outcome.unknown)
        if not waiting:
            break
        await c.connected()
    else:
        asked.refused.update(dict.fromkeys(waiting, CONTENDED))


async def _read(c: Controller, names: list[str]) -> dict[str, TopicZnodes]:
    """Reads the topics' znodes; names that no topic can have are not read."""
    legal = [name for name in names if wrong_name(name) is None]
    return await c.until_read(partial(read_contexts, c.zk, legal)) if legal else {}


def _judge(
    c: Controller, asked: _Asked, waiting: dict[str, GrownTopic], contexts: dict[str, TopicZnodes], again: bool
) -> list[TopicChange]:
    brokers = {broker.id: broker.rack for broker in c.cluster.brokers.values()}
    spare, changes = PARTITIONS_MAX, list[TopicChange]()
    for name, wanted in waiting.items():
        context = contexts.get(name, ABSENT)
        topic = context.topic
        if isinstance(topic, MalformedNode):
            added: dict[int, Assignment] | TopicRefusal = _unusable(topic)
        else:
            known = None if topic is None else _as_it_ends(c, topic)
            added = judge_growth(
                _growth(wanted),
                known,
                brokers=brokers,
                marked=context.marked,
                spare=spare,
                again=again,
                cordoned=c.cluster.cordoned,
            )
        if not isinstance(added, TopicRefusal) and not asked.pays(name, len(added)):
            added = THROTTLED
        if isinstance(added, TopicRefusal):
            asked.refused[name] = added
            continue
        spare -= len(added)
        if asked.body.validate_only:
            continue
        if not added:
            asked.grown.add(name)
        elif isinstance(topic, TopicAssignment):
            changes.append(TopicChange(name, topic.version, topic.czxid, added, None, GROWN))
    return changes


def _as_it_ends(c: Controller, topic: TopicAssignment) -> TopicAssignment:
    """Returns the assignment with reassignments done that only wait for the final rewrite, as clients see them."""
    done: dict[int, Assignment] = {}
    for partition, assignment in topic.partitions.items():
        row = c.cluster.find(topic.name, partition) if assignment.moving else None
        if row is not None and c.cluster.reassigning.get(row) == assignment and is_complete(c.cluster, row):
            done[partition] = Assignment(assignment.target)
    return replace(topic, partitions={**topic.partitions, **done}) if done else topic


def _unusable(topic: MalformedNode) -> TopicRefusal:
    return TopicRefusal(TopicError.UNKNOWN_SERVER_ERROR, f"{topic.path} cannot be used: {topic.why}")


def _growth(wanted: GrownTopic) -> WantedGrowth:
    given = wanted.assignments
    return WantedGrowth(wanted.name, wanted.count, None if given is None else tuple(a.broker_ids for a in given))


def _refused(code: Code) -> TopicRefusal:
    if code is Code.TOO_BIG:
        return TopicRefusal(TopicError.INVALID_PARTITIONS, "they do not fit into the topic's znode: give fewer")
    why = f"ZooKeeper refused the write ({code.name}): check the ACL of the topic's znode"
    return TopicRefusal(TopicError.UNKNOWN_SERVER_ERROR, why)


async def _start(c: Controller, names: list[str]) -> None:
    """Elects leaders now; where the connection is lost, the events of the changed znodes do."""
    if not names:
        return
    log.info("%d topics get more partitions, the first is %s", len(names), names[0])
    try:
        await modified(c, names)
    except (NotConnected, OutcomeUnknown):
        for name in names:
            c.queue.signal(EventKind.PARTITION_MODIFICATIONS, name)
