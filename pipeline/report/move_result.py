"""Declares what a result has of reassignments, by the rules of :mod:`pipeline.report.result`."""

from __future__ import annotations

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
