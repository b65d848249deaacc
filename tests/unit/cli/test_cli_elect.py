"""regent elect against the double of a daemon: requests, confirmations, files, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.exit_codes import Exit
from tests.kit.answering import Answering
from tests.kit.command import items, regent, unwrapped


def seen(view: Answering) -> tuple[str, list[tuple[str, int]], bool]:
    [request] = view.noted("elections.elect")
    return request.kind, [(one.topic, one.partition) for one in request.partitions], request.all_partitions


def test_named_partitions_are_elected(view: Answering) -> None:
    items("elect", "preferred", "orders:0", "a:b.c:17", "--batch", 5, "--reason", "after the restart")
    assert seen(view) == ("preferred", [("orders", 0), ("a:b.c", 17)], False)
    [request] = view.noted("elections.elect")
    assert (request.batch_max, request.reason, bool(request.nonce)) == (5, "after the restart", True)


def test_all_partitions_are_elected_and_a_dry_run_says_so(view: Answering) -> None:
    assert items("elect", "preferred", "--all", "--dry-run")[0]["state"] == "planned"
    assert seen(view) == ("preferred", [], True)


def test_the_file_is_the_one_of_kafkas_tool(view: Answering, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "orders", "partition": 3}]}', encoding="utf-8")
    items("elect", "unclean", "--file", file, "--confirm-topic", "orders")
    assert seen(view) == ("unclean", [("orders", 3)], False)


@pytest.mark.parametrize("content", ["", "[]", '{"partitions": [{"topic": "orders"}]}', '{"version": 1}'])
def test_a_file_that_is_none_is_refused_with_an_example(view: Answering, tmp_path: Path, content: str) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(content, encoding="utf-8")
    assert "kafka-leader-election" in regent("elect", "preferred", "--file", file, code=Exit.USAGE).stderr
    assert not view.noted("elections.elect")


@pytest.mark.parametrize(
    "words",
    [
        ("preferred",),
        ("preferred", "--all", "orders:0"),
        ("preferred", "orders"),
        ("preferred", ":0"),
        ("preferred", "orders:-1"),
        ("preferred", "--all", "--batch", 0),
        ("unclean",),
        ("unclean", "--all"),
    ],
)
def test_a_command_that_says_too_little_or_too_much_is_a_usage_error(
    view: Answering, words: tuple[object, ...]
) -> None:
    regent("elect", *words, code=Exit.USAGE)
    assert not view.noted("elections.elect")


def test_an_unclean_election_needs_each_topics_name(view: Answering) -> None:
    words = ("elect", "unclean", "orders:0", "payments:1", "--confirm-topic", "orders")
    said = unwrapped(regent(*words, code=Exit.USAGE).stderr)
    assert "give --confirm-topic payments" in said
    assert not view.noted("elections.elect")
    regent(*words, "--confirm-topic", "payments")
    assert seen(view) == ("unclean", [("orders", 0), ("payments", 1)], False)


def test_a_dry_run_of_an_unclean_election_needs_no_confirmation(view: Answering) -> None:
    regent("elect", "unclean", "orders:0", "--dry-run")
    assert view.noted("elections.elect")[0].dry_run


@pytest.mark.parametrize(("typed", "code"), [("orders\n", Exit.DONE), ("order\n", Exit.REFUSED)])
def test_on_a_terminal_the_name_is_typed(
    view: Answering, monkeypatch: pytest.MonkeyPatch, typed: str, code: Exit
) -> None:
    monkeypatch.setattr("cli.commands.elect.on_terminal", lambda: True)
    regent("elect", "unclean", "orders:0", code=code, typed=typed)
    assert bool(view.noted("elections.elect")) is (code is Exit.DONE)


@pytest.mark.parametrize(("state", "code"), [("success", Exit.DONE), ("rolledback", Exit.FAILED)])
def test_wait_ends_by_the_end_of_the_election(view: Answering, state: str, code: Exit) -> None:
    view.ends(state)
    [found] = items("elect", "preferred", "--all", "--wait", code=code)
    assert found["state"] == state
