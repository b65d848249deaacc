"""Results wait for their acceptance, and steps that fail are repeated: pauses, bounds, lines of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from regent_agent import attempts
from regent_agent.attempts import OTHER_REMEDY, Attempts
from regent_agent.connection import RequestRefused, Unreachable
from regent_agent.outbox import REPORT_BYTES_MAX, Outbox
from regent_agent.protocol import (
    BUSY,
    CLOSED,
    DEAD,
    DONE,
    FAILED,
    FULL,
    PARTS_MAX,
    RESTORED,
    RESULTS_MAX,
    UNAUTHENTICATED,
    Refused,
    Result,
)
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


def nothing(code: str, text: str) -> None:
    """Takes a refusal."""


async def repeated(*outcomes: Exception | None, refused: Callable[[str, str], None] = nothing) -> list[Exception]:
    """Repeats a step with these outcomes, and returns the errors that were fatal."""
    died, left = list[Exception](), list(outcomes)

    def die(error: Exception) -> None:
        died.append(error)
        tried.ended.set()

    tried = Attempts("s1", lambda: 0.0, die, refused)

    async def step() -> None:
        outcome = left.pop(0)
        if not left:
            tried.ended.set()
        if outcome is not None:
            raise outcome

    await tried.repeat(step, "polls")
    return died


async def test_an_outage_has_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert await repeated(Unreachable("a: refused"), Unreachable("a: refused"), None, None) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"the polls of server s1 have no success: a: refused; {OTHER_REMEDY}",
        "the polls of server s1 succeed again",
    ]


async def test_a_fault_is_logged_and_the_steps_go_on(caplog: pytest.LogCaptureFixture) -> None:
    assert await repeated(ZeroDivisionError("fault"), None) == []
    assert "ZeroDivisionError: fault" in caplog.text


async def test_a_wrong_secret_has_its_remedy(caplog: pytest.LogCaptureFixture) -> None:
    await repeated(RequestRefused(Refused(UNAUTHENTICATED, "another secret"), "a:1"), None)
    assert "give it the daemons' secret of servers" in caplog.text


async def test_a_service_without_room_has_its_remedy(caplog: pytest.LogCaptureFixture) -> None:
    await repeated(RequestRefused(Refused(FULL, "there are 2000"), "a:1"), None)
    assert "there are 2000 (full); it registers once one of them has ended" in caplog.text


async def test_after_a_success_the_first_pause_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was without a daemon for long loses no seconds of its lease at the next short trouble."""
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(attempts, "asyncio", SimpleNamespace(sleep=sleep, Event=asyncio.Event))
    down = Unreachable("a: refused")
    await repeated(*[down] * 9, None, down, down, None)
    assert pauses[9:] == pauses[:2]
    assert pauses[8] > 10 * pauses[0]


async def test_a_dead_server_stops() -> None:
    dead = RequestRefused(Refused(DEAD, "fenced"), "a:1")
    assert await repeated(dead, None, None) == [dead]


async def test_each_outage_has_its_line_and_one_more_where_the_store_turns_out_to_be_older(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down, older = Unreachable("a: refused"), RequestRefused(Refused(RESTORED, "epoch 3"), "a:1")
    await repeated(down, older, older, None, down, older, down, None, None)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["epoch 3" in line for line in lines] == [False, True, False, True]


async def test_a_program_is_given_each_refusal_that_is_not_fatal() -> None:
    """It may end instead of trying again for ever."""
    given: list[tuple[str, str]] = []
    full, dead = (RequestRefused(Refused(code, "the cause"), "a:1") for code in (FULL, DEAD))
    assert await repeated(Unreachable("a: refused"), full, full, dead, refused=lambda *one: given.append(one)) == [dead]
    assert given == [(FULL, "a:1 refused: the cause (full)")] * 2
