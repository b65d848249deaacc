"""Models for tests of pages and counts."""

from __future__ import annotations

from state_machines.model.cluster import Cluster
from tests.core.model import P, make_cluster, topic


def several(topics: int, partitions: int) -> Cluster:
    """Builds topics t00, t01, ... on three brokers; the second partition of each lacks broker 3 in its ISR."""
    cluster = make_cluster()
    for number in range(topics):
        rows = cluster.observe_topic(topic(f"t{number:02}", [(1, 2, 3)] * partitions))
        found = [P((1, 2, 3), leader=1, isr=(1, 2) if p == 1 else ()).leadership() for p in range(partitions)]
        cluster.load_leadership(rows, found)
    return cluster
