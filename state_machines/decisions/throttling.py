"""Decides throttles: those of operators, the rate of a plan, and replicas that a throttle lets go.

Copies take from the same disks and networks as replication. A replica that falls out of the ISR while its broker lives
is the first sign that they take too much; producers with acks=all wait once a partition is below its min ISR. Replicas
on dead brokers, and those that moves add, say nothing about it.

A leader acknowledges no record with acks=all before each follower has it that has caught up once, in the ISR or not
(Kafka ``Partition.maybeIncrementLeaderHW``). A throttled follower that shares an exhausted rate with others fetches
once in seconds. So it has to leave the lists before the fetch that brings it to the end of the log.

What one fetch brings depends on settings of brokers and on the size of records. So it is measured: a replica has nearly
caught up if it lacks at most what two pauses between looks may bring. One passes until the next look, the other until
brokers have the lists. Of a small replica three quarters are throttled all the same: it may catch up between two looks,
and is let go by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from state_machines.admin_rules.throttles import RATE_BYTES_PER_S_MAX
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import under
from state_machines.model.types import PartitionRow, PartitionState, TopicPartition

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


LOOKS_MAX: Final = 12
"""Looks that are compared: brokers keep a rate on average over eleven seconds, and copy nothing for some of them."""
PAUSES: Final = 2
"""Pauses between looks in which a replica must not catch up."""
PARTS: Final = 4
"""A replica is near only for the last one of so many parts: a throttle holds for the others, however small it is."""


class Copy(NamedTuple):
    """A replica that a move adds: its partition, its broker, and the leader from which it copies."""

    name: TopicPartition
    broker: int
    leader: int


Sizes = Mapping[tuple[TopicPartition, int], int]
"""Bytes of logs by partition and broker; one that its broker has not created has 0, an unknown one is left out."""


class Looks(NamedTuple):
    """The sizes at the latest look, and the most bytes that a replica of each broker gained since the one before it.

    ``gained`` has as many for the looks before, the latest at the end.
    """

    sizes: Sizes = {}
    gained: tuple[Mapping[int, int], ...] = ()

    def plus(self, copies: Iterable[Copy], sizes: Sizes) -> Looks:
        """Returns the looks with one more. ``copies``: those that are throttled, whose gains count."""
        found: dict[int, int] = {}
        for name, broker, _ in copies:
            before, after = self.sizes.get((name, broker)), sizes.get((name, broker))
            if before is not None and after is not None:
                found[broker] = max(found.get(broker, 0), after - before)
        return Looks(sizes, (*self.gained, found)[-LOOKS_MAX:])

    def near(self, copies: Iterable[Copy]) -> set[Copy]:
        """Returns the copies that have nearly caught up; none to a broker that was not seen at two looks."""
        most: dict[int, int] = {}
        for look in self.gained:
            for broker, gain in look.items():
                most[broker] = max(most.get(broker, 0), gain)
        return {copy for copy in copies if copy.broker in most and self._is_near(copy, most[copy.broker])}

    def _is_near(self, copy: Copy, gain: int) -> bool:
        leader, own = self.sizes.get((copy.name, copy.leader)), self.sizes.get((copy.name, copy.broker))
        return leader is not None and own is not None and leader - own <= min(PAUSES * gain, leader // PARTS)
