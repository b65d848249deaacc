"""Handles DeleteTopics (S4-78; Kafka ``ZkAdminManager.deleteTopics``): marks topics, responds after their removal.

Kafka's controller responds when its own broker's metadata no longer has the topics. This one waits for one broker, and
up to a second longer for the others and for the znodes of topics whose replicas are all live: a client may create the
topic anew. A replica on an absent broker holds up the deletion, never the response. The call comes through the queue
like a broker's; a call that is repeated after a failover finds the marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from brokers.wire.errors import Error
from controller.kafka.access import Account
from controller.kafka.partitions.await_leaders import METADATA_S_MAX, WAIT_S_MAX
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.requests.admission import accounts
from controller.kafka.requests.calls import PendingDeletion, call_result
from controller.kafka.requests.values import DeletedTopic, DeleteTopicsCall, DeleteTopicsReply
from controller.procedures.recorder import CallKind
from controller.process.wording import abbreviate
from metadata_store.commits.topic_deletion import mark_topics
from metadata_store.errors import NotConnected, OutcomeUnknown
from state_machines.model.types import Topic

log = logging.getLogger("regent.controller")

NOT_KNOWN: Final = (
    "no broker has reported its delete.topic.enable yet (the log of the controlling daemon has the cause): try again, "
    "or set controller.delete_topic_enable"
)


async def delete_topics_call(c: Controller, pending: PendingDeletion) -> None:
    """Marks existing topics; the response waits for topics that were marked before, too."""
    call = pending.call
    record = c.recorder.call(CallKind.DELETE_TOPICS, call.caller, again=call.again)
    try:
        account = await _account(c, call)
        found = [_found(c, wanted) for wanted in call.topics]
        judged = [_judged(c, call, wanted, topic) for wanted, topic in zip(call.topics, found, strict=True)]
        judged = list(_paid(c, account, found, judged))
        marked = {t.index: t for t, j in zip(found, judged, strict=True) if t is not None and j.error is Error.NONE}
        companion = await record.companion(_result(found, judged, set()) or "")
        outcome = await mark_topics(c.zk, [t.name for t in marked.values()], c.fence, companion)
        refused = {name for name, _ in outcome.refused}
        c.gate.check()
        if refused:
            log.error("%s: ZooKeeper refused the markers of a deletion: check their ACLs", abbreviate(sorted(refused)))
        c.queue.signal(EventKind.TOPIC_DELETION)
        await record.close(_result(found, judged, refused), changed=bool(outcome.applied))
    except BaseException as error:
        pending.refuse()
        if isinstance(error, NotConnected | OutcomeUnknown):
            await record.close()
        raise
    c.spawn(_answer_when_gone(c, pending, found, judged, refused, account), pending.refuse)


def _result(found: Sequence[Topic | None], judged: Sequence[DeletedTopic], refused: set[str]) -> str | None:
    """Returns a sentence on the marked topics; None without any. A repeated call succeeds for topics that are gone."""
    outcomes = [_outcome(one, set(), refused) for one in judged]
    marked = [
        topic.name for topic, one in zip(found, outcomes, strict=True) if topic is not None and one.error is Error.NONE
    ]
    errors = [one.error for one in outcomes if one.error is not Error.NONE]
    return call_result("marked for deletion", marked, "topic", errors) if marked else None


async def _account(c: Controller, call: DeleteTopicsCall) -> Account:
    if call.payer is None:
        return Account(c.quotas)
    [account] = await accounts(c, [call.payer])
    return account


def _paid(
    c: Controller, account: Account, found: Sequence[Topic | None], judged: Sequence[DeletedTopic]
) -> Iterator[DeletedTopic]:
    """Charges the quota, or throttles. Topics in deletion, or named twice, are not charged."""
    paid = set(c.cluster.deletions)
    for topic, one in zip(found, judged, strict=True):
        if one.error or topic is None or topic.index in paid:
            yield one
        elif account.charge(len(topic.rows)):
            paid.add(topic.index)
            yield one
        else:
            yield structs.replace(one, error=Error.THROTTLING_QUOTA_EXCEEDED)


def _found(c: Controller, wanted: str | bytes) -> Topic | None:
    return c.cluster.topic(wanted) if isinstance(wanted, str) else c.cluster.topic_by_id(wanted)


def _judged(c: Controller, call: DeleteTopicsCall, wanted: str | bytes, topic: Topic | None) -> DeletedTopic:
    """Judges in Kafka's order: deletion switched off, unknown id, unknown name; in deletion counts as unknown."""
    by_name = isinstance(wanted, str)
    name, topic_id = (wanted, None) if isinstance(wanted, str) else (None, wanted)
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    if c.deletion_queue.enabled is None:
        return DeletedTopic(name, topic_id, Error.REQUEST_TIMED_OUT, NOT_KNOWN)
    if not c.deletion_queue.enabled:
        return DeletedTopic(name, topic_id, Error.TOPIC_DELETION_DISABLED)
    if topic is None and not call.again:
        return DeletedTopic(name, topic_id, Error.UNKNOWN_TOPIC_OR_PARTITION if by_name else Error.UNKNOWN_TOPIC_ID)
    if topic is not None and not call.again and c.deletion_queue.began(topic) and c.channels.is_shown(topic.rows):
        return DeletedTopic(name, topic_id, Error.UNKNOWN_TOPIC_OR_PARTITION)
    return DeletedTopic(name, topic_id, Error.NONE)


async def _answer_when_gone(
    c: Controller,
    pending: PendingDeletion,
    found: Sequence[Topic | None],
    judged: Sequence[DeletedTopic],
    refused: set[str],
    account: Account,
) -> None:
    """Responds beside the queue once no broker is known to show the topics, or the caller's time is over."""
    waiting = [t for t, j in zip(found, judged, strict=True) if t is not None and not j.error and t.name not in refused]
    try:
        left = await _wait(c, waiting, min(pending.call.timeout_ms / 1000, WAIT_S_MAX))
        pending.answer(DeleteTopicsReply([_outcome(topic, left, refused) for topic in judged], account.throttle_ms))
    finally:
        pending.refuse()


async def _wait(c: Controller, waiting: Sequence[Topic], timeout_s: float) -> set[str]:
    """Returns the names of topics that brokers may still show when time is up."""
    now = asyncio.get_running_loop().time
    deadline_s = now() + max(0.0, timeout_s)
    late = {topic.name for topic in waiting if not await _forgotten(c, topic, deadline_s)}
    done = [topic for topic in waiting if topic.name not in late]
    rest_s = min(deadline_s, now() + METADATA_S_MAX)
    await c.channels.metadata_acknowledged([i for topic in done for i in topic.rows], rest_s - now())
    for topic in done:
        await c.deletion_queue.until(partial(c.deletion_queue.rests, topic), rest_s)
    return late


async def _forgotten(c: Controller, topic: Topic, deadline_s: float) -> bool:
    """Waits until a broker acknowledged the removal of the topic, or the topic is gone."""
    if not await c.deletion_queue.until(partial(c.deletion_queue.began, topic), deadline_s):
        return False
    return not await c.channels.metadata_shown(topic.rows, deadline_s - asyncio.get_running_loop().time())


def _outcome(topic: DeletedTopic, left: set[str], refused: set[str]) -> DeletedTopic:
    if topic.error or topic.name not in left | refused:
        return topic
    error = Error.UNKNOWN_SERVER_ERROR if topic.name in refused else Error.REQUEST_TIMED_OUT
    return DeletedTopic(topic.name, topic.topic_id, error)
