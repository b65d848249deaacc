"""Queries brokers, beside the queue, for the ids of running topics whose znodes have none.

A broker drops an id with the first UpdateMetadata without it. So none is sent the metadata of such topics before it has
responded, nor before the ids that others know are written. LeaderAndIsr drops no id and goes at once. Until an id is
known such a topic has leaders without one, which brokers accept.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import BrokerQueries, query_each
from brokers.wire.errors import Error, error_name
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.topic_rewrites import rewrite_topics
from controller.process.wording import abbreviate
from controller.role.own_znodes import TOPIC_IDS_BEGIN
from metadata_store import paths
from metadata_store.errors import Code
from metadata_store.port import ANY_VERSION, Create, Delete, Op, SetData
from state_machines.decisions.topic_change import (
    Evidence,
    TopicIds,
    Verdict,
    any_has_id,
    id_changes,
    judge_ids,
    sample_of_lost,
)
from state_machines.model.topic_facts import TopicIdSettled, TopicIdWritten
from state_machines.model.types import Broker

log = logging.getLogger("regent.controller")

QUERIES_AT_ONCE_MAX: Final = 5
"""Brokers that are queried together, those first that run longest."""
ANSWER_S_MAX: Final = 5.0
"""Time-out of the responses of some brokers."""
ASK_S_MAX: Final = 10.0
"""Time-out of one try."""
PAUSE_S: Final = 1.0
"""Pause between two tries."""
OUTRANKED: Final = "it obeys a higher controller epoch, and may know another cluster's topics"
TOPICS_MAX: Final = 500
"""Topics that get their ids in one turn of the queue."""
ASKED: Final = b"asked"
TOLD_NONE: Final = b"told none"
"""Note of a query in which a broker had the topics without ids from an earlier controller."""
NEVER_HAD_ANY: Final = f"; if no replica has that file, delete {TOPIC_IDS_BEGIN} and restart the daemon: ids are given"
NOT_NOTED: Final = "that topic ids begin could not be noted in ZooKeeper"


# -- the query


async def begin(c: Controller) -> None:
    """Has brokers queried for ids that a term's first reading found lost; notes it where no running topic has an id.

    The note outlives a term that ends while ids are given: topics that have one by then would make the others look as
    if they had lost theirs.
    """
    if not c.ibp.topic_ids:
        return
    lost = c.lost_ids
    node = await c.zk.get(TOPIC_IDS_BEGIN)
    lost.noted = None if node is None else node.data or ASKED
    lost.none_had_one = bool(lost.topics) and (node is not None or not any_has_id(c.cluster))
    lost.evidence.sent_none = lost.noted == TOLD_NONE
    lost.sent_before = lost.noted == ASKED
    await _note(c)
    inquire_of_new(c)


def inquire_of_new(c: Controller) -> None:
    """Has brokers queried for topics that were just found without an id; their metadata waits for the responses."""
    lost = c.lost_ids
    if not lost.fresh:
        return
    c.channels.withhold(topic.index for name in lost.fresh if (topic := c.cluster.topic(name)) is not None)
    lost.fresh.clear()
    if lost.ask(of_new=True):
        c.spawn(_inquire(c))


def query_topic_ids_again(c: Controller, *, registered: bool) -> None:
    """Queries brokers that ``registered``; otherwise brokers are gone, and no response of theirs is awaited."""
    if not c.lost_ids.topics:
        return
    if registered:
        if c.lost_ids.ask(of_new=False):
            c.spawn(_inquire(c))
    elif not c.lost_ids.asking:
        c.queue.signal(EventKind.LOST_IDS)


async def _inquire(c: Controller) -> None:
    """Queries until every live broker has responded or ``TRIES_MAX`` is reached; each try ends with an event."""
    lost = c.lost_ids
    try:
        while lost.tries_left and lost.topics:
            lost.tries_left -= 1
            evidence = lost.evidence
            await _dial(c, evidence)
            if evidence is not lost.evidence:
                continue
            if evidence.sampled and evidence.ids:
                lost.ask_of_all()
                continue
            if evidence.complete(c.cluster.brokers):
                lost.tries_left = 0
            c.queue.signal(EventKind.LOST_IDS)
            if lost.tries_left:
                await asyncio.sleep(PAUSE_S)
    finally:
        lost.asking = False


async def _dial(c: Controller, evidence: Evidence) -> None:
    """Makes one try: queries some brokers after the others, until one knows an id of each topic, or time is up."""
    lost, now_s = c.lost_ids, asyncio.get_running_loop().time
    names = sample_of_lost(lost.topics) if evidence.sampled else sorted(lost.topics)
    waiting = [broker for broker in c.cluster.brokers.values() if evidence.lacks(broker)]
    waiting.sort(key=lambda broker: (broker.id in lost.silent, broker.epoch))
    deadline_s = now_s() + ASK_S_MAX

    async def query(queries: BrokerQueries, _: Broker) -> TopicIds:
        return await _ids(queries, names)

    while c.dial is not None and waiting and any(name not in evidence.ids for name in names):
        if (left_s := deadline_s - now_s()) <= 0 or (evidence.sampled and evidence.ids):
            break
        some = {broker.id: broker for broker in waiting[:QUERIES_AT_ONCE_MAX]}
        del waiting[:QUERIES_AT_ONCE_MAX]
        for broker_id, told in (await query_each(c.dial, some, query, min(left_s, ANSWER_S_MAX))).items():
            broker = some[broker_id]
            if isinstance(told, BrokerCallFailed):
                lost.silent[broker_id] = str(told)
            elif broker_id in c.cluster.outranked:
                lost.silent[broker_id] = OUTRANKED
            else:
                lost.silent.pop(broker_id, None)
                sent, late = lost.sent_before or broker_id in lost.sent, broker_id in lost.late
                evidence.add(broker, told, names, sent=sent, late=late)


async def _ids(broker: BrokerQueries, names: Sequence[str]) -> TopicIds:
    """Returns the ids that a broker knows; raises BrokerCallFailed where its response does not cover every topic."""
    found: dict[str, bytes | None] = {}
    for name, topic in (await broker.metadata(names)).topics.items():
        if topic.error == Error.NONE:
            found[name] = topic.topic_id
        elif topic.error != Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise BrokerCallFailed(f"it responds {error_name(topic.error)} for topic {name}")
    return found


# -- the verdicts


async def lost_ids(c: Controller) -> None:
    """Judges the brokers' responses, writes the ids, some topics at a time, and has the topics sent."""
    lost = c.lost_ids
    for name in [name for name, czxid in lost.topics.items() if not _is_lost(c, name, czxid)]:
        lost.drop(name)
        c.enter(TopicIdSettled(name))
    if not lost.ids:
        _judge(c)
        await _note(c)
    if lost.ids:
        await _write(c)
    if lost.ids:
        c.queue.signal(EventKind.LOST_IDS)
        return
    await _note(c)
    _send(c)


