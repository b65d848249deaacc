"""Declares the result of a report, which is its JSON too.

JSON has the names in camel case. Durations are in seconds or by the name's unit, times (``_us``) are microseconds of
the wall clock. None is "not known", which is never zero.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class MoveReport(Struct, frozen=True, rename="camel"):
    """Reassignments of one topic. ``unfinished``: had not ended. ``size_unknown``: are not in ``bytes``.

    ``bytes``: the size of a replica, times the added ones; None if it is not known of any. ``rate_bytes_per_s``: of all
    those that ended and have bytes, from the first begin to the last end. ``left_s``: what ``unfinished_bytes`` take at
    that rate; at most, for what is copied of them is not known.
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
    unfinished_bytes: int | None = None
    left_s: float | None = None


class PlanReport(Struct, frozen=True, rename="camel"):
    """A plan of moves that the daemon carried out. ``state`` and ``result``: of its last row.

    ``topics``: those that it was about, 1,000 at most. The other fields are of reassignments of these topics that began
    while it was carried out, as of :class:`MoveReport`.
    """

    pid: int
    begin_us: int
    end_us: int | None
    state: str
    result: str
    topics: list[str] = []
    partitions: int = 0
    unfinished: int = 0
    bytes: int | None = 0
    size_unknown: int = 0
    rate_bytes_per_s: float | None = None


class PredictedTopic(Struct, frozen=True, rename="camel"):
    """What a plan's file says of a topic beside what was moved. Counts are of its moves that add replicas.

    ``predicted_bytes``: None where the plan does not know a size. ``bytes``: of those that ended, as of
    :class:`MoveReport`.
    """

    topic: str
    moves: int
    ended: int
    unfinished: int
    not_begun: int
    predicted_bytes: int | None
    bytes: int | None
    size_unknown: int


class Predicted(Struct, frozen=True, rename="camel"):
    """The file of a plan beside what was moved. ``leaders_only``: ``moves`` that add no replica, which no row shows."""

    moves: int
    leaders_only: int
    ended: int
    unfinished: int
    not_begun: int
    predicted_bytes: int | None
    bytes: int | None
    size_unknown: int
    topics: list[PredictedTopic]


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


class Usual(Struct, frozen=True, rename="camel"):
    """A stop beside the last ones of its kind before it, in the whole journal.

    ``mean_s``: its known cost for each partition that it led, also outside the window; ``median_s`` and ``longest_s``
    of the last ``stops``, ten at most. It was worse than ``worse_than`` of them.
    """

    stops: int
    mean_s: float
    median_s: float
    longest_s: float
    worse_than: int


class StopCost(Struct, frozen=True, rename="camel"):
    """One stop of a broker, and its cost (fields of :class:`pipeline.report.stops.Stop`).

    ``led``: partitions that it led and gave up or lost. ``worst``: the ten topics with the highest cost.
    ``full``: of partitions that lost it from their ISR, until all replicas were in sync. ``back``: of partitions that
    it led by preference, until it led them again. ``usual``: None without such a stop before it.
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
    usual: Usual | None = None


class TopicReport(Struct, frozen=True, rename="camel"):
    """One topic in the window. ``partitions``: of the snapshot, or those that the journal has rows of.

    ``availability``: share of its partition-seconds with a leader, by the known cost; ``availability_at_least``: by the
    cost at most. ``nines``: minus the decimal logarithm of what is missing to 1; None where nothing is.
    ``under_target_s`` and ``under_min_s``: partition-seconds with fewer replicas in sync than assigned, and than
    ``min.insync.replicas``. That setting counts from the snapshot on that has it. It is not known for
    ``min_isr_unknown_s`` of the window: ``under_min_s`` is of the rest, and None where there is no rest.
    """

    topic: str
    partitions: int
    cost: Cost
    availability: float
    availability_at_least: float | None
    nines: float | None
    under_target_s: float
    under_min_s: float | None
    min_isr_unknown_s: float = 0.0


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


class LossReport(Struct, frozen=True, rename="camel"):
    """What the loss of a broker or a rack would cost, as ``regent pipeline what-if`` counts it.

    ``offline``: partitions without a leader afterwards; ``named``: five of them. ``under_min_isr``: partitions that get
    below; None where the snapshot does not have the setting of all. The other fields foretell seconds of all ``led``
    partitions together: of a planned stop, and of a death at least and at most. None: the journal has none of the kind.
    """

    lost: str
    brokers: list[int]
    led: int
    offline: int
    named: list[str]
    under_min_isr: int | None
    planned_s: float | None
    unplanned_s: float | None
    unplanned_at_most_s: float | None


class Now(Struct, frozen=True, rename="camel"):
    """What stops would cost at the time of the latest snapshot, ``at_us``; the worst one first.

    ``planned_stops`` and ``unplanned_stops``: the last ones of the journal, whose median cost foretells the next one.
    """

    at_us: int
    planned_stops: int
    unplanned_stops: int
    losses: list[LossReport]


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
    predicted: Predicted | None = None
    now: Now | None = None
