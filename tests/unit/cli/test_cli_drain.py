"""regent drain and undrain against the double of a daemon: requests, exit codes, listings."""

from __future__ import annotations

import pytest

from cli.exit_codes import Exit
from controller.http.documents import ViewRefused
from controller.operator.drains import DrainRequest, UndrainRequest
from tests.kit.answering import Answering
from tests.kit.command import items, regent, unwrapped


def drain_request(view: Answering) -> tuple[DrainRequest, str]:
    [(name, request, principal)] = view.of("drains")
    assert name == "drain"
    return request, principal


def test_a_drain_names_its_brokers_its_reason_and_its_caller(view: Answering) -> None:
    [found] = items("drain", 3, 4, "--reason", "new disk")
    request, principal = drain_request(view)
    assert (found["pid"], request.brokers, request.reason, request.replicas) == (12, [3, 4], "new disk", False)
    assert principal.startswith("uid ")
    assert request.nonce


def test_replicas_move_below_a_throttle(view: Answering) -> None:
    items("drain", 3, "--replicas", "--throttle", 50_000_000)
    request, _ = drain_request(view)
    assert (request.replicas, request.rate_bytes_per_s, request.rate_bytes_per_s_max) == (True, 50_000_000, 0)


def test_a_throttle_of_a_drain_may_have_two_bounds(view: Answering) -> None:
    items("drain", 3, "--replicas", "--throttle", "1M..50M")
    request, _ = drain_request(view)
    assert (request.rate_bytes_per_s, request.rate_bytes_per_s_max) == (1_000_000, 50_000_000)


@pytest.mark.parametrize(("state", "code"), [("success", Exit.DONE), ("rolledback", Exit.FAILED)])
def test_wait_ends_by_the_end_of_the_drain(view: Answering, state: str, code: Exit) -> None:
    view.ends(state)
    [found] = items("drain", 3, "--wait", "--timeout", 5, code=code)
    assert found["state"] == state
    assert view.of("procedures", "plans")[-1][:2] == ("one", 12)
    assert view.of("procedures", "plans")[-1][2] > 0


def test_a_dry_run_shows_what_would_change_in_rows_and_drains_nothing(view: Answering) -> None:
    done = regent("drain", 3, "--replicas", "--dry-run")
    assert "broker 3 leaders 4 1 1 stay: it is alone" in " ".join(done.stdout.split())
    assert "nothing was done" in done.stderr
    [(name, request)] = view.of("drains")
    assert (name, request.brokers, request.replicas) == ("planned", [3], True)


def test_a_refusal_shows_its_remedy(view: Answering) -> None:
    view.refuse = ViewRefused("brokers [9] are not registered and host no replica", "correct the ids")
    assert "correct the ids" in regent("drain", 9, code=Exit.REFUSED).stderr


def test_undrain_lists_the_marks_that_are_left(view: Answering) -> None:
    items("cordon", 3, 4)
    assert [mark["broker"] for mark in items("undrain", 4)] == [3]
    said = unwrapped(regent("undrain", 9).stderr)
    assert "broker 9: it was not drained; a shutdown by command, if there was one, is undone" in said
    assert view.of("drains") == [("undrain", UndrainRequest(brokers=[broker])) for broker in (4, 9)]


@pytest.mark.parametrize(
    "words", [("drain",), ("undrain",), ("drain", "-1"), ("drain", 3, "--replicas", "--throttle", -1)]
)
def test_a_command_without_brokers_or_with_bad_numbers_is_a_usage_error(words: tuple[object, ...]) -> None:
    regent(*words, code=Exit.USAGE)


def test_the_throttle_needs_replicas(view: Answering) -> None:
    assert "--replicas" in regent("drain", 3, "--throttle", 5, code=Exit.USAGE).stderr
    assert not view.of("drains")


def test_too_many_brokers_are_refused_with_the_field(view: Answering) -> None:
    assert "brokers" in regent("drain", *range(1_001), code=Exit.USAGE).stderr
