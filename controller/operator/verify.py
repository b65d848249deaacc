"""Verifies that ZooKeeper, the model of an active daemon and every live broker's metadata agree.

The cluster changes meanwhile, so differing topics are compared again for a settling time, and only a topic that
differed each time is reported. The event loop turns between chunks of partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from fastapi import FastAPI, Response
from msgspec import Struct
from pydantic import Field

from brokers.client import BrokerCallFailed, ClusterMetadata
from brokers.queries import BrokerQueries, Dial
from brokers.wire.versions import TOPIC_IDS_SENT, Ibp
from controller.daemon.daemon import Daemon
from controller.http.documents import NotActive, ViewRefused, document
from controller.http.models import Document, Item
from controller.kafka.topics.ghosts import COMPARED_MAX
from controller.operator.comparison import (
    WHOLE_TOPIC,
    CopyDifference,
    Findings,
    Liveness,
    States,
    unsettled,
    with_cluster_metadata,
    with_memory,
    with_metadata,
)
from controller.operator.present import Present
from controller.role.claim import Role
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import read_cluster_id
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker, TopicAssignment, TopicPartition

SETTLE_S: Final = 5.0
"""Time for which a difference is compared again before it counts."""
PAUSE_S: Final = 0.5
CHUNK_PARTITIONS_MAX: Final = 1_000
CHUNK_TOPICS_MAX: Final = 200
STRAYS_PARTITIONS_MAX: Final = 5_000
"""Up to this size, or ``COMPARED_MAX``, queries of brokers cover all topics, which finds those that they alone know."""


class Difference(Item):
    """A field of a partition that two places hold differently. ``broker`` is absent for ZooKeeper itself."""

    topic: str
    partition: int
    field: str
    expected: str = Field(description="in the daemon's memory")
    found: str
    broker: int | None = None


class Verification(Item):
    """ZooKeeper, the daemon's memory and every broker's metadata, compared."""

    memory: bool = Field(False, description="whether the memory was compared: only an active daemon has one")
    partitions: int
    brokers: list[int]
    unreachable: list[int] = []
    differences: list[Difference] = []
    differences_total: int = 0

    @property
    def clean(self) -> bool:
        """Returns whether everything was compared and nothing differs."""
        return not self.differences_total and not self.unreachable


class VerifyView:
    """Verifies at the request of operators, one at a time."""

    def __init__(self, daemon: Daemon, present: Present, dial: Dial) -> None:
        self._daemon = daemon
        self._present = present
        self._dial = dial
        self._running = False

    async def verify(self) -> Verification:
        """Compares ZooKeeper, the model and every broker's metadata."""
        if self._running:
            raise ViewRefused("a verification is running already", "wait for it, then try again")
        self._running = True
        try:
            return await self._verified()
        finally:
            self._running = False

    async def _verified(self) -> Verification:
        role = self._daemon.role
        if role is None:
            raise NotActive("this daemon has no ZooKeeper session", "wait until it is connected, then try again")
        term = self._present.term()
        memory = term.cluster if term is not None else None
        found = verification(await verify(role, self._dial, self._daemon.ibp, memory=memory))
        return found.model_copy(update={"memory": memory is not None})


