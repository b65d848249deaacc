"""The wall clock that records share with brokers."""

from __future__ import annotations

import time

from controller.process.wall_clock import wall_ms


def test_the_wall_clock_counts_milliseconds_since_1970() -> None:
    before_s = time.time()
    assert before_s * 1000 - 1 <= wall_ms() <= time.time() * 1000 + 1
