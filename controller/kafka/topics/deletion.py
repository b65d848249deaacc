"""Deletes topics (S4-78; Kafka ``TopicDeletionManager``): queues markers, sends StopReplica, counts the responses.

A topic whose every replica is deleted loses its znodes, its marker with the last of them. Until then nothing is
written, so the next controller starts again from the marker: a broker that deleted its log already responds without an
error. A deletion that waits for a broker or a reassignment goes on with the event that ends the wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

from brokers.outbound.delivery import BrokerResponse
from controller.kafka.journal.report import Reason
from controller.kafka.partitions.isr_changes import discard
from controller.kafka.path.agenda import TURN_PARTITIONS
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.given_up import recall_given_up
from controller.kafka.topics.ghosts import remove_vanished
from controller.process.clock import wall_ms
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.commits.topic_deletion import TopicToDelete, delete_topics
from metadata_store.errors import Code
from metadata_store.fencing.fenced import confirm
from metadata_store.port import Node
from state_machines.decisions.deletion import advance, answered, restored, sort_markers, waiting_for
from state_machines.machines.draft import Draft
from state_machines.model.topic_facts import MarkersRead
from state_machines.model.types import Topic, TopicAssignment
from state_machines.propagation.view import is_removed

log = logging.getLogger("regent.controller")

COUNTED_MAX = 10_000
"""Replicas in the responses of one decision at which no further response is added: some 50 ms."""
AGAIN_S: Final = 5.0
"""Pause before another try to delete znodes."""
NOT_DELETED = "znodes of a deleted topic could not be deleted: tried again after a while"
NOT_RESTORED = "partitions that were added to a topic that is being deleted could not be taken back"


# -- markers


async def topic_deletion(c: Controller) -> None:
    """Queues or removes markers: children of ``/admin/delete_topics`` changed, or topics that they name."""
    since = c.zk.last_zxid
    found = await c.zk.children(paths.DELETE_TOPICS)
    await c.zk.watch(children=[paths.DELETE_TOPICS], since_zxid=since)
    c.gate.check()
    void = queue_markers(c, found[0] if found is not None else ())
    if void:
        await _remove(c, void)
    await note_times(c)
    await deletion_progress(c)


async def note_times(c: Controller) -> None:
    """Notes since when topics are to be deleted: the creation of their markers, by ZooKeeper's clock."""
    since, cluster = c.deletion_queue.since_ms, c.cluster
    fresh = [index for index in sorted(cluster.deletions) if index not in since]
    found = await c.zk.read_many([paths.deletion(cluster.topics[index].name) for index in fresh]) if fresh else []
    now_ms = wall_ms()
    since.update(
        (i, n.stat.ctime_ms or now_ms if isinstance(n, Node) else now_ms) for i, n in zip(fresh, found, strict=True)
    )


def queue_markers(c: Controller, markers: Collection[str]) -> Sequence[str]:
    """Queues topics with markers; returns void markers: of unknown topics, or of all where deletion is switched off."""
    sorted_ = sort_markers(c.cluster, markers, enabled=c.deletion_queue.enabled)
    c.deletion_queue.markers = frozenset(markers)
    fresh = c.enter(MarkersRead(sorted_.queued)).topics
    if fresh:
        recall_given_up(c, frozenset(fresh))
        c.deletion_queue.resume(fresh)
        log.info("%s: to be deleted", abbreviate([c.cluster.topics[index].name for index in fresh]))
    return sorted_.removed


async def _remove(c: Controller, void: Sequence[str]) -> None:
    """Removes void markers. A topic that exists but was not read, or is malformed, keeps its marker."""
    if c.deletion_queue.enabled is not False:
        found = await c.zk.read_many([paths.topic(name) for name in void])
        void = [name for name, node in zip(void, found, strict=True) if node is Code.NO_NODE]
    else:
        log.warning(
            "%s: not deleted, because delete.topic.enable is false; the deletion markers are removed",
            abbreviate(void),
        )
    if void:
        await discard(c, list(map(paths.deletion, void)))
        c.deletion_queue.markers -= frozenset(void)