def add_verification_route(app: FastAPI, view: VerifyView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/verification", response_model=Document[Verification])
    async def verification() -> Response:
        return document("Verification", [await view.verify()])


def verification(verdict: Verdict) -> Verification:
    """Builds the response of a verification."""
    return Verification(
        partitions=verdict.partitions,
        brokers=verdict.brokers,
        unreachable=sorted(verdict.unreachable),
        differences=[_difference(found) for found in verdict.differences],
        differences_total=verdict.total,
    )


def _difference(found: CopyDifference) -> Difference:
    return Difference(
        topic=found.topic or "(cluster)",
        partition=found.partition,
        field=found.field,
        expected=found.expected,
        found=found.found,
        broker=found.broker,
    )


class Verdict(Struct, frozen=True):
    """Result of a verification. ``unreachable``: by broker why its metadata could not be compared."""

    partitions: int
    brokers: list[int]
    unreachable: Mapping[int, str]
    differences: list[CopyDifference]
    total: int

    @property
    def clean(self) -> bool:
        """Returns whether everything was compared and nothing differs."""
        return not self.total and not self.unreachable


async def verify(
    role: Role, dial: Dial, ibp: Ibp, *, memory: Cluster | None = None, settle_s: float = SETTLE_S
) -> Verdict:
    """Compares everything; raises ZooKeeperError. ``memory`` is the active daemon's model."""
    async with AsyncExitStack() as stack:
        return await _Verifier(role, dial, ibp, memory, stack).run(settle_s)


class _Verifier:
    def __init__(self, role: Role, dial: Dial, ibp: Ibp, memory: Cluster | None, stack: AsyncExitStack) -> None:
        self._role = role
        self._store = KafkaStore(role.zk)
        self._dial = dial
        self._ids_sent = ibp >= TOPIC_IDS_SENT
        self._memory = memory
        self._stack = stack
        self._queries: dict[int, tuple[int, BrokerQueries]] = {}
        self._unreachable: dict[int, str] = {}
        self._brokers: Mapping[int, Broker] = {}
        self._partitions = 0

    async def run(self, settle_s: float) -> Verdict:
        """Compares everything once, then the differing topics until they agree or the settling time is over."""
        names = await self._all_topics()
        findings = await self._pass(names)
        partitions = self._partitions
        few = partitions <= STRAYS_PARTITIONS_MAX or partitions * len(self._brokers) <= COMPARED_MAX
        await self._compare_whole(findings, frozenset(names) if few else None)
        settled_s = time.monotonic() + settle_s
        while (findings.total or self._unreachable) and time.monotonic() < settled_s:
            await asyncio.sleep(PAUSE_S)
            before, findings = findings, await self._pass(list(findings.topics))
            if before.whole:
                await self._compare_whole(findings, None)
        return Verdict(partitions, sorted(self._brokers), dict(self._unreachable), findings.listed, findings.total)

    async def _all_topics(self) -> list[str]:
        listed = await self._role.zk.children(paths.TOPICS)
        names = set(listed[0]) if listed is not None else set()
        return sorted(names | set(self._memory.topic_index)) if self._memory is not None else sorted(names)

    async def _pass(self, names: Sequence[str]) -> Findings:
        findings = Findings()
        await self._role.zk.sync()
        self._brokers = (await self._store.load_brokers()).brokers
        await self._connect()
        names = await self._kept(names)
        self._partitions = 0
        for start in range(0, len(names), CHUNK_TOPICS_MAX):
            chosen = names[start : start + CHUNK_TOPICS_MAX]
            found = await self._store.load_topics(chosen)
            for chunk in _chunks(list(zip(chosen, found, strict=True))):
                await self._compare(chunk, findings)
        return findings

    async def _kept(self, names: Sequence[str]) -> Sequence[str]:
        """Leaves out topics that are being deleted: brokers forget those first, znodes go last."""
        marked = await self._role.zk.children(paths.DELETE_TOPICS)
        deleting = frozenset(marked[0]) if marked is not None else frozenset[str]()
        return [name for name in names if name not in deleting] if deleting else names

    # -- topics

    async def _compare(
        self, chunk: Sequence[tuple[str, TopicAssignment | MalformedNode | None]], findings: Findings
    ) -> None:
        topics = {name: found for name, found in chunk if not isinstance(found, MalformedNode)}
        findings.add(
            CopyDifference(name, WHOLE_TOPIC, "topic znode", "readable", found.why)
            for name, found in chunk
            if isinstance(found, MalformedNode)
        )
        states = await self._states(topics)
        self._partitions += sum(len(found.partitions) for found in topics.values() if found is not None)
        liveness = self._liveness()
        for name, topic in topics.items():
            if topic is not None:
                findings.add(unsettled(topic, states[name], liveness))
            if self._memory is not None:
                findings.add(with_memory(name, topic, states[name], self._memory))
        for broker, seen in (await self._metadata(list(topics))).items():
            for name, topic in topics.items():
                findings.add(
                    with_metadata(
                        broker, name, topic, states[name], seen.topics.get(name), liveness, ids_sent=self._ids_sent
                    )
                )
            await asyncio.sleep(0)

    async def _states(self, topics: Mapping[str, TopicAssignment | None]) -> dict[str, States]:
        pairs = [TopicPartition(n, p) for n, found in topics.items() if found is not None for p in found.partitions]
        found: dict[str, dict[int, object]] = {name: {} for name in topics}
        for pair, state in zip(pairs, await self._store.load_states(pairs), strict=True):
            found[pair.topic][pair.partition] = state
        return found  # type: ignore[return-value]

    def _liveness(self) -> Liveness:
        registered = frozenset(self._brokers)
        leaving = self._memory.shutting_down if self._memory is not None else frozenset()
        return Liveness(registered, registered - leaving)

    # -- brokers

    async def _connect(self) -> None:
        """Opens one connection for each incarnation; the next pass tries unreachable brokers again."""
        self._unreachable.clear()
        for broker in self._brokers.values():
            known = self._queries.get(broker.id)
            if known is None or known[0] != broker.epoch:
                try:
                    self._queries[broker.id] = (
                        broker.epoch,
                        await self._stack.enter_async_context(self._dial(broker)),
                    )
                except BrokerCallFailed as failed:
                    self._queries.pop(broker.id, None)
                    self._unreachable[broker.id] = str(failed)

    async def _metadata(self, topics: Sequence[str] | None) -> dict[int, ClusterMetadata]:
        """Queries the metadata of every broker; one that does not answer is unreachable from here on."""

        async def query(broker: int, queries: BrokerQueries) -> ClusterMetadata | None:
            try:
                return await queries.metadata(topics)
            except BrokerCallFailed as failed:
                self._unreachable[broker] = str(failed)
                self._queries.pop(broker, None)
                return None

        present = {b: queries for b, (_, queries) in self._queries.items() if b in self._brokers}
        responses = await asyncio.gather(*(query(broker, queries) for broker, queries in present.items()))
        return {b: found for b, found in zip(present, responses, strict=True) if found is not None}

    async def _compare_whole(self, findings: Findings, topics: frozenset[str] | None) -> None:
        """Compares every broker's metadata of the cluster; where ``topics`` are given, reports any other topic, too."""
        holder, _ = await self._role.controller()
        holds = holder.broker if holder is not None else -1
        by_daemon = holder is not None and await self._role.is_daemon(holder)
        live = frozenset(self._brokers) | (frozenset({holds}) if by_daemon else frozenset())
        cluster_id = await read_cluster_id(self._store.zk)
        for broker, seen in (await self._metadata(None if topics is not None else ())).items():
            findings.add(with_cluster_metadata(broker, seen, holds, live, cluster_id))
            strays = sorted(seen.topics.keys() - topics) if topics is not None else ()
            findings.add(CopyDifference(name, WHOLE_TOPIC, "topic", "unknown", "known", broker) for name in strays)


def _chunks(
    found: Sequence[tuple[str, TopicAssignment | MalformedNode | None]],
) -> Iterator[list[tuple[str, TopicAssignment | MalformedNode | None]]]:
    """Yields topics with at most ``CHUNK_PARTITIONS_MAX`` partitions together; a larger topic is its own chunk."""
    chunk: list[tuple[str, TopicAssignment | MalformedNode | None]] = []
    size = 0
    for name, topic in found:
        count = len(topic.partitions) if isinstance(topic, TopicAssignment) else 0
        if chunk and size + count > CHUNK_PARTITIONS_MAX:
            yield chunk
            chunk, size = [], 0
        chunk.append((name, topic))
        size += count
    if chunk:
        yield chunk
