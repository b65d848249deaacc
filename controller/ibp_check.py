"""Whether brokers have the IBP that the daemon is set to: asked at each registration, beside the queue.

A difference is a warning and a metric: requests follow the setting, as with Kafka's own controller.
"""

from __future__ import annotations

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


async def compare_ibp(ask: Ask, cluster: Cluster, brokers: Collection[int], ibp: Ibp, counters: Counters) -> None:
    """Asks ``brokers`` for their IBP; one that does not answer is asked again at its next registration."""

    async def question(asked: Asked, broker: Broker) -> str | None:
        return (await asked.broker_configs(broker.id, [SETTING])).get(SETTING)

    known = {broker: cluster.brokers[broker] for broker in brokers if broker in cluster.brokers}
    for broker, found in (await ask_each(ask, known, question)).items():
        counters.lowered_ibp_brokers.discard(broker)
        if isinstance(found, str) and not _same(found, ibp):
            counters.lowered_ibp_brokers.add(broker)
            log.warning(
                "broker %d has %s %s, controller.ibp is %s: set them alike, the brokers first when raising it",
                broker,
                SETTING,
                found,
                ibp,
            )
        elif isinstance(found, BrokerCallFailed):
            log.info("the IBP of broker %d is not known: %s", broker, found)


def _same(found: str, ibp: Ibp) -> bool:
    try:
        return Ibp.parse(found) == ibp
    except UnknownIbp:
        return False
