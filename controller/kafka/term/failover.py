"""Fails over: begins a term (S4-65..S4-69; Kafka ``onControllerFailover``).

Everything is read on the claim's own session. Elections are committed and propagated ahead of the full snapshot, which
goes to every live broker: the controller before us may have committed changes that it never sent.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from controller.kafka import clients
from controller.kafka.brokers.broker_settings import load_kept_settings
from controller.kafka.brokers.marks import cordon_change, pause_change
from controller.kafka.journal.report import Reason
from controller.kafka.metrics.values import Counters
from controller.kafka.partitions.isr_changes import discard
from controller.kafka.path.controller import Controller, carry_out_portions
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import TermEnded
from controller.kafka.reassignments.strays import load_strays
from controller.kafka.topics.deletion import queue_markers
from controller.kafka.topics.lost_ids import begin as ask_for_lost_ids
from controller.kafka.topics.topic_change import bring_in
from controller.process.clock import wall_ms
from controller.role.claim import Claim
from controller.role.own_znodes import close_own, closes
from metadata_store import paths
from metadata_store.closing import Closed, close_again, follow
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import SessionLost
from metadata_store.fencing.fenced import confirm
from metadata_store.fencing.outcome import Fenced
from metadata_store.nodes import cluster_nodes
from metadata_store.nodes.cluster_nodes import Contended, ensure_top_level_paths
from metadata_store.reads import topic_names
from state_machines.decisions.failover import absent_members, failover
from state_machines.journal.events import Kind
from state_machines.model.facts import BrokersLoaded, BrokersUp
from state_machines.model.topic_facts import StatesLoaded
from state_machines.model.types import TopicAssignment
from state_machines.portions import portions

log = logging.getLogger("regent.controller")

FIRST_TOPICS: Final = 10
"""Topics in the first read, when their size is unknown: some have 10,000 partitions."""
GROWTH_MAX: Final = 8
"""Growth of the next read, as a factor: its topics may be larger."""
TOLD_S_MAX: Final = 60.0
"""Longest wait of the garbage collection for the first propagation."""
TURN_ROWS: Final = 20_000
"""Partitions that are entered into the model in one turn of the loop: about 40 ms."""
DECIDED_ROWS: Final = 15_000
"""Partitions of one decision, in one turn of the loop: some 60 ms."""
SCANNED_ROWS: Final = 200_000
"""Partitions whose ISRs are looked at in one turn of the loop."""
PARENTS: Final = (
    paths.BROKER_IDS,
    paths.TOPICS,
    paths.DELETE_TOPICS,
    paths.ISR_CHANGES,
    paths.LOG_DIR_EVENTS,
    paths.CONFIG_CHANGES,
)
"""Znodes whose children are watched; the controller cannot work without them."""


async def fail_over(c: Controller, before: Callable[[], Awaitable[None]] | None = None) -> None:
    """Loads the model, elects, and sends every broker everything. ``before``: awaited before brokers are sent any."""
    started_s = time.monotonic()
    c.counters.malformed.clear()
    since = c.zk.last_zxid
    await ensure_top_level_paths(c.zk)
    await set_up_features(c)
    await arm_parents(c, since)
    await discard_notifications(c)
    await load_brokers(c)
    await load_kept_settings(c)
    await load_topics(c, since)
    await load_strays(c)
    await load_deletions(c)
    c.deletion_queue.absent = c.cluster.hosts().difference(c.cluster.brokers, c.daemons)
    loaded_s = time.monotonic()
    if before is not None:
        await before()
    await cordon_change(c)
    await pause_change(c)
    c.enter(BrokersUp())
    decide, touched = partial(failover, unclean=c.unclean), await touched_rows(c)
    report = await carry_out_portions(c, decide, touched, Reason.FAILOVER, "failover", rows_max=DECIDED_ROWS)
    c.channels.snapshot(None)
    c.queue.signal(EventKind.RESUME_REASSIGNMENTS)
    c.queue.signal(EventKind.TOPIC_DELETION)
    c.queue.signal(EventKind.PREFERRED_ELECTION)
    c.queue.signal(EventKind.STRAYS)
    clients.begin(c)
    c.spawn(tidy(c))
    log.info(
        "took office at epoch %d: %d brokers, %d topics, %d partitions read in %.2f s, %d leaderships decided, "
        "%d partitions without a leader; every live broker is being sent all of it",
        c.gate.epoch,
        len(c.cluster.brokers),
        len(c.cluster.topic_index),
        len(c.cluster.rows),
        loaded_s - started_s,
        sum(report.done.values()),
        len(c.cluster.leaderless),
    )


async def record_election(c: Controller, claim: Claim) -> None:
    """Writes the journal's first row of the term: the cluster's id and the controller before."""
    if c.journal.kept:
        cluster_id = await cluster_nodes.read_cluster_id(c.zk)
        c.journal.of_cluster(cluster_id if isinstance(cluster_id, str) else "")
        before = claim.displaced
        why = "no controller held the role" if before is None else f"{before} held the role"
        c.journal.event(Kind.CTL_ELECTED, broker=before, why=why)


async def touched_rows(c: Controller) -> list[int]:
    """Returns the rows on which the term's first decision acts, in their order."""
    touched = set(c.cluster.leaderless)
    for rows in portions(range(len(c.cluster.rows)), SCANNED_ROWS):
        touched.update(*absent_members(c.cluster, rows).values())
        await asyncio.sleep(0)
    return sorted(touched)


