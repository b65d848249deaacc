"""Steps that fail are repeated, and an outage has one line at its begin and one at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from regent_agent import attempts
from regent_agent.attempts import OTHER_REMEDY, Attempts
from regent_agent.connection import RequestRefused, Unreachable
from regent_agent.protocol import DEAD, FULL, RESTORED, UNAUTHENTICATED, Refused


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