# -- progress


async def deletion_progress(c: Controller) -> None:
    """Counts responses, starts the deletions that there is room for, and deletes the znodes of finished ones.

    Brokers delete logs before ZooKeeper is written, so the claim is confirmed first. A finished deletion makes room and
    signals another event.
    """
    await _count_answers(c)
    topics = c.deletion_queue.next_turn()
    with c.channels.more_coming() if len(c.deletion_queue.waiting) > len(topics) else nullcontext():
        while topics:
            await confirm(c.zk, c.fence)
            c.gate.check()
            await _advance(c, topics)
            _explain(c, await c.deletion_queue.begun(topics))
            topics = c.deletion_queue.next_turn()
    await _delete_znodes(c)


async def _advance(c: Controller, topics: Sequence[int]) -> None:
    """Has brokers forget the partitions of topics and delete their logs; a large topic takes several turns."""
    names = abbreviate([c.cluster.topics[index].name for index in topics])
    size = max(len(c.cluster.topics[index].rows) for index in topics)
    with c.channels.more_coming() if size > TURN_PARTITIONS else nullcontext():
        for at in range(0, size, TURN_PARTITIONS):
            part = slice(at, at + TURN_PARTITIONS)
            begin = partial(advance, topics=topics, retry=True, part=part)
            await c.carry_out(begin, Reason.DELETION, f"deletion of {names}")
            await asyncio.sleep(0)


async def _count_answers(c: Controller) -> None:
    answers = c.deletion_queue.take_answers()
    while answers:
        some = _some(answers)
        del answers[: len(some)]
        counts = partial(judge_answers, answers=some)
        await c.carry_out(counts, Reason.DELETION, f"{len(some)} responses to StopReplica")
        c.deletion_queue.touch({c.cluster.rows[i].topic for answer in some for i in answer.rows})
        await asyncio.sleep(0)
    _explain(c, await c.deletion_queue.settle())


def _some(answers: Sequence[BrokerResponse]) -> Sequence[BrokerResponse]:
    """Takes the first responses, until their replicas are enough for one turn of the loop."""
    replicas = 0
    for number, answer in enumerate(answers, 1):
        replicas += len(answer.rows)
        if replicas >= COUNTED_MAX:
            return answers[:number]
    return list(answers)


def judge_answers(draft: Draft, answers: Iterable[BrokerResponse]) -> None:
    """Judges responses. A request that is refused as a whole names no partition: none of it was deleted."""
    for answer in answers:
        assert isinstance(answer.rows, Mapping)
        asked = [i for i, delete in answer.rows.items() if delete]
        answered(draft, answer.broker_id, asked, set(asked) if answer.error else {i for i, _ in answer.failed})


def _explain(c: Controller, resting: Mapping[int, str]) -> None:
    """Logs one line for each reason."""
    for why in sorted(set(resting.values())):
        names = [c.cluster.topics[index].name for index, reason in resting.items() if reason == why]
        log.warning("deletion of %s waits: %s", abbreviate(names), why)


