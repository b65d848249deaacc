"""Declares the result of a report, which is its JSON too.

JSON has the names in camel case. Durations are in seconds or by the name's unit, times (``_us``) are microseconds of
the wall clock. None is "not known", which is never zero.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

VERSION: Final = 1
"""``version`` of the result. Fields are only added within a version."""


class Cost(Struct, frozen=True, rename="camel"):
    """What partitions were without a leader, in partition-seconds.

    ``known_s``: from the known begins to the ends at the brokers. ``at_most_s``: from the earliest begins to the ends
    for clients; None if the begin of some is not bounded (``unbounded`` of ``intervals``: no session time-out is
    known). ``longest_s`` and ``longest_at_most_s``: of a single interval.
    """

    intervals: int = 0
    partitions: int = 0
    known_s: float = 0.0
    longest_s: float = 0.0
    at_most_s: float | None = 0.0
    longest_at_most_s: float | None = 0.0
    unbounded: int = 0


class TopicCost(Struct, frozen=True, rename="camel"):
    """A topic and what it cost."""

    topic: str
    cost: Cost


class Recovered(Struct, frozen=True, rename="camel"):
    """How ``partitions`` became whole after a stop: ``seconds`` from its begin until the last one was.

    None: none was, or ``left`` were not before the broker's next stop or the journal's end. ``unseen``: became whole in
    a time whose rows are missing; they do not count for ``seconds``.
    """

    partitions: int
    seconds: float | None
    unseen: int
    left: int


class StopCost(Struct, frozen=True, rename="camel"):
    """One stop of a broker, and its cost (fields of :class:`pipeline.report.stops.Stop`).

    ``led``: partitions that it led and gave up or lost. ``worst``: the ten topics with the highest cost.
    ``full``: of partitions that lost it from their ISR, until all replicas were in sync. ``back``: of partitions that
    it led by preference, until it led them again.
    """

    number: int
    broker: int
    planned: bool
    between_terms: bool
    begin_us: int
    at_most_us: int | None
    free_us: int | None
    down_us: int | None
    up_us: int | None
    led: int
    cost: Cost
    worst: list[TopicCost]
    full: Recovered
    back: Recovered


class TopicReport(Struct, frozen=True, rename="camel"):
    """One topic in the window. ``partitions``: of the snapshot, or those that the journal has rows of.

    ``availability``: share of its partition-seconds with a leader, by the known cost; ``availability_at_least``: by the
    cost at most. ``nines``: minus the decimal logarithm of what is missing to 1; None where nothing is.
    ``under_target_s`` and ``under_min_s``: partition-seconds with fewer replicas in sync than assigned, and than
    ``min.insync.replicas``; the latter None unless a snapshot has that setting.
    """

    topic: str
    partitions: int
    cost: Cost
    availability: float
    availability_at_least: float | None
    nines: float | None
    under_target_s: float
    under_min_s: float | None


class Quantiles(Struct, frozen=True, rename="camel"):
    """Milliseconds; None where ``count`` is 0. They are at most one percent too long, ``max_ms`` is exact."""

    count: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class ElectionReport(Struct, frozen=True, rename="camel"):
    """Elections of one reason: from the cause to the commit, and to the acknowledgement of the new leader.

    ``untimed``: elections whose cause has no plausible time, as after a change of controller; they have no latency.
    """

    reason: str
    committed: Quantiles
    acknowledged: Quantiles
    untimed: int = 0


class Unclean(Struct, frozen=True, rename="camel"):
    """An unclean election: records may be lost."""

    topic: str
    partition: int
    at_us: int


class MoveReport(Struct, frozen=True, rename="camel"):
    """Reassignments of one topic. ``unfinished``: had not ended. ``size_unknown``: are not in ``bytes``.

    ``bytes``: the size of a replica, times the added ones; None if it is not known of any. ``rate_bytes_per_s``: of all
    those that ended and have bytes, from the first begin to the last end.
    """

    topic: str
    partitions: int
    unfinished: int
    added: int
    seconds: float
    longest_s: float
    bytes: int | None
    size_unknown: int
    rate_bytes_per_s: float | None


class PlanReport(Struct, frozen=True, rename="camel"):
    """A plan of moves that the daemon carried out. ``state`` and ``result``: of its last row."""

    pid: int
    begin_us: int
    end_us: int | None
    state: str
    result: str


class TermReport(Struct, frozen=True, rename="camel"):
    """A term of a daemon, from its first to its last row."""

    ctl_epoch: int
    ctl_id: int
    begin_us: int
    end_us: int


class GapReport(Struct, frozen=True, rename="camel"):
    """A time in which rows are missing; ``why`` says why."""

    begin_us: int
    end_us: int
    why: str


class Figure(Struct, frozen=True, rename="camel"):
    """One figure of two reports; ``delta`` is this one less the other one, None unless both are known."""

    name: str
    unit: str
    here: float | None
    there: float | None
    delta: float | None


class Comparison(Struct, frozen=True, rename="camel"):
    """Figures beside those of another report, of that cluster and window. ``topics``: whose known cost changed most."""

    cluster: str
    from_us: int
    to_us: int
    figures: list[Figure]
    topics: list[Figure]


class Result(Struct, frozen=True, rename="camel"):
    """A whole report. ``cost``: of all topics and causes; ``outside_stops``: the part of it that no stop caused.

    ``interval_files``: the Parquet of single intervals, by paths in the report's folder; other files do not count.
    """

    version: int
    cluster: str
    from_us: int
    to_us: int
    topic_prefix: str
    session_timeout_ms: int | None
    zookeeper_tick_ms: int
    cost: Cost
    outside_stops: Cost
    stops: list[StopCost]
    topics: list[TopicReport]
    elections: list[ElectionReport]
    unclean: list[Unclean]
    unclean_count: int
    moves: list[MoveReport]
    plans: list[PlanReport]
    terms: list[TermReport]
    gaps: list[GapReport]
    against: Comparison | None = None
    interval_files: list[str] = []
