"""Decides the throttle of a plan between two bounds: it rises while replicas keep up, and is halved when one does not.

Copies take from the same disks and networks as replication. A replica that falls out of the ISR while its broker lives
is the first sign that they take too much; producers with acks=all wait once a partition is below its min ISR. Replicas
on dead brokers, and those that moves add, say nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import under
from state_machines.model.types import PartitionRow, PartitionState, TopicPartition

STEP_MS: Final = 10_000
"""Time for which a rate stands before it is judged."""
CALM_MS: Final = 60_000
"""Time without trouble after which a rate that was halved rises again."""
RISE: Final = 1.5
FALL: Final = 2
BEGINS: Final = "it begins at the lower bound"

SET: Final = "an operator has set its bounds"
WHY_MAX: Final = 400
"""Characters of a cause: a topic's name has 249 at most."""

Least = Callable[[int], int | None]
"""Returns the min ISR of a topic's index."""


class RateBounds(Struct, frozen=True, omit_defaults=True):
    """The bounds of a plan's throttle, and its latest change. ``fell``: that one was a halving.

    ``calm_since_ms``: since when no replica has lagged, 0 while one does; ``why``: cause of the present rate.
    """

    low_bytes_per_s: int
    high_bytes_per_s: int
    changed_ms: int = 0
    fell: bool = False
    calm_since_ms: int = 0
    why: str = BEGINS


class Pressure(NamedTuple):
    """Partitions with a replica that lags although its broker lives, those of them below min ISR, and an example."""

    lagging: int = 0
    under_min_isr: int = 0
    example: str = ""

    def plus(self, other: Pressure) -> Pressure:
        """Adds what another part of the cluster has."""
        example = self.example or other.example
        return Pressure(self.lagging + other.lagging, self.under_min_isr + other.under_min_isr, example)

    @property
    def sentence(self) -> str:
        """Returns the trouble in words."""
        under_it = f", {self.under_min_isr} below min ISR" if self.under_min_isr else ""
        return f"{self.lagging} with a live replica out of sync ({self.example}){under_it}"


def pressure(cluster: Cluster, rows: Iterable[int], least: Least) -> Pressure:
    """Judges some rows."""
    lagging = below = 0
    example = ""
    for i in rows:
        row = cluster.rows[i]
        if len(row.isr) < len(row.assignment.replicas) and (broker := _laggard(cluster, i, row)) is not None:
            lagging, below = lagging + 1, below + under(row, least(row.topic))
            example = example or f"{TopicPartition(cluster.topics[row.topic].name, row.partition)} on broker {broker}"
    return Pressure(lagging, below, example)


def _laggard(cluster: Cluster, i: int, row: PartitionRow) -> int | None:
    """Returns a live broker whose replica is not in sync, and that no move adds; None without."""
    if row.state is not PartitionState.ONLINE or row.leader not in cluster.live:
        return None
    assignment = row.assignment
    candidates = (b for b in assignment.replicas if b not in row.isr and b not in assignment.adding)
    return next((b for b in candidates if b in cluster.live and b not in cluster.failed(i)), None)


def next_rate(rate_bytes_per_s: int, bounds: RateBounds, found: Pressure, now_ms: int) -> tuple[int, RateBounds]:
    """Returns the rate from now on, and the bounds with the cause; both as they are where nothing changes.

    The clock may have been set back since a time was stored: such a time counts as now.
    """
    low, high = bounds.low_bytes_per_s, bounds.high_bytes_per_s
    within = min(max(rate_bytes_per_s, low), high)
    if within != rate_bytes_per_s:
        return within, replace(bounds, changed_ms=now_ms, why="its bounds were changed")
    if found.lagging:
        bounds = replace(bounds, calm_since_ms=0) if bounds.calm_since_ms else bounds
        lower = max(low, rate_bytes_per_s // FALL)
        if lower == rate_bytes_per_s or _since(bounds.changed_ms, now_ms) < STEP_MS:
            return rate_bytes_per_s, bounds
        return lower, replace(bounds, changed_ms=now_ms, fell=True, why=f"halved: {found.sentence}")
    if not bounds.calm_since_ms or bounds.calm_since_ms > now_ms:
        bounds = replace(bounds, calm_since_ms=now_ms)
    wait_ms = CALM_MS if bounds.fell else STEP_MS
    higher = min(high, max(rate_bytes_per_s + 1, int(rate_bytes_per_s * RISE)))
    if (
        higher == rate_bytes_per_s
        or min(_since(t, now_ms) for t in (bounds.changed_ms, bounds.calm_since_ms)) < wait_ms
    ):
        return rate_bytes_per_s, bounds
    return higher, replace(bounds, changed_ms=now_ms, fell=False, why="raised: every live replica keeps up")


def _since(then_ms: int, now_ms: int) -> int:
    return max(0, now_ms - then_ms)
