"""Rewrites topic znodes, for reassignments and topic ids.

Commits the changes, observes those applied, and reads back those that conflicted or whose outcome is unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Final

from controller.kafka.path.conflict_rounds import ConflictRounds
from controller.kafka.path.controller import CONTENDED, Controller
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.commits.topic_commit import TopicOutcome
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.fencing.rider import Rider
from state_machines.decisions.topic_change import taken_out
from state_machines.model.decision import TopicChange
from state_machines.model.topic_facts import AssignmentsRead, TopicIdRead, TopicIdWritten
from state_machines.model.types import Assignment, TopicAssignment

log = logging.getLogger("regent.controller")

TOGETHER_MAX: Final = 3
"""Rounds in which znodes share multis."""
ALONE_MAX: Final = 7
"""Rounds in which a multi writes one znode. A round that a lost connection interrupts does not count."""
GONE: Final = "the topic is gone"


Riding = Callable[[], Awaitable[Rider | None]]
"""Returns what goes along with the next write."""


async def rewrite_topics(
    c: Controller,
    plan: Callable[[], Sequence[TopicChange]],
    purpose: str = "reassignment",
    riding: Riding | None = None,
) -> dict[str, str]:
    """Writes the changes that ``plan`` returns: calls it before each round, until it returns none.

    ``riding``: called before each write. Returns the topics that cannot be written, with the reasons, and counts them
    under ``purpose``. Raises Fenced and TermEnded.
    """
    failed: dict[str, str] = {}

    def wanted() -> list[TopicChange]:
        return [change for change in plan() if change.topic not in failed]

    rounds = ConflictRounds(TOGETHER_MAX, alone=ALONE_MAX)
    for writes_max in rounds:
        changes = wanted()
        if not changes:
            break
        await c.connected()
        rider = await riding() if riding is not None else None
        riders = dict.fromkeys((change.topic for change in changes), rider) if rider is not None else None
        try:
            outcome = await c.store.commit_topics(changes, c.fence, writes_max=writes_max, riders=riders)
        except (NotConnected, OutcomeUnknown):
            c.gate.check()
            rounds.repeat()
            continue
        await observe_rewrites(c, changes, outcome)
        failed.update(_beyond_retry(outcome))
    else:
        failed.update((change.topic, CONTENDED) for change in wanted())
    _log_and_count(c, failed, purpose)
    return failed


async def observe_rewrites(c: Controller, changes: Sequence[TopicChange], outcome: TopicOutcome) -> None:
    """Observes applied changes, and reads topics back that conflicted or whose outcome is unknown."""
    c.gate.check()
    c.counters.commits += 1
    c.counters.writes += len(outcome.applied)
    for change in outcome.applied:
        c.enter(AssignmentsRead(change.topic, change.version + 1, change.partitions))
        if change.topic_id is not None:
            c.enter(TopicIdWritten(change.topic, change.topic_id))
    if unsettled := outcome.unsettled:
        c.counters.conflicts += len(outcome.conflicts)
        c.counters.unknown_outcomes += len(outcome.unknown)
        await _read_back(c, [change for change in changes if change.topic in unsettled])


async def _read_back(c: Controller, changes: Sequence[TopicChange]) -> None:
    """Reads the topics of ``changes``, and observes the partitions that were to be written."""
    names = [change.topic for change in changes]

    async def read() -> list[TopicAssignment | Malformed | None]:
        await c.zk.sync(paths.TOPICS)
        return await c.store.load_topics(names)

    found = await c.until_read(read)
    for change, topic in zip(changes, found, strict=True):
        if isinstance(topic, TopicAssignment) and topic.czxid == change.czxid:
            cut = taken_out(c.cluster, topic)
            known = {
                p: a for p, a in topic.partitions.items() if p in change.partitions and _is_trusted(change, p, a, cut)
            }
            c.enter(AssignmentsRead(topic.name, topic.version, known))
            c.enter(TopicIdRead(topic.name, topic.topic_id))


def _is_trusted(change: TopicChange, partition: int, found: Assignment, cut: Container[int]) -> bool:
    """Returns whether the model takes ``found``: regent wrote it, or no other writer cut the reassignment out."""
    return found == change.partitions[partition] or partition not in cut


def _beyond_retry(outcome: TopicOutcome) -> dict[str, str]:
    """Returns the topics that a retry cannot write, with the reasons."""
    refused = {
        topic: f"ZooKeeper refused the write ({code.name}): check jute.maxbuffer and the znode's ACL"
        for topic, code in outcome.refused
    }
    return {**dict.fromkeys(outcome.gone, GONE), **refused}


def _log_and_count(c: Controller, failed: dict[str, str], purpose: str) -> None:
    """Logs and counts the topics that could not be written, except those deleted meanwhile."""
    found = [(topic, why) for topic, why in failed.items() if why != GONE]
    for topic, why in found[:1]:
        log.error("%d topic znodes could not be rewritten, the first is %s: %s", len(found), paths.topic(topic), why)
    for _, why in found:
        c.counters.failures[f"{purpose}: {why}"] += 1
