"""Metrics that every daemon has, and the durations behind its histograms."""

from __future__ import annotations

from configs.version import product_version
from controller.metrics import ProcessMetrics, Timer


def test_every_daemon_shows_its_version_its_log_and_its_loop() -> None:
    metrics = ProcessMetrics(1_000_001, lambda: 110)
    for seconds in (0.01, 60.0):
        metrics.loop_lag.record(seconds)
    samples = [sample for family in metrics.collect() for sample in family.samples]
    found = {sample.name: sample.value for sample in samples}
    [info] = [sample for sample in samples if sample.name == "regent_build_info"]
    assert (info.labels, info.value) == ({"controller_id": "1000001", "version": product_version()}, 1)
    assert found["regent_log_lines_dropped_total"] == 110
    assert [found[f"regent_loop_lag_seconds_{name}"] for name in ("count", "sum")] == [2, 60.01]
    assert found["regent_loop_lag_longest_seconds"] == 60


def test_recent_durations_are_bounded_and_the_newest_stay() -> None:
    timer = Timer()
    for number in range(5 * Timer.WINDOW):
        timer.record(float(number))
        assert len(timer.lately()) <= Timer.WINDOW
    assert timer.lately()[-1] == timer.max_s == 5 * Timer.WINDOW - 1
    assert len(timer.lately()) >= Timer.WINDOW // 2
    assert timer.count == 5 * Timer.WINDOW
