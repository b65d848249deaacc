"""Removes topics that are gone from ZooKeeper, and ends partitions that brokers show all the same.

Clients would find such partitions, also in the next topic of that name. A deletion that another controller left half
done, or znodes that were removed by hand, leave them in the metadata of brokers, which no later request corrects. So
each broker is queried once it has registered, or a term has begun, and has acknowledged everything. Kafka's controller
never looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.queries import BrokerQueries, Dial, query_each
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.process.wording import counted
from metadata_store.codecs.base import MalformedNode
from state_machines.model.cluster import Cluster
from state_machines.model.topic_facts import GhostsFound, RowsEnded, TopicGone
from state_machines.model.types import Broker, TopicAssignment, TopicPartition
from state_machines.portions import portions

log = logging.getLogger("regent.controller")

COMPARED_MAX: Final = 100_000
"""Partitions times brokers up to which brokers are queried: some seconds of CPU, on a thread beside the loop."""
MANY: Final = 1_000
"""Partitions up to which brokers are sent their end, even if ZooKeeper has fewer."""
ACKNOWLEDGED_S_MAX: Final = 30.0
"""Longest wait for the acknowledgements of all brokers before they are queried."""
ANSWER_S_MAX: Final = 10.0
TRIES_MAX: Final = 5
PAUSE_S: Final = 20.0
"""Pause before brokers that did not respond are queried again."""
TOPICS_MAX: Final = 500
"""Topics whose znodes are read in one turn of the queue."""
Shown = Mapping[str, Collection[int]]
"""Partitions by topic."""
VANISHED_MAX: Final = 1_000
"""Topics that vanished without a deletion, of which a term remembers the partitions."""
TURN_ROWS: Final = 15_000
"""Partitions of vanished topics that are removed in one turn of the loop: some 25 ms."""


async def find_ghosts(c: Controller, dial: Dial, due: set[int]) -> None:
    """Queries brokers that are due, beside the queue, until none is left; each find ends with an event.

    ``due``: grows meanwhile as brokers register, so one task is enough however often they do. A broker that does not
    respond is queried again, a few times.
    """
    tries: dict[int, int] = {}
    while due or tries:
        tries |= dict.fromkeys(due, 0)
        due.clear()
        await c.channels.quiesced(ACKNOWLEDGED_S_MAX)
        silent = await _query(c, dial, sorted(tries))
        tries = {broker: tries[broker] + 1 for broker in silent}
        for broker in [one for one, count in tries.items() if count == TRIES_MAX]:
            log.info("broker %d was not queried for partitions that ZooKeeper lacks: %s", broker, silent[broker])
            del tries[broker]
        if tries and not due:
            await asyncio.sleep(PAUSE_S)


async def _query(c: Controller, dial: Dial, brokers: Collection[int]) -> dict[int, str]:
    """Queries brokers, one after the other, twice where one shows more; returns those that did not respond, and why."""
    silent: dict[int, str] = {}
    for broker_id in brokers:
        live = c.cluster.brokers
        if broker_id not in live or broker_id in c.cluster.outranked:
            continue
        if c.cluster.present * len(live) > COMPARED_MAX:
            log.debug("%d partitions on %d brokers are too many to look for others", c.cluster.present, len(live))
            return {}
        found = await _look(c, dial, live[broker_id])
        if isinstance(found, dict) and found:  # by then a deletion or creation under way has reached the model
            found = await _look(c, dial, live[broker_id], sorted(found))
        if isinstance(found, BrokerCallFailed):
            silent[broker_id] = str(found)
        elif found:
            _note(c, broker_id, found)
    return silent


async def _look(
    c: Controller, dial: Dial, broker: Broker, names: Collection[str] | None = None
) -> dict[str, set[int]] | BrokerCallFailed:
    """Returns the partitions of topics (None: of all) that a broker shows and the model lacks."""

    async def query(queries: BrokerQueries, _: Broker) -> ClusterMetadata:
        return await queries.metadata(names)

    if names is not None:
        await c.channels.quiesced(ACKNOWLEDGED_S_MAX)
    told = (await query_each(dial, {broker.id: broker}, query, ANSWER_S_MAX))[broker.id]
    if isinstance(told, BrokerCallFailed):
        return told
    shown = {name: topic.partitions.keys() for name, topic in told.topics.items() if name not in c.unread_topics}
    return unknown_to(c.cluster, shown)


def unknown_to(cluster: Cluster, shown: Shown) -> dict[str, set[int]]:
    """Returns the shown partitions that the model lacks."""
    found: dict[str, set[int]] = {}
    for name, numbers in shown.items():
        topic = cluster.topic(name)
        lacking = set(numbers) if topic is None else {n for n in numbers if cluster.row_in(topic, n) is None}
        if lacking:
            found[name] = lacking
    return found


def _note(c: Controller, broker: int, found: Mapping[str, set[int]]) -> None:
    """Signals what a broker shows; where that is most of what it has, ZooKeeper may be a restored one."""
    count = sum(map(len, found.values()))
    name = next(iter(found))
    first = TopicPartition(name, min(found[name]))
    if count > max(MANY, c.cluster.present):
        log.error(
            "broker %d shows %s that ZooKeeper lacks, the first is %s, more than ZooKeeper has: nothing is ended; find "
            "out whether ZooKeeper was restored from an old copy, and restart brokers once that is as it should be",
            broker,
            counted(count, "partition"),
            first,
        )
        return
    log.warning(
        "broker %d shows %s that ZooKeeper lacks, the first is %s: brokers are sent that these are gone; a deletion "
        "was left half done, or znodes were removed by hand",
        broker,
        counted(count, "partition"),
        first,
    )
    for name, numbers in found.items():
        c.ghosts.setdefault(name, set()).update(numbers)
    c.queue.signal(EventKind.GHOSTS)


def end_vanished(c: Controller, topics: Iterable[TopicAssignment]) -> None:
    """Ends partitions of vanished topics whose names come again with fewer, where brokers would show them."""
    for topic in topics if c.vanished else ():
        numbers = c.vanished.pop(topic.name, set()).difference(topic.partitions)
        if numbers:
            c.enter(GhostsFound({topic.name: numbers}))


async def end_ghosts(c: Controller) -> None:
    """Sends brokers the end of partitions that neither ZooKeeper nor the model has by now, some topics at a time."""
    names = list(islice(c.ghosts, TOPICS_MAX))
    await c.zk.sync("/brokers/topics")
    topics = await c.store.load_topics(names)
    c.gate.check()
    found: dict[str, set[int]] = {}
    for name, topic in zip(names, topics, strict=True):
        numbers = c.ghosts.pop(name)
        if not isinstance(topic, MalformedNode):
            found[name] = numbers.difference(topic.partitions if topic is not None else ())
    c.enter(GhostsFound(found))
    if c.ghosts:
        c.queue.signal(EventKind.GHOSTS)


async def remove_vanished(c: Controller, names: Iterable[str]) -> int:
    """Removes topics whose znodes are gone, in portions; returns how many partitions they had."""
    removed = since = 0
    for name in names:
        topic = c.cluster.topic(name)
        for some in portions(list(topic.rows), TURN_ROWS) if topic is not None else ():
            if since + len(some) > TURN_ROWS:
                await asyncio.sleep(0)
                c.gate.check()
                since = 0
            since += len(some)
            _remember(c, name, some)
            c.enter(RowsEnded(some))
        removed += _remove_topic(c, name)
    return removed


def _remember(c: Controller, name: str, of: Iterable[int]) -> None:
    """Remembers the partitions that brokers go on to show, for the next topic of that name."""
    rows = (c.cluster.rows[i] for i in of)
    if shown := {row.partition for row in rows if row.has_leadership and not row.is_removed}:
        c.vanished.setdefault(name, set()).update(shown)
        while len(c.vanished) > VANISHED_MAX:
            del c.vanished[next(iter(c.vanished))]


def _remove_topic(c: Controller, name: str) -> int:
    """Removes a topic whose rows have ended; returns how many partitions it had."""
    c.waiting_topics.discard(name)
    c.lost_ids.drop(name)
    c.reassignment_queue.name_daemons.discard(name)
    topic = c.cluster.topic(name)
    if topic is None:
        return 0
    c.deletion_queue.gone(topic.index)
    if c.reassignment_queue.names(name):
        c.queue.signal(EventKind.REASSIGN_PARTITIONS)
    return len(c.enter(TopicGone(name)).rows)
