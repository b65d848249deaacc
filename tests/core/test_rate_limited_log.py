"""Warnings that peers cause: each once a minute for its peer, and few for all peers together."""

from __future__ import annotations

import pytest

from brokers.rate_limited_log import LOG_INTERVAL_S, LOG_KEYS_MAX, LOG_LINES_MAX, RateLimitedLog


def test_a_sentence_is_logged_once_a_minute_for_its_peer_and_kind_with_the_count_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    limited = RateLimitedLog(lambda: now[0])
    for minute in (0, 1, 2):
        caplog.clear()
        now[0] = minute * LOG_INTERVAL_S
        for _ in range(5):
            limited.warn("10.0.0.1", "frame", "garbage")
        now[0] += 0.99 * LOG_INTERVAL_S
        limited.warn("10.0.0.1", "frame", "garbage")
        limited.warn("10.0.0.1", "call", "another kind")
        limited.warn("10.0.0.2", "frame", "another peer")
        again = " (5 more of these in the last minute or longer)" if minute else ""
        assert [record.getMessage() for record in caplog.records] == [f"garbage{again}", "another kind", "another peer"]


def test_many_peers_get_few_lines_together_and_the_count_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    limited = RateLimitedLog(lambda: now[0])
    for turn, suppressed in enumerate((800, 1, 0, 0)):
        now[0] = turn * LOG_INTERVAL_S
        for number in range(LOG_LINES_MAX + suppressed):
            limited.warn(f"{turn}.{number}", "frame", "garbage")
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("garbage") == 4 * LOG_LINES_MAX
    counts = [line.partition(" warnings about other peers")[0] for line in lines if line != "garbage"]
    assert counts == ["800", "1"]
    assert lines[LOG_LINES_MAX].startswith("800")


@pytest.mark.parametrize(("others", "remembered"), [(LOG_KEYS_MAX - 1, True), (LOG_KEYS_MAX, False)])
def test_a_bounded_number_of_peers_is_remembered(
    others: int, remembered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    limited = RateLimitedLog(lambda: now[0])
    for peer in ("first", "first", *map(str, range(others))):
        limited.warn(peer, "frame", "garbage")
    now[0] = LOG_INTERVAL_S
    limited.warn("first", "frame", "garbage")
    assert ("(1 more of these" in caplog.records[-1].getMessage()) is remembered
