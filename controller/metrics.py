"""Measures durations, builds metric families from plain numbers, and exposes them with those of the process."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from configs.version import product_version

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histograms, in seconds; longer durations count in one more bucket."""


LABELS_MAX: Final = 100
"""Most values of a label of reasons; the rarest others are shown together as ``other``."""


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


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    """Builds a gauge without labels."""
    return GaugeMetricFamily(name, text, value=value)


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    """Builds a counter without labels; its sample gets the suffix ``_total``."""
    return CounterMetricFamily(name, text, value=value)


def by_broker(name: str, text: str, values: Mapping[int, float]) -> GaugeMetricFamily:
    """Builds a gauge for each broker."""
    family = GaugeMetricFamily(name, text, labels=["broker_id"])
    for broker, value in values.items():
        family.add_metric([str(broker)], value)
    return family


def by_label(name: str, text: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
    """Builds a counter for each reason, at most :data:`LABELS_MAX` of them."""
    family = CounterMetricFamily(name, text, labels=[label])
    common = counts.most_common(LABELS_MAX)
    for reason, count in common:
        family.add_metric([reason], count)
    if rest := counts.total() - sum(count for _, count in common):
        family.add_metric(["other"], rest)
    return family


def histogram(name: str, text: str, timers: Mapping[str, Timer], label: str = "") -> HistogramMetricFamily:
    """Builds a histogram in seconds; ``timers`` by the value of ``label``, or one under the empty string."""
    family = HistogramMetricFamily(name, text, labels=[label] if label else [])
    for value, timer in timers.items():
        family.add_metric([value] if label else [], _cumulative(timer), timer.total_s)
    return family


def _cumulative(timer: Timer) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], timer.buckets, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


class ProcessMetrics(Collector):
    """What every daemon has: its version, its log, its loop. ``lines_dropped`` counts lost log lines."""

    def __init__(self, controller_id: int, lines_dropped: Callable[[], int]) -> None:
        self._build = {"version": product_version(), "controller_id": str(controller_id)}
        self._lines_dropped = lines_dropped
        self.loop_lag = Timer()

    def describe(self) -> Iterable[Metric]:
        """Yields nothing, because the registration of the collector must not scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics of one scrape."""
        yield InfoMetricFamily("regent_build", "Version and id of this daemon", value=self._build)
        yield counter("regent_log_lines_dropped", "Log lines lost to a reader that stood still", self._lines_dropped())
        yield histogram("regent_loop_lag_seconds", "How late the event loop runs what is due", {"": self.loop_lag})
        yield gauge("regent_loop_lag_longest_seconds", "The longest such delay since the start", self.loop_lag.max_s)


def registry(*collectors: Collector) -> CollectorRegistry:
    """Returns a registry of the daemon's, the process's and the garbage collector's metrics."""
    found = CollectorRegistry()
    for collector in collectors:
        found.register(collector)
    ProcessCollector(registry=found)
    GCCollector(registry=found)
    return found


def exposition(found: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Returns a scrape's body and content type, in the format that the ``Accept`` header selects."""
    encode, content_type = choose_encoder(accept)
    return encode(found), content_type
