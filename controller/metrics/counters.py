"""Declares plain counters of a daemon, which the metrics read at scrape time."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

QUEUE_TIME_KEPT_S: Final = 300.0
"""Time without events after which no recent queue time is shown, as by Kafka (KAFKA-10189): an alert must not stick."""
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histograms, in seconds; longer durations count in one more bucket."""


@dataclass
class Timer:
    """Count, total, histogram and a bounded window of recent durations, in seconds.

    ``kept_s``: time after the last one for which they count as recent.
    """

    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    recent_s: list[float] = field(default_factory=list)
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    kept_s: float = math.inf
    last_s: float = 0.0

    WINDOW = 512

    def record(self, seconds: float) -> None:
        """Adds one duration."""
        self.count += 1
        self.total_s += seconds
        if seconds > self.max_s:
            self.max_s = seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        now_s = time.monotonic()
        if now_s - self.last_s > self.kept_s:
            self.recent_s = []
        self.last_s = now_s
        self.recent_s.append(seconds)
        if len(self.recent_s) > self.WINDOW:
            del self.recent_s[: self.WINDOW // 2]

    def lately(self) -> list[float]:
        """Returns the recent durations; none where the last one is too long ago."""
        return self.recent_s if time.monotonic() - self.last_s <= self.kept_s else []


@dataclass
class Counters:
    """Counts that only grow, over all terms of the process."""

    commits: int = 0
    writes: int = 0
    conflicts: int = 0
    unknown_outcomes: int = 0
    unclean_elections: int = 0
    interim_terms: int = 0
    terms: int = 0
    standstills: int = 0
    """Times that the lease of a term ran out."""
    resignations: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    events: defaultdict[str, Timer] = field(default_factory=lambda: defaultdict(Timer))
    queue_time: Timer = field(default_factory=lambda: Timer(kept_s=QUEUE_TIME_KEPT_S))
    heartbeats: Timer = field(default_factory=Timer)
    commit_time: Timer = field(default_factory=Timer)
    propagation: Timer = field(default_factory=Timer)
    broker_requests: defaultdict[int, Timer] = field(default_factory=lambda: defaultdict(Timer))
    malformed: dict[str, str] = field(default_factory=dict)
    open_znodes: str = ""
    repaired_assignments: int = 0
    recorded_calls: int = 0
    unrecorded_calls: int = 0
    fenced: int = 0
    shadow_compared: int = 0
    shadow_differences: int = 0
    journal_rows: int = 0
    journal_rows_lost: int = 0
    journal_bytes: int = 0
    journal_failing: str = ""
    journal_topic_rows: int = 0
    journal_topic_rows_lost: int = 0
    journal_topic_bytes_waiting: int = 0
    journal_topic_failing: str = ""
    snapshots: int = 0
    snapshot_failures: int = 0
    snapshot_s: float | None = None
    """When the last snapshot was complete, on the monotonic clock; None: this process has taken none."""
    lowered_ibp_brokers: set[int] = field(default_factory=set)
