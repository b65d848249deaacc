"""Reads ``min.insync.replicas`` of the brokers and of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import Dial
from metadata_store.codecs.base import Malformed
from metadata_store.kafka_store import KafkaStore
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr

CONFIGS_PER_TURN: Final = 1_000
MIN_ISR: Final = "min.insync.replicas"


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
            if isinstance(config, Malformed):
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
