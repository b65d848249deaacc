"""Reads brokers, topics and partition states in bulk and commits them, on top of any ZooKeeper port.

A znode that cannot be understood is a :class:`MalformedNode` value among the others. Writes are conditional on the
version that was read and fenced by the version of ``/controller_epoch``. Other znodes are in
:mod:`metadata_store.nodes`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import overload

from metadata_store import reads
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import Config
from metadata_store.commits.state_commit import Names, StateOutcome, commit_states
from metadata_store.commits.topic_commit import TopicOutcome, commit_topics, commit_topics_with
from metadata_store.fencing.companion import Companion
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.fencing.outcome import Fence
from metadata_store.port import Op, ZooKeeper
from metadata_store.reads import Brokers
from state_machines.model.decision import Change, TopicChange
from state_machines.model.types import Leadership, TopicAssignment


class KafkaStore:
    """Reads the model of one cluster and commits its changes.

    Every method raises ``NotConnected`` while the port is not connected.
    """

    def __init__(self, zk: ZooKeeper) -> None:
        self.zk = zk

    async def load_brokers(self) -> Brokers:
        """Reads every broker's registration."""
        return await reads.read_brokers(self.zk)

    @overload
    async def load_topics(self) -> list[TopicAssignment | MalformedNode]: ...
    @overload
    async def load_topics(self, names: Sequence[str]) -> list[TopicAssignment | MalformedNode | None]: ...
    async def load_topics(
        self, names: Sequence[str] | None = None
    ) -> list[TopicAssignment | MalformedNode] | list[TopicAssignment | MalformedNode | None]:
        """Reads topics by name, in order, None for an absent one; without names every topic that exists."""
        if names is not None:
            return await reads.read_topics(self.zk, names)
        found = await reads.read_topics(self.zk, await reads.topic_names(self.zk))
        return [topic for topic in found if topic is not None]

    async def load_states(self, partitions: Sequence[tuple[str, int]]) -> list[Leadership | MalformedNode | None]:
        """Reads leaderships in order; None where a partition has no state znode."""
        return await reads.read_states(self.zk, partitions)

    async def load_topic_configs(self, names: Sequence[str]) -> dict[str, Config | MalformedNode]:
        """Reads configurations of topics."""
        return await reads.read_topic_configs(self.zk, names)

    async def reread(self, entities: Sequence[int], names: Names) -> dict[int, Leadership | MalformedNode | None]:
        """Reads the state znodes of row indexes after this server has caught up with the ensemble's leader."""
        await self.zk.sync("/")
        found = await self.load_states([names(entity) for entity in entities])
        return dict(zip(entities, found, strict=True))

    def commit(
        self, changes: Sequence[Change], names: Names, fence: Fence, *, writes_max: int = WRITES_MAX
    ) -> AsyncGenerator[StateOutcome, None]:
        """Writes changes of partitions in fenced multis, at most four under way, and yields each outcome.

        Every change is in exactly one outcome, unless ``Fenced`` or ``NotConnected`` is raised. That happens after
        the last outcome, and a change in no outcome was certainly not applied. ``writes_max=1`` sends singly.
        """
        return commit_states(self.zk, changes, names, fence, writes_max)

    async def commit_topics_with(
        self, changes: Sequence[TopicChange], fence: Fence, companion: Sequence[Op]
    ) -> TopicOutcome:
        """Rewrites topic znodes in one multi with other operations, all or nothing."""
        return await commit_topics_with(self.zk, changes, fence, companion)

    async def commit_topics(
        self,
        changes: Sequence[TopicChange],
        fence: Fence,
        *,
        writes_max: int = WRITES_MAX,
        companions: Mapping[str, Companion] | None = None,
    ) -> TopicOutcome:
        """Rewrites topic znodes; keeps unknown fields, and the topic id where the change has none.

        ``companions``: by topic, each in the multi of its first topic.
        """
        return await commit_topics(self.zk, changes, fence, writes_max, companions)
