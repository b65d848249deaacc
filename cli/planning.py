"""Makes reassign plans without a daemon: reads ZooKeeper, and the sizes of replicas from brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from brokers.client import BrokerCallFailed
from brokers.queries import QUERIES_AT_ONCE_MAX, Dial, dial_for
from cli.exit_codes import Exit, Failure
from cli.offline import role_at
from configs.settings import Settings
from controller.kafka.path.topic_settings import read_min_isr
from controller.role.claim import Role
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import read_cluster_id
from metadata_store.nodes.cordon_node import Cordon, read_cordons
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker, TopicAssignment
from state_machines.planning.cluster_view import DRAINED, ClusterView, view_of
from state_machines.planning.goals import Goal, Topics
from state_machines.planning.plan import Plan
from state_machines.planning.planner import plan

Warn = Callable[[str], None]
Sizes = dict[tuple[str, int], int]


async def make_plan(settings: Settings, goal: Goal, warn: Warn, *, sizes: bool) -> Plan:
    """Plans for the present cluster; raises :class:`Failure` where ZooKeeper cannot be read."""
    async with role_at(settings) as role:
        view = await read_view(role, dial_for(settings), warn, sizes=sizes)
    return plan(view, goal)


async def make_balance(settings: Settings, topics: Topics, warn: Warn, *, sizes: bool) -> Plan:
    """Balances the present cluster by the planner of the pipeline, which needs NumPy and Numba.

    Raises :class:`Failure` where ZooKeeper cannot be read.
    """
    from pipeline.planner.view import balanced

    async with role_at(settings) as role:
        view = await read_view(role, dial_for(settings), warn, sizes=sizes)
    return balanced(view, topics)


async def read_view(role: Role, dial: Dial, warn: Warn, *, sizes: bool) -> ClusterView:
    """Reads brokers, topics and settings from ZooKeeper, and with ``sizes`` the logs of every live broker."""
    store, cluster = KafkaStore(role.zk), Cluster(daemons=await role.daemons())
    cluster_id = await read_cluster_id(role.zk)
    if not isinstance(cluster_id, str):
        raise Failure(Exit.FAILED, f"{paths.CLUSTER_ID} names no cluster", "start a broker, or correct the chroot")
    cluster.observe_brokers((await store.load_brokers()).brokers)
    for topic in await store.load_topics():
        if isinstance(topic, TopicAssignment):
            cluster.observe_topic(topic)
        else:
            warn(f"{topic.path} cannot be read and is left out: {topic.why}")
    marked = await role.zk.children(paths.DELETE_TOPICS)
    cluster.observe_deletions(marked[0] if marked is not None else ())
    known = await read_min_isr(store, dial, cluster)
    if known.default is None:
        warn("no broker has sent min.insync.replicas: topics without an own value count as having 1")
    min_isr = {name: value for name in cluster.topic_index if (value := known.of(name)) is not None}
    found = await read_sizes(dial, cluster.brokers.values(), warn) if sizes else None
    return view_of(cluster, cluster_id, sizes=found, min_isr=min_isr, cordoned=await _cordoned(role, warn))


async def _cordoned(role: Role, warn: Warn) -> dict[int, str]:
    """Returns the marks of brokers in words."""
    found = await read_cordons(role.zk)
    if isinstance(found, MalformedNode):
        warn(f"{found.path} cannot be read, no broker counts as cordoned: {found.why}")
        return {}
    return {broker: _in_words(mark) for broker, mark in found.brokers.items()}


def _in_words(mark: Cordon) -> str:
    """Words a mark so that it follows "is"; a drain is named, because ``undrain`` removes it."""
    by, since_ms, reason = mark.principal, mark.since_ms, mark.reason
    if mark.drain is not None:
        by, since_ms, reason = mark.drain.principal, mark.drain.since_ms, mark.drain.reason
    since = f" since {datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC" if since_ms else ""
    kind = "cordoned" if mark.drain is None else DRAINED
    return f"{kind}{since}{f' by {by}' if by else ''}{f' ({reason})' if reason else ''}"


async def read_sizes(dial: Dial, brokers: Iterable[Broker], warn: Warn) -> Mapping[tuple[str, int], int]:
    """Queries brokers for the sizes of their replicas; the largest replica of a partition counts."""
    found: Sizes = {}
    slots = asyncio.Semaphore(QUERIES_AT_ONCE_MAX)

    async def query(broker: Broker) -> None:
        try:
            async with slots, dial(broker) as queries:
                for directory in await queries.replica_logs(None):
                    for log in directory.logs:
                        if not log.is_future:
                            key = log.topic, log.partition
                            found[key] = max(found.get(key, 0), log.size_bytes)
        except BrokerCallFailed as error:
            warn(f"broker {broker.id} sends no sizes of its replicas: {error}")

    await asyncio.gather(*map(query, brokers))
    return found
