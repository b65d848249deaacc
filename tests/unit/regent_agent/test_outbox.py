"""Results wait for their acceptance: pauses, bounds, and reports that cross with operations."""

from __future__ import annotations

import pytest

from regent_agent.outbox import REPORT_BYTES_MAX, Outbox
from regent_agent.protocol import BUSY, CLOSED, DONE, FAILED, PARTS_MAX, RESULTS_MAX, Result
from tests.unit.regent_agent.kit import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outbox(clock: Clock) -> Outbox:
    return Outbox(clock, lambda: None)


def test_results_that_are_not_accepted_are_due_again_after_growing_pauses(clock: Clock, outbox: Outbox) -> None:
    outbox.add(Result(7, CLOSED))
    pauses = []
    for _ in range(8):
        sent = outbox.due()
        assert outbox.wait_s() is None
        outbox.accepted(sent, {7})
        assert outbox.due() == []
        pause_s = outbox.wait_s()
        assert pause_s is not None
        pauses.append(round(pause_s, 3))
        clock.now_s += pause_s + 0.001
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    outbox.accepted(outbox.due(), ())
    assert len(outbox) == 0


def test_a_report_without_a_response_is_due_again_at_once(outbox: Outbox) -> None:
    outbox.add(Result(7, CLOSED))
    sent = outbox.due()
    outbox.not_sent(sent)
    assert outbox.due() == sent


def test_a_result_whose_operation_arrives_during_its_report_is_sent_once_more(outbox: Outbox) -> None:
    outbox.add(Result(7, CLOSED))
    sent = outbox.due()
    assert outbox.repeat(7)
    outbox.accepted(sent, ())
    assert outbox.due() == sent
    outbox.accepted(sent, ())
    assert len(outbox) == 0


@pytest.mark.parametrize("outcome", [BUSY, FAILED])
def test_an_operation_that_was_not_done_may_be_done_during_its_report(outbox: Outbox, outcome: str) -> None:
    outbox.add(Result(7, outcome))
    sent = outbox.due()
    assert not outbox.repeat(7)
    outbox.add(Result(7, CLOSED))
    outbox.accepted(sent, ())
    assert outbox.due() == [Result(7, CLOSED)]


@pytest.mark.parametrize("outcome", [BUSY, FAILED])
def test_the_failure_before_is_not_sent_again_while_the_operation_is_done_anew(outbox: Outbox, outcome: str) -> None:
    outbox.add(Result(7, outcome))
    sent = outbox.due()
    assert not outbox.repeat(7)
    outbox.not_sent(sent)
    assert outbox.due() == []


def test_an_unknown_operation_is_to_be_done(outbox: Outbox) -> None:
    assert not outbox.repeat(7)
    outbox.accepted([Result(8, CLOSED)], ())
    outbox.not_sent([Result(8, CLOSED)])
    assert len(outbox) == 0


def test_a_report_is_bounded_by_count(outbox: Outbox) -> None:
    for pid in range(RESULTS_MAX + 3):
        outbox.add(Result(pid, CLOSED))
    assert len(outbox.due()) == RESULTS_MAX
    assert len(outbox.due()) == 3


def test_a_report_is_bounded_by_bytes(outbox: Outbox) -> None:
    parts = ["p" * (REPORT_BYTES_MAX // 3)]
    for pid in range(4):
        outbox.add(Result(pid, DONE, parts=parts))
    assert [len(outbox.due()) for _ in range(3)] == [2, 2, 0]


def test_texts_are_cut(outbox: Outbox) -> None:
    outbox.add(Result(7, FAILED, text="x" * 5_000))
    assert outbox.due() == [Result(7, FAILED, text="x" * 1_000)]


@pytest.mark.parametrize("parts", [["p" * REPORT_BYTES_MAX], ["\ud800"], [1j]])
def test_a_result_that_cannot_be_sent_is_a_failure(outbox: Outbox, parts: list[str]) -> None:
    outbox.add(Result(7, DONE, parts=parts))
    (result,) = outbox.due()
    assert result.outcome == FAILED
    assert result.text.startswith("its result ")


def test_a_log_of_too_many_parts_is_a_failure_that_says_so(outbox: Outbox) -> None:
    outbox.add(Result(7, DONE, parts=["p"] * PARTS_MAX))
    outbox.add(Result(8, DONE, parts=["p"] * (PARTS_MAX + 1)))
    outbox.add(Result(9, DONE, parts=["p"]))
    whole, failed = outbox.due()
    assert [one.pid for one in outbox.due()] == [9], "they are too many for one report"
    assert len(whole.parts) == PARTS_MAX
    assert (failed.outcome, failed.parts) == (FAILED, [])
    assert f"{PARTS_MAX + 1} parts, at most {PARTS_MAX}" in failed.text
