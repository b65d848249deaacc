"""Compares the IBP of each broker with that of the daemon.

A difference is a warning and a metric: requests follow the setting, as with Kafka's own controller.
"""

from __future__ import annotations

import logging
from typing import Final

from brokers.wire.versions import Ibp, UnknownIbp
from controller.metrics.counters import Counters

log = logging.getLogger("regent.controller")

IBP: Final = "inter.broker.protocol.version"


def judge_ibp(broker: int, found: str | None, ibp: Ibp, counters: Counters) -> None:
    """Counts a broker that has another IBP, and warns of it."""
    counters.lowered_ibp_brokers.discard(broker)
    if found is not None and not _same(found, ibp):
        counters.lowered_ibp_brokers.add(broker)
        log.warning(
            "broker %d has %s %s, the daemon took office at %s: set them alike, the brokers first when raising it; "
            "without controller.ibp the daemon that takes office next adopts the lowest one",
            broker,
            IBP,
            found,
            ibp,
        )


def _same(found: str, ibp: Ibp) -> bool:
    try:
        return Ibp.parse(found) == ibp
    except UnknownIbp:
        return False