def _is_lost(c: Controller, name: str, czxid: int) -> bool:
    topic = c.cluster.topic(name)
    return topic is not None and topic.czxid == czxid and topic.topic_id is None


def _judge(c: Controller) -> None:
    """Returns the ids to write, in the order of names; reports the other topics."""
    lost = c.lost_ids
    complete = lost.evidence.complete(c.cluster.brokers)
    verdicts = judge_ids(sorted(lost.topics), lost.evidence, complete=complete, none_had_one=lost.none_had_one)
    known = {name: of for name, of in verdicts.items() if isinstance(of, bytes) and c.cluster.topic_by_id(of) is None}
    times = Counter(known.values())
    found = {name: of for name, of in known.items() if times[of] == 1}
    new = {name: uuid.uuid4().bytes for name, of in verdicts.items() if of is Verdict.NEVER_HAD_ONE}
    lost.ids, lost.found = found | new, set(found)
    if lost.evidence.ids:
        lost.none_had_one = False
    _say_found(found)
    unanswered = {name for name, of in verdicts.items() if of is Verdict.UNANSWERED}
    _say_unknown(c, lost.topics.keys() - lost.ids.keys(), unanswered)


async def _write(c: Controller) -> None:
    """Writes the next ids; those that brokers know get to replicas with another leader epoch."""
    lost = c.lost_ids
    ids = dict(islice(lost.ids.items(), TOPICS_MAX))
    failed = await rewrite_topics(c, lambda: id_changes(c.cluster, ids), "topic id")
    c.waiting_topics.update(failed)
    for name in failed.keys() & lost.found:  # brokers have it, and would drop it if they were sent none
        c.enter(TopicIdWritten(name, ids[name]))
    for name in ids:
        lost.ids.pop(name, None)
        topic = c.cluster.topic(name)
        if topic is None or topic.topic_id is None:
            continue
        if name in lost.found:
            c.take_up(topic.rows)
        else:
            lost.made_up = True
        c.enter(TopicIdSettled(name))
        lost.drop(name)


