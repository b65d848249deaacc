"""Decides whether an operator's throttle can be set: its brokers and topics exist, and its rate is one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from state_machines.admin_rules.throttles import RATE_BYTES_PER_S_MAX
from state_machines.model.cluster import Cluster

BROKERS_MAX: Final = 500
"""Brokers of one throttle: the former values of their settings fit into one record."""
TOPICS_MAX: Final = 100
"""Topics of one throttle."""


def all_brokers(cluster: Cluster) -> tuple[int, ...]:
    """Returns registered brokers and those that host replicas: a broker that is down reads its rate when it starts."""
    return tuple(sorted(cluster.brokers.keys() | cluster.hosts()))


def why_not(
    cluster: Cluster, brokers: Collection[int], topics: Collection[str], rate_bytes_per_s: int
) -> tuple[str, str] | None:
    """Returns why a throttle cannot be set, and what would make it succeed; None where it can."""
    if not 1 <= rate_bytes_per_s <= RATE_BYTES_PER_S_MAX:
        return f"rate_bytes_per_s is {rate_bytes_per_s}", f"give a rate from 1 to {RATE_BYTES_PER_S_MAX}"
    if not brokers:
        return "no broker is registered, and none hosts a replica", "start brokers, or name their ids"
    if len(brokers) > BROKERS_MAX:
        return f"{len(brokers)} brokers are more than the {BROKERS_MAX} of one throttle", "set several throttles"
    if len(topics) > TOPICS_MAX:
        return f"{len(topics)} topics are more than the {TOPICS_MAX} of one throttle", "name fewer topics"
    unknown = sorted(set(brokers) - set(all_brokers(cluster)))
    if unknown:
        return f"brokers {unknown} are not registered and host no replica", "correct the ids"
    absent = sorted(topic for topic in topics if topic not in cluster.topic_index)
    return (f"topics {absent} do not exist", "correct the names") if absent else None
