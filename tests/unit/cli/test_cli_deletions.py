"""regent deletions: waits of deletions, and their end for brokers that never return."""

from __future__ import annotations

import pytest

from cli.exit_codes import Exit
from controller.http.documents import NotFound
from tests.kit.answering import ANSWERS, Answering
from tests.kit.command import items, regent, unwrapped

pytestmark = pytest.mark.usefixtures("view")


def test_waits_are_listed_with_their_brokers_and_since_when() -> None:
    [item] = items("deletions", "list")
    assert (item["topic"], item["state"], item["waitsFor"]) == ("orders", "waiting", [4])
    assert "2026-01-02" in regent("deletions", "list").stdout


def test_a_wait_is_ended_after_a_warning_and_a_question(view: Answering) -> None:
    refused = regent("deletions", "give-up", "orders", "--broker", 4, code=Exit.USAGE)
    assert "--yes" in refused.stderr
    assert "the logs of orders stay on the disks of broker 4" in unwrapped(refused.stderr)
    assert view.noted("deletions.given_up") == []
    done = regent("deletions", "give-up", "orders", "--broker", 4, "--broker", 5, "--yes", "--reason", "burnt")
    [request] = view.noted("deletions.given_up")
    assert (request.topic, request.brokers, request.reason) == ("orders", [4, 5], "burnt")
    assert "orders is deleted" in unwrapped(done.stderr)
    assert "the logs of orders stay on the disks of broker 4, 5" in unwrapped(done.stderr)


def test_a_refused_end_says_nothing_of_logs_that_stay(view: Answering) -> None:
    view.answers["deletions.given_up"] = NotFound("topic orders does not exist", "see the list")
    said = unwrapped(regent("deletions", "give-up", "orders", "--broker", 4, "--yes", code=Exit.FAILED).stderr)
    assert "topic orders does not exist" in said
    assert "stay on the disks" not in said


def test_a_deletion_that_still_waits_ends_with_refused(view: Answering) -> None:
    view.answers["deletions.given_up"] = ANSWERS["deletions.listed"]
    done = regent("deletions", "give-up", "orders", "--broker", 5, "--yes", code=Exit.REFUSED)
    assert "the deletion of orders still waits" in unwrapped(done.stderr)