async def tidy(c: Controller) -> None:
    """Freezes the loaded model for the garbage collector once everything is sent: later collections skip it."""
    await c.channels.quiesced(TOLD_S_MAX)
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def arm_parents(c: Controller, since: int) -> None:
    """Watches the children of the znodes that the controller reacts to."""
    await c.zk.watch(children=PARENTS, since_zxid=since)


async def set_up_features(c: Controller) -> None:
    """Writes ``/feature`` as the IBP requires; a znode that others rewrite all the time does not stop the failover."""
    try:
        bad = await cluster_nodes.set_up_features(c.zk, c.ibp.feature_znode_version, c.ibp.features_enabled, c.fence)
    except Contended as contended:
        log.error("%s; it is set up at the next term", contended)
        return
    if bad is not None:
        c.malformed(bad)


async def discard_notifications(c: Controller) -> None:
    """Deletes brokers' notifications for the controller before us: the failover reads everything."""
    for parent in (paths.LOG_DIR_EVENTS, paths.ISR_CHANGES):
        listed = await c.zk.children(parent)
        if listed is not None and listed[0]:
            await discard(c, [f"{parent}/{name}" for name in listed[0]])


async def load_brokers(c: Controller) -> None:
    """Loads the registrations into the model, with a data watch on each."""
    since = c.zk.last_zxid
    found = await c.read_brokers()
    c.departed.began_ms = wall_ms()
    c.enter(BrokersLoaded(found))
    watched = [*(paths.broker(b) for b in found), *c.malformed_below(paths.BROKER_IDS)]
    await c.zk.watch(data=watched, since_zxid=since)


async def load_topics(c: Controller, since: int) -> None:
    """Loads topics and leaderships, some 20,000 partitions at a time, with a data watch on each topic."""
    names = await topic_names(c.zk)
    watched: list[str] = []
    done, count = 0, FIRST_TOPICS
    while done < len(names):
        topics: list[TopicAssignment] = []
        for found in await c.store.load_topics(names[done : done + count]):
            if isinstance(found, MalformedNode):
                c.malformed(found)
            elif found is not None:
                topics.append(found)
        watched += [paths.topic(topic.name) for topic in topics]
        for some in slices(topics):
            await enter(c, some)
        done += count
        count = min(GROWTH_MAX * count, max(1, TURN_ROWS * done // max(done, len(c.cluster.rows))))
    await c.zk.watch(data=[*watched, *c.malformed_below(paths.TOPICS)], since_zxid=since)
    await ask_for_lost_ids(c)


async def load_deletions(c: Controller) -> None:
    """Queues topics with a marker before the first decision, so that no leader is elected for them."""
    listed = await c.zk.children(paths.DELETE_TOPICS)
    queue_markers(c, listed[0] if listed is not None else ())


def slices(topics: list[TopicAssignment]) -> Iterator[list[TopicAssignment]]:
    """Yields topics with at most ``TURN_ROWS`` partitions together; one that has more is alone."""
    some: list[TopicAssignment] = []
    rows = 0
    for topic in topics:
        size = len(topic.partitions)
        if some and rows + size > TURN_ROWS:
            yield some
            some, rows = [], 0
        some.append(topic)
        rows += size
    if some:
        yield some


async def enter(c: Controller, topics: list[TopicAssignment]) -> None:
    """Enters topics and their leaderships into the model, with turns of the loop in between.

    Rows of malformed znodes stay NonExistent, so that no decision touches them.
    """
    rows, found = await bring_in(c, topics, loaded=True)
    for at in range(0, len(rows), TURN_ROWS):
        await asyncio.sleep(0)
        some, states = rows[at : at + TURN_ROWS], found[at : at + TURN_ROWS]
        bad = {i for i, state in zip(some, states, strict=True) if type(state) is MalformedNode}
        understood = [state for state in states if not isinstance(state, MalformedNode)]
        c.enter(StatesLoaded([i for i in some if i not in bad] if bad else some, understood))


async def close_own_znodes(c: Controller, counters: Counters) -> None:
    """Closes what any client may write, and notes for the status what stays open, while the term lasts."""
    if not closes(c.zk):
        return
    may_write = partial(confirm, c.zk, c.fence)

    async def again(before: Closed) -> Closed:
        return await c.until_read(lambda: close_again(c.zk, before, may_write=may_write))

    try:
        await follow(await c.until_read(lambda: close_own(c.zk, may_write)), again, partial(_note, counters))
    except (Fenced, TermEnded, SessionLost):  # the term's own writes find out, too
        return
    finally:
        _note(counters, "")


def _note(counters: Counters, complaint: str) -> None:
    counters.open_znodes = complaint
