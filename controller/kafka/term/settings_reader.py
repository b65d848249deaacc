"""Reads the settings of registered brokers, beside the queue: when a term begins and at each registration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import RESPONSE_S_MAX, BrokerQueries, Dial, query_each
from controller.kafka.path.adoption import ASKED
from state_machines.admin_rules.broker_settings import Reported
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker

log = logging.getLogger("regent.controller")

TRIES_MAX: Final = 30
PAUSE_S: Final = 1.0


async def query_settings(
    dial: Dial, cluster: Cluster, brokers: Collection[int], heard: Callable[[Broker, Reported], None]
) -> None:
    """Queries ``brokers`` until each responds: they register before they listen.

    ``heard`` takes each response at once, unless another registration has taken the broker's place.
    """

    async def query(queries: BrokerQueries, broker: Broker) -> None:
        told = await queries.static_configs(broker.id, ASKED)
        if _same(cluster, broker):
            heard(broker, told)

    waiting = {broker: cluster.brokers[broker] for broker in brokers if broker in cluster.brokers}
    failed: dict[int, BrokerCallFailed] = {}
    for _ in range(TRIES_MAX):
        answers = await query_each(dial, waiting, query, RESPONSE_S_MAX)
        failed = {broker: found for broker, found in answers.items() if isinstance(found, BrokerCallFailed)}
        waiting = {b: known for b, known in waiting.items() if b in failed and _same(cluster, known)}
        if not waiting:
            return
        await asyncio.sleep(PAUSE_S)
    for broker in waiting:
        log.warning(
            "broker %d does not report its settings (%s): earlier reports hold, and where nothing is known the "
            "strictest value. Remedy: allow this daemon's user DescribeConfigs on the cluster there, or set the "
            "controller.* keys (regent config show names them); its next registration repeats the query",
            broker,
            failed[broker],
        )


def _same(cluster: Cluster, broker: Broker) -> bool:
    """Checks whether the registration still stands."""
    found = cluster.brokers.get(broker.id)
    return found is not None and found.epoch == broker.epoch
