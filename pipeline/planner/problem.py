"""Declares what a plan is made from: brokers, partitions, loads and limits, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from pipeline.planner.arrays import Array, np

MAY_MOVE: Final = 0
"""Mark of a partition that may move."""


@dataclass(frozen=True)
class PlanLimits:
    """PlanLimits of the goals, as shares of capacities and of means; the defaults are those of Cruise Control.

    ``spread``: how far a broker may be from its share of the mean. ``replicas_max``: of one broker. ``topic_factor``,
    ``topic_gap_min`` and ``topic_gap_max``: how far the replicas of one topic on one broker may be above their mean.
    ``follower_cpu``: CPU of a follower, where the leader of the same partition has 1.
    """

    spread: float = 0.10
    disk: float = 0.80
    bytes_in: float = 0.80
    bytes_out: float = 0.80
    cpu: float = 0.70
    replicas_max: float = 10_000
    topic_factor: float = 3.0
    topic_gap_min: int = 2
    topic_gap_max: int = 40
    follower_cpu: float = 0.4


@dataclass(frozen=True)
class Brokers:
    """Brokers, each a row of arrays of length B.

    ``ids`` int32. ``rack`` int32: brokers of one rack have the same number. ``live``; ``retiring``: all replicas leave
    it; ``excluded``: it takes no further replica (bool). Capacities are float64, infinite where unknown: ``disk`` in
    bytes, ``bytes_in`` and ``bytes_out`` a second, ``cpu`` in bytes a second that it can lead.
    """

    ids: Array
    rack: Array
    live: Array
    retiring: Array
    excluded: Array
    disk: Array
    bytes_in: Array
    bytes_out: Array
    cpu: Array

    @property
    def hosts(self) -> Array:
        """Returns which brokers may take replicas (bool, B)."""
        return self.live & ~self.retiring & ~self.excluded

    @property
    def left(self) -> Array:
        """Returns which brokers all replicas have to leave (bool, B)."""
        return ~self.live | self.retiring


@dataclass(frozen=True)
class Disks:
    """Log directories of brokers, each a row of arrays of length D, sorted by broker.

    ``broker`` int32: place of the broker. ``paths``. ``capacity`` float64, bytes. ``at`` int32, P x R: the directory of
    each replica as it is, -1 where unknown.
    """

    broker: Array
    paths: tuple[str, ...]
    capacity: Array
    at: Array


@dataclass(frozen=True)
class Sets:
    """Sets of brokers: each broker and each topic is in one. ``of_broker`` int32, B, and ``of_topic`` int32, T."""

    names: tuple[str, ...]
    of_broker: Array
    of_topic: Array


@dataclass(frozen=True)
class Problem:
    """Partitions, each a row of arrays of length P, sorted by topic; their brokers; and the limits.

    ``topics``: names. ``topic`` int32: place of the name. ``partition`` int32: number. ``replicas`` int32, P x R:
    places of brokers, the preferred leader first, padded with -1. ``size`` in bytes of one replica, ``bytes_in`` and
    ``bytes_out`` of producers and consumers a second: float64, NaN where unknown. ``stuck`` int8: 0 for a partition
    that may move, else the place of the reason in ``why_stuck``. ``disks`` and ``sets``: None where no log
    directory and no set of brokers is given.
    """

    cluster_id: str
    topics: tuple[str, ...]
    topic: Array
    partition: Array
    replicas: Array
    size: Array
    bytes_in: Array
    bytes_out: Array
    stuck: Array
    brokers: Brokers
    limits: PlanLimits = field(default_factory=PlanLimits)
    why_stuck: tuple[str, ...] = ("",)
    disks: Disks | None = None
    sets: Sets | None = None

    def name(self, row: int) -> str:
        """Returns topic and number of a partition."""
        return f"{self.topics[self.topic[row]]}-{self.partition[row]}"

    def only(self, rows: Array) -> Problem:
        """Returns the problem of some partitions alone, without disks and sets; ``rows``: their places."""
        arrays = ("topic", "partition", "replicas", "size", "bytes_in", "bytes_out", "stuck")
        return replace(self, disks=None, sets=None, **{name: getattr(self, name)[rows] for name in arrays})

    def hosts_of(self, row: int) -> Array:
        """Returns which brokers may take replicas of a partition (bool, B)."""
        if self.sets is None:
            return self.brokers.hosts
        return self.brokers.hosts & (self.sets.of_broker == self.sets.of_topic[self.topic[row]])

    @property
    def factors(self) -> Array:
        """Returns the number of replicas of each partition (int32, P)."""
        return (self.replicas >= 0).sum(axis=1).astype(np.int32)


@dataclass(frozen=True)
class Assumed:
    """How many partitions have no load of a kind, and the mean that stands for it."""

    kind: str
    partitions: int
    mean: float


def with_means(problem: Problem) -> tuple[Problem, tuple[Assumed, ...]]:
    """Returns the problem with the mean in the place of each unknown load, and what was assumed.

    A kind of load that is unknown everywhere becomes 0: no goal of it binds.
    """
    assumed, filled = [], {}
    for kind in ("size", "bytes_in", "bytes_out"):
        given = getattr(problem, kind)
        unknown = np.isnan(given)
        count = int(unknown.sum())
        mean = float(given[~unknown].mean()) if count < len(given) else 0.0
        if count:
            assumed.append(Assumed(kind, count, mean))
            filled[kind] = np.where(unknown, mean, given)
    return replace(problem, **filled), tuple(assumed)
