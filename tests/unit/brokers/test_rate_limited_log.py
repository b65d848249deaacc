"""Warnings that peers cause: each once a minute for its peer, and few for all peers together."""

from __future__ import annotations

import logging

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


def raised(what: str, elsewhere: bool = False) -> Exception:
    try:
        if elsewhere:
            raise KeyError(what)
        raise KeyError(what)
    except KeyError as error:
        return error


def test_an_error_has_one_traceback_a_minute_for_its_kind_and_place_whatever_its_text_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, logger = [0.0], logging.getLogger("regent.regions")
    limited = RateLimitedLog(lambda: now[0])
    for number in range(7):
        limited.error(logger, "Poll", f"a Poll of s{number} failed", raised(f"s{number}"))
    limited.error(logger, "Poll", "a Poll failed elsewhere", raised("s1", elsewhere=True))
    limited.error(logger, "Report", "a Report failed", raised("s1"))
    limited.error(logger, "Poll", "a Poll failed by another error", ValueError("s1"))
    now[0] = LOG_INTERVAL_S
    limited.error(logger, "Poll", "a Poll of s8 failed", raised("s8"))
    assert [record.getMessage() for record in caplog.records] == [
        "a Poll of s0 failed",
        "a Poll failed elsewhere",
        "a Report failed",
        "a Poll failed by another error",
        "a Poll of s8 failed (6 more of these in the last minute or longer)",
    ]
    assert {record.name for record in caplog.records} == {"regent.regions"}
    assert all(record.exc_info for record in caplog.records)


def test_many_warnings_about_peers_hide_no_error_and_bring_back_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    limited = RateLimitedLog(lambda: 0.0)
    for number in range(2 * LOG_KEYS_MAX):
        limited.warn(str(number), "frame", "garbage")
        limited.error(logging.getLogger("regent"), "Poll", "a Poll failed", raised(str(number)))
    assert [record.getMessage() for record in caplog.records].count("a Poll failed") == 1


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
