"""Paces waves of elections: the next one waits until brokers have acknowledged the changes before it."""

from __future__ import annotations

from typing import Final

from controller.kafka.kinds.environment import KafkaEnv

LOOK_AGAIN_MS: Final = 100
"""Pause of a procedure while brokers are behind."""
BEHIND_S_MAX: Final = 10.0
"""Age of a broker's oldest unacknowledged change after which no procedure waits for it any more."""


def brokers_are_behind(env: KafkaEnv, partitions_max: int) -> bool:
    """Checks whether a broker that can be reached has yet to acknowledge more than so many partitions."""
    lags = env.controller.channels.lag().values()
    return any(lag.partitions > partitions_max and lag.oldest_s < BEHIND_S_MAX and not lag.unreachable for lag in lags)
