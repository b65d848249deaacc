"""Explains a partition: its state and reasons, what ZooKeeper has otherwise, and its history from the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import anyio
from fastapi import FastAPI, Response
from pydantic import Field

from configs.settings import Settings
from controller.daemon.daemon import Daemon
from controller.http.documents import document
from controller.http.models import Document, Item
from controller.journal import query
from controller.journal.query import history
from controller.journal.segments import folder_in
from controller.kafka.path.controller import STATE_GONE
from controller.kafka.term.term import Term
from controller.operator.brokers import dead
from controller.operator.comparison import CopyDifference, row_with_memory
from controller.operator.partitions import Partition, find_partition, partition_item
from controller.operator.present import Present
from controller.operator.reasons import explain
from controller.role.claim import Role
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import ZooKeeperError
from metadata_store.kafka_store import KafkaStore
from state_machines.journal.events import Row
from state_machines.model.cluster import Cluster

log = logging.getLogger("regent.journal")

LOOKS_MAX: Final = 3
PAUSE_S: Final = 0.3
"""Between two looks: a change that has just been written is no difference."""
GONE: Final = "there", "none"


class HistoryRow(Item):
    """One row of the journal about a partition, in a sentence."""

    at: str = Field(description="UTC")
    controller_epoch: int
    daemon: int
    kind: str
    told: str


class Explanation(Item):
    """State of a partition, its reasons, and the events that would change it, in ordinary sentences."""

    partition: Partition
    state_because: str
    leader_because: str
    isr_because: str
    would_change: list[str] = []
    differs: list[str] = Field([], description="what ZooKeeper has otherwise than the daemon's memory, as verify finds")
    waiting_for: list[int] = Field([], description="brokers that have not acknowledged the last change")
    history: list[HistoryRow] = Field([], description="from this daemon's journal, over all its terms, oldest first")


class ExplainView:
    """Explains partitions of the model."""

    def __init__(self, daemon: Daemon, present: Present) -> None:
        self._daemon = daemon
        self._present = present

    async def explain(self, topic: str, partition: int) -> Explanation:
        """Explains the state, leader and ISR of a partition, with its history from the journal."""
        cluster, term = self._present.cluster(), self._present.term()
        i = find_partition(cluster, topic, partition)
        unclean = term is not None and await self._allows_unclean(term, cluster.rows[i].topic)
        min_isr = self._present.reader.min_isr.of(topic)
        last = term.controller.recent.why(i) if term is not None else None
        since = {b: dead(b, term).when for b in cluster.rows[i].assignment.replicas if b not in cluster.brokers}
        found = explain(cluster, i, unclean=unclean, last=last, min_isr=min_isr, since=since)
        return Explanation(
            partition=partition_item(cluster, i, min_isr),
            state_because=found.state,
            leader_because=found.leader,
            isr_because=found.isr,
            would_change=found.would_change,
            differs=await differences_of(self._daemon.role, cluster, i),
            waiting_for=sorted(term.channels.unacknowledged_by(i)) if term is not None else [],
            history=await history_of(self._daemon.settings, topic, partition),
        )

    def stale(self) -> str | None:
        """Returns why the model may be old; None while it is not."""
        return self._present.stale()

    async def _allows_unclean(self, term: Term, topic: int) -> bool:
        """Reads the topic's setting from ZooKeeper; while that does not answer, takes the daemon's own."""
        try:
            known, _ = await term.controller.unclean.of([topic])
        except ZooKeeperError:
            return self._daemon.settings.controller.unclean_leader_election_enable
        return known[topic]


def add_explanation_route(app: FastAPI, view: ExplainView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/topics/{topic}/partitions/{partition}/explanation", response_model=Document[Explanation])
    async def explanation(topic: str, partition: int) -> Response:
        return document("Explanation", [await view.explain(topic, partition)], stale=view.stale())


async def differences_of(role: Role | None, cluster: Cluster, i: int) -> list[str]:
    """Returns what differs in every look, in sentences; nothing while ZooKeeper does not respond.

    Refusals of brokers are explained by themselves.
    """
    found: list[CopyDifference] = []
    if role is None:
        return []
    for look in range(LOOKS_MAX):
        if look:
            await asyncio.sleep(PAUSE_S)
        try:
            found = await _look(KafkaStore(role.zk), cluster, i)
        except ZooKeeperError:
            return []
        if not found:
            break
    return [_worded(one) for one in found]


async def _look(store: KafkaStore, cluster: Cluster, i: int) -> list[CopyDifference]:
    name = cluster.name(i)
    [topic] = await store.load_topics([name.topic])
    if isinstance(topic, MalformedNode):
        return [CopyDifference(name.topic, name.partition, "topic znode", "readable", topic.why)]
    [state] = await store.load_states([name])
    assignment = topic.partitions.get(name.partition) if topic is not None else None
    return [one for one in row_with_memory(cluster, i, assignment, state) if one.broker is None]


def _worded(found: CopyDifference) -> str:
    if found.field == "state znode" and (found.expected, found.found) == GONE:
        return STATE_GONE
    return f"{found.field} is {found.found} in ZooKeeper, and {found.expected} in the daemon's memory"


async def history_of(settings: Settings, topic: str, partition: int) -> list[HistoryRow]:
    """Reads the journal's files in a thread, because a disk may be slow; empty where they cannot be read."""
    if not settings.journal.enabled:
        return []
    folder = folder_in(settings.state.directory)
    try:
        return history_rows(await anyio.to_thread.run_sync(history, folder, topic, partition))
    except OSError as error:
        log.warning("the journal in %s cannot be read: %s", folder, error)
        return []


def history_rows(rows: Iterable[Row]) -> list[HistoryRow]:
    """Builds items with a sentence for each row of the journal."""
    return [
        HistoryRow(
            at=query.at(row), controller_epoch=row.ctl_epoch, daemon=row.ctl_id, kind=row.kind, told=_of_partition(row)
        )
        for row in rows
    ]


def _of_partition(row: Row) -> str:
    """Describes the event of a partition, or of one of its replicas."""
    return query.sentence(row) if row.broker is None else f"replica on broker {row.broker}: {query.sentence(row)}"