async def _delete_znodes(c: Controller) -> None:
    """Deletes znodes of topics that every broker dropped, and for which no StopReplica has still to be sent.

    A late StopReplica would hit a topic that is created anew; without the marker it may never be sent.
    """
    cluster = c.cluster
    topics = [cluster.topics[index] for index in c.deletion_queue.ended if index in cluster.deletions]
    ready: list[Topic] = []
    late: list[Topic] = []
    for topic in topics:
        (late if c.channels.not_ended(topic.rows) else ready).append(topic)
    if late and not c.deletion_queue.awaited:
        c.deletion_queue.awaited = True
        c.spawn(_resume_when_propagated(c, late[0].rows))
    if not ready:
        return
    topics_to_delete = [
        TopicToDelete(topic.name, topic.czxid, [cluster.rows[i].partition for i in topic.rows]) for topic in ready
    ]
    outcome = await delete_topics(c.zk, topics_to_delete, c.fence)
    c.gate.check()
    applied = set(outcome.applied)
    c.deletion_queue.forgotten.extend(i for topic in ready if topic.name in applied for i in topic.rows)
    partitions = await remove_vanished(c, outcome.applied)
    if outcome.applied:
        log.info("%s: deleted, %d partitions", abbreviate(outcome.applied), partitions)
    for name in outcome.conflicts:
        c.queue.signal(EventKind.PARTITION_MODIFICATIONS, name)
    if outcome.refused:
        c.counters.failures[NOT_DELETED] += len(outcome.refused)
        log.error(
            "%s: %s (%s): %s",
            abbreviate([name for name, _ in outcome.refused]),
            NOT_DELETED,
            outcome.refused[0][1].name,
            "check the ACLs of its znodes" if outcome.refused[0][1] is Code.NO_AUTH else "another client writes there",
        )
        if not c.deletion_queue.refused:
            c.deletion_queue.refused = True
            c.spawn(_try_again(c))


async def _try_again(c: Controller) -> None:
    await asyncio.sleep(AGAIN_S)
    c.deletion_queue.refused = False
    c.queue.signal(EventKind.DELETION_PROGRESS)


async def _resume_when_propagated(c: Controller, rows: Collection[int]) -> None:
    await c.channels.ended(rows)
    c.deletion_queue.awaited = False
    c.queue.signal(EventKind.DELETION_PROGRESS)


# -- changes by brokers and other writers


def resend_deletions(c: Controller, gone: Collection[int], back: Collection[int]) -> None:
    """Sends returned brokers the deletions that they missed, which their snapshot leaves out.

    A broker whose session expired returns with its old metadata, and shows deleted topics until it gets these.
    """
    cluster, deletion_queue = c.cluster, c.deletion_queue
    deletion_queue.absent.update(gone)
    if back:
        rows = [i for index in sorted(cluster.deletions) for i in cluster.topics[index].rows]
        rows += [i for i in deletion_queue.forgotten if cluster.name(i).topic not in cluster.topic_index]
        c.channels.metadata_changed([i for i in rows if is_removed(cluster.rows[i])])
        deletion_queue.absent.difference_update(back)
        if not deletion_queue.absent:
            deletion_queue.forgotten.clear()


def resume_deletions(c: Controller, gone: Collection[int], back: Collection[int]) -> None:
    """Resumes deletions that waited for returned brokers, and awaits no response of brokers that are gone."""
    cluster = c.cluster
    if cluster.deletions:
        c.deletion_queue.touch(waiting_for(cluster, gone))
        c.deletion_queue.resume(waiting_for(cluster, back))
        c.queue.signal(EventKind.DELETION_PROGRESS)


async def take_back(c: Controller, topics: Sequence[TopicAssignment]) -> None:
    """Takes partitions back that were added to queued topics, and resumes deletions whose reassignment has ended."""
    changes = [change for topic in topics if (change := restored(c.cluster, topic)) is not None]
    if changes:
        outcome = await c.store.commit_topics(changes, c.fence)
        c.gate.check()
        for name in outcome.unsettled:
            c.queue.signal(EventKind.PARTITION_MODIFICATIONS, name)
        if outcome.applied:
            log.info("%s: %s", abbreviate([change.topic for change in outcome.applied]), outcome.applied[0].why)
        if outcome.refused:
            c.counters.failures[NOT_RESTORED] += len(outcome.refused)
            log.error("%s: %s: check the ACLs", abbreviate([name for name, _ in outcome.refused]), NOT_RESTORED)
    c.deletion_queue.resume(c.cluster.topic_index[t.name] for t in topics if t.name in c.cluster.topic_index)
    if topics:
        c.queue.signal(EventKind.DELETION_PROGRESS)
