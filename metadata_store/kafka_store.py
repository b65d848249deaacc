"""KafkaStore: a Kafka cluster's metadata in ZooKeeper, typed, on top of any ZooKeeper port.

Reads are bulk reads; a znode that cannot be understood is a :class:`Malformed` value among the others. Writes are
conditional on the version that was read and fenced by the version of ``/controller_epoch``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from typing import overload

from metadata_store import reads
from metadata_store.codecs.base import Malformed
from metadata_store.codecs.cluster import ProducerIdBlock
from metadata_store.codecs.config import Config
from metadata_store.codecs.controller import ControllerZnode, Migration
from metadata_store.codecs.features import Features
from metadata_store.commits.state_commit import Names, StateOutcome, commit_states
from metadata_store.commits.topic_commit import TopicOutcome, commit_topics
from metadata_store.commits.topic_creation import CreationOutcome, TopicZnodes, create_topics, read_contexts
from metadata_store.commits.topic_deletion import DeletionOutcome, TopicToDelete, delete_topics, mark_topics
from metadata_store.errors import Code
from metadata_store.fencing.fenced import WRITES_MAX, confirm
from metadata_store.fencing.outcome import Fence, Fenced, MultiOutcome
from metadata_store.nodes import cluster_nodes, reassignment_node
from metadata_store.nodes.cluster_nodes import Contended, Exhausted, Found
from metadata_store.nodes.delegation_tokens import TokenOutcome, delete_tokens, read_tokens, token_ids
from metadata_store.nodes.entity_configs import (
    ConfigChange,
    ConfigOutcome,
    EntityConfig,
    commit_entities,
    read_entities,
)
from metadata_store.nodes.quota_nodes import read_rates
from metadata_store.nodes.reassignment_node import Request
from metadata_store.port import ZooKeeper
from metadata_store.reads import Brokers
from state_machines.admin_rules.create_topics import NewTopic
from state_machines.admin_rules.delegation_tokens import Token
from state_machines.admin_rules.mutation_quotas import Level
from state_machines.model.decision import Change, TopicChange
from state_machines.model.types import Leadership, TopicAssignment, TopicPartition

__all__ = [
    "Brokers",
    "ConfigChange",
    "ConfigOutcome",
    "Contended",
    "CreationOutcome",
    "DeletionOutcome",
    "EntityConfig",
    "Exhausted",
    "Fence",
    "Fenced",
    "Found",
    "KafkaStore",
    "Malformed",
    "MultiOutcome",
    "Names",
    "Request",
    "StateOutcome",
    "TopicOutcome",
    "TopicToDelete",
    "TopicZnodes",
]


class KafkaStore:
    """One cluster. Every method raises ``NotConnected`` while the port is not connected."""

    def __init__(self, zk: ZooKeeper) -> None:
        self.zk = zk

    # -- bulk reads

    async def load_brokers(self) -> Brokers:
        """Every registered broker."""
        return await reads.read_brokers(self.zk)

    async def topic_names(self) -> list[str]:
        """Names of all topics, sorted."""
        return await reads.topic_names(self.zk)

    @overload
    async def load_topics(self) -> list[TopicAssignment | Malformed]: ...
    @overload
    async def load_topics(self, names: Sequence[str]) -> list[TopicAssignment | Malformed | None]: ...
    async def load_topics(
        self, names: Sequence[str] | None = None
    ) -> list[TopicAssignment | Malformed] | list[TopicAssignment | Malformed | None]:
        """Topics by name, in order, None where there is none; without names every topic that exists."""
        if names is not None:
            return await reads.read_topics(self.zk, names)
        found = await reads.read_topics(self.zk, await self.topic_names())
        return [topic for topic in found if topic is not None]

    async def load_states(self, partitions: Sequence[tuple[str, int]]) -> list[Leadership | Malformed | None]:
        """Leaderships in order; None where a partition has no state znode."""
        return await reads.read_states(self.zk, partitions)

    async def load_isr_changes(self, names: Iterable[str]) -> list[list[TopicPartition] | Malformed]:
        """What children of ``/isr_change_notification`` name (IBP below 2.7-IV2)."""
        return await reads.read_isr_changes(self.zk, names)

    async def load_topic_configs(self, names: Sequence[str]) -> dict[str, Config | Malformed]:
        """Configurations of topics."""
        return await reads.read_topic_configs(self.zk, names)

    async def load_broker_default(self) -> Config | Malformed:
        """The dynamic configuration that all brokers share."""
        return await reads.read_broker_default(self.zk)

    async def load_broker_configs(self, brokers: Collection[int]) -> list[Config | Malformed]:
        """The dynamic configurations that single brokers have."""
        return await reads.read_broker_configs(self.zk, brokers)

    async def load_mutation_rates(self, levels: Iterable[Level]) -> tuple[dict[Level, float], list[Malformed]]:
        """Quotas on controller mutations, where they are set."""
        return await read_rates(self.zk, levels)

    async def load_log_dir_events(self, names: Iterable[str]) -> list[int | Malformed]:
        """Brokers that children of ``/log_dir_event_notification`` name."""
        return await reads.read_log_dir_events(self.zk, names)

    async def load_preferred_election(self) -> Found[list[TopicPartition]] | Malformed | None:
        """What ``/admin/preferred_replica_election`` asks for."""
        return await cluster_nodes.read_preferred_election(self.zk)

    async def reread(self, entities: Sequence[int], names: Names) -> dict[int, Leadership | Malformed | None]:
        """State znodes of row indexes, caught up with the ensemble's leader before."""
        await self.zk.sync("/")
        found = await self.load_states([names(entity) for entity in entities])
        return dict(zip(entities, found, strict=True))

    # -- commits

    def commit(
        self, changes: Sequence[Change], names: Names, fence: Fence, *, writes_max: int = WRITES_MAX
    ) -> AsyncGenerator[StateOutcome, None]:
        """Writes changes of partitions in fenced multis, at most four under way, and yields each outcome.

        Every change is in exactly one outcome, unless ``Fenced`` or ``NotConnected`` is raised: that happens after
        the last outcome, and what is in none of them was certainly not applied. ``writes_max=1`` sends singly.
        """
        return commit_states(self.zk, changes, names, fence, writes_max)

    async def commit_topics(
        self, changes: Sequence[TopicChange], fence: Fence, *, writes_max: int = WRITES_MAX
    ) -> TopicOutcome:
        """Rewrites topic znodes; keeps unknown fields, and the topic id where the change has none."""
        return await commit_topics(self.zk, changes, fence, writes_max)

    async def confirm(self, fence: Fence) -> None:
        """Returns if nobody else has been elected so far; for what is told without having been written."""
        await confirm(self.zk, fence)

    async def delete_topics(self, topics_to_delete: Sequence[TopicToDelete], fence: Fence) -> DeletionOutcome:
        """Deletes everything of topics, their configurations and markers last."""
        return await delete_topics(self.zk, topics_to_delete, fence)

    async def mark_topics(self, names: Sequence[str], fence: Fence) -> list[tuple[str, Code]]:
        """Marks topics for deletion; returns those that could not be, with the reason."""
        return await mark_topics(self.zk, names, fence)

    async def read_contexts(self, names: Sequence[str]) -> dict[str, TopicZnodes]:
        """What is there already where topics are to be."""
        await self.zk.sync("/")
        return await read_contexts(self.zk, names)

    async def create_topics(
        self, topics: Iterable[tuple[NewTopic, int | None]], fence: Fence, *, writes_max: int = WRITES_MAX
    ) -> CreationOutcome:
        """Creates topics, each with the version of the configuration that it replaces."""
        return await create_topics(self.zk, topics, fence, writes_max)

    async def read_configs(self, kind: str, names: Sequence[str]) -> dict[str, EntityConfig | Malformed]:
        """Configurations of entities of one kind, by name."""
        await self.zk.sync("/")
        return await read_entities(self.zk, kind, names)

    async def commit_configs(self, kind: str, changes: Iterable[ConfigChange], fence: Fence) -> ConfigOutcome:
        """Writes configurations of entities and tells the brokers of them."""
        return await commit_entities(self.zk, kind, changes, fence)

    async def token_ids(self) -> list[str]:
        """Ids of all delegation tokens."""
        return await token_ids(self.zk)

    async def load_tokens(self, ids: Sequence[str]) -> list[Token | Malformed]:
        """Delegation tokens, those that exist."""
        return await read_tokens(self.zk, ids)

    async def delete_tokens(self, tokens: Sequence[Token], fence: Fence, *, ops_max: int = WRITES_MAX) -> TokenOutcome:
        """Deletes delegation tokens as they were read and tells the brokers."""
        return await delete_tokens(self.zk, tokens, fence, ops_max=ops_max)

    # -- role

    async def read_epoch(self) -> Found[int] | None:
        """``/controller_epoch``."""
        return await cluster_nodes.read_epoch(self.zk)

    async def read_controller(self) -> Found[ControllerZnode] | None:
        """``/controller``."""
        return await cluster_nodes.read_controller(self.zk)

    async def read_migration(self) -> Found[Migration] | None:
        """``/migration``."""
        return await cluster_nodes.read_migration(self.zk)

    # -- the cluster

    async def ensure_top_level_paths(self) -> None:
        """Creates the parents that every broker creates."""
        await cluster_nodes.ensure_top_level_paths(self.zk)

    async def read_cluster_id(self) -> str | Malformed | None:
        """Id of the cluster."""
        return await cluster_nodes.read_cluster_id(self.zk)

    async def ensure_cluster_id(self, cluster_id: str) -> str | Malformed:
        """Writes the id where there is none; returns the one that holds."""
        return await cluster_nodes.ensure_cluster_id(self.zk, cluster_id)

    async def read_features(self) -> Found[Features] | None:
        """``/feature``."""
        return await cluster_nodes.read_features(self.zk)

    async def set_up_features(self, version: int, enabled: bool, fence: Fence) -> Malformed | None:
        """Brings ``/feature`` to what the IBP asks for."""
        return await cluster_nodes.set_up_features(self.zk, version, enabled, fence)

    async def delete_features(self, names: Collection[str], fence: Fence) -> None:
        """Takes finalised features out of ``/feature``."""
        await cluster_nodes.delete_features(self.zk, names, fence)

    async def allocate_producer_ids(self, broker: int, fence: Fence) -> ProducerIdBlock | Malformed:
        """The next block of producer ids for a broker."""
        return await cluster_nodes.allocate_producer_ids(self.zk, broker, fence)

    async def delete_children(self, children: Sequence[str], fence: Fence) -> None:
        """Deletes notifications that were processed."""
        await cluster_nodes.delete_children(self.zk, children, fence)

    async def read_reassignments(self) -> Request | Malformed | None:
        """``/admin/reassign_partitions``."""
        return await reassignment_node.read_reassignments(self.zk)

    async def write_reassignments(self, left: Request, fence: Fence) -> bool:
        """What is left of ``/admin/reassign_partitions``."""
        return await reassignment_node.write_reassignments(self.zk, left, fence)

    async def delete_as_read(self, path: str, version: int, fence: Fence) -> Code | None:
        """Deletes a znode that was read at ``version``; None where that was done, else why not."""
        return await cluster_nodes.delete_as_read(self.zk, path, version, fence)

    async def create_topic(
        self,
        name: str,
        assignment: Mapping[int, Sequence[int]],
        topic_id: bytes | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Writes the znodes of a new topic as a broker's auto-creation does."""
        await cluster_nodes.create_topic(self.zk, name, assignment, topic_id, config)

    async def delete_fresh_topic(self, name: str, version: int, fence: Fence) -> bool:
        """Deletes a topic of which nothing was started."""
        return await cluster_nodes.delete_fresh_topic(self.zk, name, version, fence)
