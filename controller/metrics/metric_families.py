"""Builds metric families from plain numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from controller.metrics.counters import BUCKETS_S, Timer

LABELS_MAX: Final = 100
"""Most values of a label of reasons; the rarest others are shown together as ``other``."""


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
