"""Whether brokers have the IBP that the daemon is set to: asked at each registration, beside the queue.

A difference is a warning and a metric: requests follow the setting, as with Kafka's own controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.wire.versions import Ibp, UnknownIbp
from controller.counters import Counters
from controller.questions import Ask, Asked, ask_each
from state_machines.cluster import Cluster
from state_machines.types import Broker

log = logging.getLogger("regent.controller")

SETTING: Final = "inter.broker.protocol.version"
TRIES_MAX: Final = 30
PAUSE_S: Final = 1.0


async def compare_ibp(ask: Ask, cluster: Cluster, brokers: Collection[int], ibp: Ibp, counters: Counters) -> None:
    """Asks ``brokers`` for their IBP, again and again while they do not answer: they register before they listen."""

    async def question(asked: Asked, broker: Broker) -> str | None:
        return (await asked.broker_configs(broker.id, [SETTING])).get(SETTING)

    waiting = {broker: cluster.brokers[broker] for broker in brokers if broker in cluster.brokers}
    failed: dict[int, BrokerCallFailed] = {}
    for _ in range(TRIES_MAX):
        failed.clear()
        for broker, found in (await ask_each(ask, waiting, question)).items():
            if isinstance(found, BrokerCallFailed):
                failed[broker] = found
            else:
                _judge(broker, found, ibp, counters)
        waiting = {b: known for b, known in waiting.items() if b in failed and cluster.brokers.get(b) is known}
        if not waiting:
            return
        await asyncio.sleep(PAUSE_S)
    for broker in waiting:
        log.info("the IBP of broker %d is not known: %s", broker, failed[broker])


def _judge(broker: int, found: str | None, ibp: Ibp, counters: Counters) -> None:
    counters.lowered_ibp_brokers.discard(broker)
    if found is not None and not _same(found, ibp):
        counters.lowered_ibp_brokers.add(broker)
        log.warning(
            "broker %d has %s %s, controller.ibp is %s: set them alike, the brokers first when raising it",
            broker,
            SETTING,
            found,
            ibp,
        )


def _same(found: str, ibp: Ibp) -> bool:
    try:
        return Ibp.parse(found) == ibp
    except UnknownIbp:
        return False
