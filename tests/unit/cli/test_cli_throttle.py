"""regent throttle against the double of a daemon: requests, exit codes, listings."""

from __future__ import annotations

import pytest

from cli.exit_codes import Exit
from controller.http.procedures import ServerResult
from controller.operator.throttle_settings import ClearRequest, ThrottleSetting
from controller.operator.throttles import LiftRequest, ThrottleItem, ThrottleRequest
from tests.kit.answering import THROTTLE, THROTTLED, Answering
from tests.kit.command import items, regent, unwrapped

LEFT = ThrottleSetting(entity="broker 3", setting="leader.replication.throttled.rate", value="9", owner="nobody")


REQUESTS = ("throttles.set_rates", "throttles.lift", "throttles.clear")


def leaves(view: Answering, *left: ThrottleSetting) -> None:
    """Has settings stand that no procedure owns; those that are not kept can be removed."""
    rest = ThrottleItem(kind="nobody", rate_bytes_per_s=0, brokers=[], settings=list(left), settings_total=len(left))

    def cleared(request: ClearRequest, _: str) -> list[ThrottleSetting]:
        outcome = "planned" if request.dry_run else "cleared"
        return [one if one.outcome == "kept" else one.model_copy(update={"outcome": outcome}) for one in left]

    view.answers |= {"throttles.listed": [THROTTLED, rest], "throttles.clear": cleared}


def test_a_throttle_names_brokers_rate_topics_and_reason(view: Answering) -> None:
    [found] = items("throttle", "set", 1, 2, "--rate", 5_000, "--topic", "a", "--topic", "b", "--reason", "full")
    [request] = view.noted(*REQUESTS)
    assert isinstance(request, ThrottleRequest)
    assert (request.brokers, request.rate_bytes_per_s, request.topics, request.reason, request.all_brokers) == (
        [1, 2],
        5_000,
        ["a", "b"],
        "full",
        False,
    )
    assert (found["pid"], found["results"]) == (12, [{"broker": 1, "ok": True, "text": "in force"}])


def test_a_dry_run_shows_the_settings_and_sets_nothing(view: Answering) -> None:
    [row] = items("throttle", "set", 1, "--rate", 7, "--dry-run")
    assert (row["entity"], row["what"], row["after"]) == ("broker 1", "leader.replication.throttled.rate", "7")
    assert [request.brokers for request in view.noted("throttles.planned")] == [[1]]
    assert view.noted(*REQUESTS) == []


@pytest.mark.parametrize(
    "words",
    [
        ("set", "--rate", 5),
        ("set", 1, "--all", "--rate", 5),
        ("set", 1),
        ("set", 1, "--rate", 0),
        ("set", 1, "--rate", "5m"),
        ("lift",),
        ("lift", 12, "--all"),
    ],
)
def test_a_command_that_says_too_little_or_too_much_is_a_usage_error(
    view: Answering, words: tuple[object, ...]
) -> None:
    regent("throttle", *words, code=Exit.USAGE)
    assert not view.noted(*REQUESTS)


def test_a_rate_may_have_a_unit(view: Answering) -> None:
    regent("throttle", "set", 1, "--rate", "50M")
    [request] = view.noted(*REQUESTS)
    assert isinstance(request, ThrottleRequest)
    assert request.rate_bytes_per_s == 50_000_000


def test_wait_ends_once_the_throttle_is_in_force_and_names_silent_brokers(view: Answering) -> None:
    silent = ServerResult(broker=2, ok=False, text="nobody listens")
    view.procedure = THROTTLE.model_copy(update={"results": [*THROTTLE.results, silent]})
    said = regent("throttle", "set", "--all", "--rate", 5, "--wait").stderr
    assert "brokers [2] have not confirmed it" in said


def test_wait_ends_with_exit_code_1_where_the_throttle_was_undone(view: Answering) -> None:
    view.ends("rolledback")
    [found] = items("throttle", "set", "--all", "--rate", 5, "--wait", code=Exit.FAILED)
    assert found["state"] == "rolledback"


def test_throttles_are_lifted_by_pid_or_all_together(view: Answering) -> None:
    items("throttle", "lift", 12, 13)
    items("throttle", "lift", "--all")
    assert view.noted(*REQUESTS) == [LiftRequest(pids=[12, 13]), LiftRequest(all_throttles=True)]


def test_the_list_shows_what_is_throttled(view: Answering) -> None:
    [found] = items("throttle", "show")
    assert (found["pid"], found["rateBytesPerS"], found["brokers"]) == (12, 7, [1])
    assert "BYTES/S" in regent("throttle", "show").stdout


def test_a_rate_between_bounds_is_shown_with_them_and_its_cause(view: Answering) -> None:
    paced = ThrottleItem(pid=3, kind="reassign", brokers=[1], rate_bytes_per_s=5).model_copy(
        update={"rate_bytes_per_s_min": 2, "rate_bytes_per_s_max": 9, "rate_why": "raised: every live replica keeps up"}
    )
    view.answers["throttles.listed"] = [paced]
    assert "5 (2..9: raised:" in unwrapped(regent("throttle", "show").stdout)
    [found] = items("throttle", "show")
    assert (found["rateBytesPerSMin"], found["rateBytesPerSMax"]) == (2, 9)
    assert found["rateWhy"].startswith("raised")


def test_the_list_shows_settings_that_nobody_owns_and_the_command_that_removes_them(view: Answering) -> None:
    leaves(view, LEFT)
    found = regent("throttle", "show")
    assert found.stdout.splitlines()[-1].split() == ["nobody", "broker", "3", LEFT.setting, "9"]
    assert "1 settings have no owner" in found.stderr
    assert "regent throttle clear" in found.stderr
    own, rest = items("throttle", "show")
    assert (own["pid"], rest["kind"], rest.get("pid"), rest["settings"][0]["value"]) == (12, "nobody", None, "9")


def test_settings_are_removed_after_a_question_and_a_dry_run_removes_none(view: Answering) -> None:
    leaves(view, LEFT)
    [planned] = items("throttle", "clear", 3, "--topic", "a", "--dry-run")
    assert planned["outcome"] == "planned"
    assert view.noted(*REQUESTS) == [ClearRequest(brokers=[3], topics=["a"], dry_run=True)]
    assert "give --yes" in regent("throttle", "clear", code=Exit.USAGE).stderr
    assert all(isinstance(one, ClearRequest) and one.dry_run for one in view.noted(*REQUESTS))
    assert "1 cleared" in regent("throttle", "clear", "--yes", "--reason", "left").stderr
    assert view.noted(*REQUESTS)[-1] == ClearRequest(reason="left")


def test_a_setting_that_is_kept_is_exit_code_3_and_none_at_all_is_success(view: Answering) -> None:
    assert "no throttle setting is in ZooKeeper" in regent("throttle", "clear", "--yes").stderr
    named = unwrapped(regent("throttle", "clear", 9, "--yes").stderr)
    assert "no throttle setting of these brokers and topics is in ZooKeeper" in named
    leaves(view, LEFT.model_copy(update={"outcome": "kept", "why": "another client needs it"}))
    found = regent("throttle", "clear", "--yes", code=Exit.REFUSED)
    assert "another client needs it" in found.stdout
    assert "1 kept" in found.stderr