def _send(c: Controller) -> None:
    """Sends all topics, with or without an id, to brokers that responded or whose response is not awaited any more.

    A log without an id takes one with the leader epoch that its broker knows, so a snapshot does for made-up ids.
    """
    lost, live = c.lost_ids, c.cluster.brokers
    answered = [b for b, broker in live.items() if not lost.evidence.lacks(broker)]
    lost.late.difference_update(answered)
    if not lost.asking:
        lost.late.update(live.keys() - set(answered))
        answered = list(live)
    first = c.channels.permit_metadata(answered)
    lost.sent.update(first if lost.topics else ())
    rows = [i for name in lost.unsent if (topic := c.cluster.topic(name)) is not None for i in topic.rows]
    if lost.made_up:
        c.channels.snapshot(None)
    elif first and lost.topics.keys() - lost.unsent:
        c.channels.snapshot(first)
    elif rows:
        c.channels.metadata_changed(rows)
    lost.unsent.clear()
    lost.made_up = False


async def _note(c: Controller) -> None:
    """Writes the note that topic ids begin, as long as topics wait for theirs."""
    lost = c.lost_ids
    wanted: bytes | None = TOLD_NONE if lost.evidence.sent_none else ASKED
    if not (lost.none_had_one and lost.topics):
        wanted = None
    if wanted == lost.noted:
        return
    op: Op = Delete(TOPIC_IDS_BEGIN, ANY_VERSION)
    if wanted is not None:
        create = lost.noted is None
        op = Create(TOPIC_IDS_BEGIN, wanted) if create else SetData(TOPIC_IDS_BEGIN, wanted, ANY_VERSION)
    failed = await c.write_singly(op)
    there = failed is not None and failed.code is Code.NODE_EXISTS  # an earlier try, whose reply was lost, wrote it
    lost.noted = ASKED if there else wanted
    if failed is not None and failed.code not in (Code.NODE_EXISTS, Code.NO_NODE):
        c.counters.failures[NOT_NOTED] += 1
        log.error("%s (%s): check the ACL of %s", NOT_NOTED, failed.code.name, TOPIC_IDS_BEGIN)


def _say_found(found: Iterable[str]) -> None:
    if names := sorted(found):
        log.warning(
            "%s: the znode has no topic id (a tool rewrote it?); the one that brokers know is written back; find the "
            "tool and let it write %s no more",
            abbreviate(names),
            paths.TOPICS,
        )


def _say_unknown(c: Controller, unknown: Iterable[str], unanswered: Iterable[str]) -> None:
    """Reports topics that stay without an id, where they differ from the last report."""
    lost, names = c.lost_ids, sorted(unknown)
    silent = [
        f"broker {b} ({lost.silent.get(b, 'not queried yet')})"
        for b, known in sorted(c.cluster.brokers.items())
        if lost.evidence.lacks(known)
    ]
    said = frozenset((*names, *silent))
    if not names or said == lost.said:
        return
    lost.said = said
    if set(names) & set(unanswered):
        log.error(
            "%s: the znode has no topic id, and brokers that may know it do not respond: %s; led without an id until "
            "they respond or are gone; see why they do not, or restart them: a broker that registers is queried",
            abbreviate(names),
            abbreviate(silent, "brokers") if silent else "no broker is live",
        )
        return
    log.error(
        "%s: the znode has no topic id and no live broker knows it: no id is made up, because brokers would refuse "
        "another one than their logs have; led without an id; put topic_id from partition.metadata, in a log "
        "directory of a replica, into %s%s",
        abbreviate(names),
        paths.topic(names[0]),
        NEVER_HAD_ANY if lost.none_had_one else "",
    )
