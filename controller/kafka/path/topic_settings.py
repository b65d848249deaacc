"""Reads two settings of topics that decisions need: whether elections may be unclean, and ``min.insync.replicas``.

ZooKeeper is read in the middle of the decision that needs the policy of unclean elections (S4-82), as by Kafka's
controller: a cached permission that was withdrawn would lose records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import Dial
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import Config
from metadata_store.kafka_store import KafkaStore
from metadata_store.reads import read_broker_configs, read_broker_default
from state_machines.admin_rules.topic_configs import unparsable
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr

UNCLEAN: Final = "unclean.leader.election.enable"
_TRUTHS: Final = {"true": True, "false": False}
CONFIGS_PER_TURN: Final = 1_000
MIN_ISR: Final = "min.insync.replicas"


class UncleanElectionPolicy:
    """Answers :data:`state_machines.machines.partition.Unclean` for one decision at a time.

    A topic that was not read yet counts as not allowed, and is noted. :meth:`read` reads the noted ones, and the
    decision is made again. ``default`` holds where neither the topic nor a dynamic setting of brokers differs.
    """

    def __init__(self, store: KafkaStore, cluster: Cluster, default: bool) -> None:
        self._store = store
        self._cluster = cluster
        self.default = default
        self._known: dict[int, bool] = {}
        self._noted: set[int] = set()

    def __call__(self, topic: int) -> bool:
        """Checks whether a topic (by index) allows unclean elections, as far as this decision knows."""
        known = self._known.get(topic)
        if known is None:
            self._noted.add(topic)
        return bool(known)

    def forget(self) -> None:
        """Forgets the policies: another decision begins."""
        self._known.clear()
        self._noted.clear()

    @property
    def wanted(self) -> bool:
        """Checks whether the decision needs further topics."""
        return bool(self._noted)

    async def read(self, report: Callable[[MalformedNode], None]) -> None:
        """Reads the noted topics; malformed configurations are reported and watched."""
        since = self._store.zk.last_zxid
        known, malformed = await self.of(sorted(self._noted))
        if malformed:
            await self._store.zk.watch(data=[found.path for found in malformed], since_zxid=since)
        for found in malformed:
            report(found)
        self._known.update(known)
        self._noted.clear()

    async def of(self, topics: Iterable[int]) -> tuple[dict[int, bool], list[MalformedNode]]:
        """Returns the policy by topic: its own configuration, else the brokers' dynamic default, else the setting.

        A live broker whose own dynamic configuration forbids it forbids the default: Kafka's controller goes by that of
        the broker it runs on. A configuration that cannot be used allows nothing; it is returned. One of a topic
        is used as a whole or not at all.
        """
        names = {topic: self._cluster.topics[topic].name for topic in topics}
        await self._store.zk.sync(paths.CONFIG)
        shared = await read_broker_default(self._store.zk)
        singly = await read_broker_configs(self._store.zk, self._cluster.brokers)
        read = await self._store.load_topic_configs(list(names.values()))
        found = {name: _usable(name, config) for name, config in read.items()}
        default = said(shared, self.default) and all(said(config, True) for config in singly)
        malformed = [config for config in (shared, *singly, *found.values()) if isinstance(config, MalformedNode)]
        return {topic: said(found[name], default) for topic, name in names.items()}, malformed


def _usable(topic: str, config: Config | MalformedNode) -> Config | MalformedNode:
    """Returns a topic's configuration, or why Kafka's controller could not parse it as a whole."""
    if isinstance(config, MalformedNode):
        return config
    why = unparsable(config.entries)
    if why is None:
        return config
    return MalformedNode(paths.topic_config(topic), f"{why}, until then no replica is elected uncleanly")


def said(config: Config | MalformedNode, default: bool) -> bool:
    """Parses a configuration, ``default`` where it sets nothing; any value but true and false allows nothing."""
    if isinstance(config, MalformedNode):
        return False
    value = config.entries.get(UNCLEAN)
    return default if value is None else _TRUTHS.get(value.strip().lower(), False)


async def read_min_isr(
    store: KafkaStore, dial: Dial, cluster: Cluster, saw: Callable[[str, Mapping[str, str]], None] = lambda *_: None
) -> MinIsr:
    """Queries one live broker for the default and reads the topics' own settings, in turns.

    ``saw`` gets the name and the settings of each topic.
    """
    own: dict[str, int] = {}
    names = list(cluster.topic_index)
    for start in range(0, len(names), CONFIGS_PER_TURN):
        found = await store.load_topic_configs(names[start : start + CONFIGS_PER_TURN])
        for name, config in found.items():
            if isinstance(config, MalformedNode):
                continue
            saw(name, config.entries)
            value = config.entries.get(MIN_ISR)
            if value is not None and value.isdecimal():
                own[name] = int(value)
        await asyncio.sleep(0)
    return MinIsr(await _default(dial, cluster), own)


async def _default(dial: Dial, cluster: Cluster) -> int | None:
    for broker in list(cluster.brokers.values())[:3]:
        try:
            async with dial(broker) as queries:
                value = (await queries.broker_configs(broker.id, [MIN_ISR])).get(MIN_ISR)
        except BrokerCallFailed:
            continue
        if value is not None and value.isdecimal():
            return int(value)
    return None
