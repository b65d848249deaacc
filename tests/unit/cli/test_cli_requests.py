"""The options of a command reach the daemon, each of them, and of several things each one counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cli.client import Client
from cli.commands.reassign_plan import _goal
from cli.exit_codes import Exit, Failure
from state_machines.planning import goals
from tests.kit.cli_kit import items, regent, unwrapped

Json = dict[str, Any]
ENDED: Json = {"kind": "throttle", "state": "success", "ended": True, "stuck": False, "unusable": ""}


class Daemon:
    """Responds to the client in place of a daemon, and notes requests. ``failed``: pids that were undone."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Json]] = []
        self.queries: list[Json] = []
        self.failed: set[int] = set()
        self.failure: Failure | None = None

    def item(self, pid: int) -> Json:
        return {"pid": pid, **ENDED} | ({"state": "rolledback"} if pid in self.failed else {})

    def post(self, path: str, body: Json) -> Json:
        self.posted.append((path, body))
        if self.failure is not None:
            raise self.failure
        return {"items": [self.item(pid) for pid in body.get("pids") or [1]]}

    def get(self, path: str, params: Json | None = None) -> Json:
        self.queries.append(dict(params or {}))
        if path == "/v1/reassignments":
            whole = {"origin": [1], "target": [2], "by": "another client"}
            return {"items": [{"topic": name, "partition": 0, **whole} for name in ("a", "b", "c")]}
        if path == "/v1/restart-next":
            return {"items": [{"state": "restart", "batch": [1], "why": "restart broker 1 now", "hindrances": []}]}
        return {"items": [self.item(int(path.rpartition("/")[2]))]}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    found = Daemon()
    with mock.patch.object(Client, "post", found.post), mock.patch.object(Client, "get", found.get):
        yield found


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("regions", "move", 17, "kv-2", "--force"), {"server": "kv-2", "force": True}),
        (("regions", "move", 17, "kv-2", "--dry-run"), {"force": False, "dryRun": True}),
        (("regions", "assign", 17, "--to", "kv-2"), {"server": "kv-2"}),
        (("servers", "drain", "kv-1", "--force"), {"force": True}),
        (("servers", "drain", "kv-1"), {"force": False}),
        (("elect", "preferred", "--all", "--batch", 200), {"allPartitions": True, "batchMax": 200}),
        (("reassign", "resume", 12, "--throttle", 5), {"paused": False, "rateBytesPerS": 5}),
        (("restart", "begin", "--batch-max", 2, "--accept", "offline"), {"batchMax": 2, "accept": ["offline"]}),
    ],
    ids=lambda words: " ".join(map(str, words)) if isinstance(words, tuple) else "",
)
def test_each_option_reaches_the_daemon(daemon: Daemon, words: tuple[object, ...], wanted: Json) -> None:
    regent(*words)
    [(_, body)] = daemon.posted
    assert {name: body[name] for name in wanted} == wanted


def test_a_restart_that_waits_for_its_batch_sends_the_accepted_causes(daemon: Daemon) -> None:
    regent("restart-next", "--accept", "offline", "--batch-max", 3)
    assert daemon.queries == [{"since": [], "batchMax": 3, "accept": ["offline"]}]


@pytest.mark.parametrize(("failed", "code"), [(set(), Exit.DONE), ({12}, Exit.FAILED), ({14}, Exit.FAILED)])
def test_a_wait_for_lifted_throttles_ends_by_each_of_them(daemon: Daemon, failed: set[int], code: Exit) -> None:
    daemon.failed = failed
    found = items("throttle", "lift", 12, 13, 14, "--wait", code=code)
    assert [one["pid"] for one in found] == [12, 13, 14]


def test_reassignments_of_several_topics_are_listed_and_adopted(daemon: Daemon) -> None:
    given = ("--topic", "a", "--topic", "c")
    assert [one["topic"] for one in items("reassign", "list", *given)] == ["a", "c"]
    regent("reassign", "adopt", *given, "--yes")
    [(_, body)] = daemon.posted
    assert [(move["topic"], move["origin"]) for move in body["moves"]] == [("a", [1]), ("c", [1])]


def test_split_keys_come_from_a_file_or_a_number_of_regions_is_given(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("g\n\nn\n")
    regent("tables", "create", "t", "--splits-file", file, "--regions", 4, code=Exit.USAGE)
    assert not daemon.posted
    regent("tables", "create", "t", "--split", "a", "--splits-file", file)
    [(_, body)] = daemon.posted
    assert body["splits"] == ["a", "g", "n"]


def test_a_goal_holds_for_the_topics_that_are_given() -> None:
    topics = ("a", "b")
    assert _goal(None, [3], None, None, False, topics) == goals.Decommission((3,), topics)
    assert _goal(None, None, [7, 8], None, False, topics) == goals.Add((7, 8), topics)
    assert _goal(None, None, None, 2, False, topics) == goals.ReplicationFactor(topics, 2)
    assert _goal(None, None, None, None, True, topics) == goals.RestoreRacks(topics)


@pytest.mark.parametrize(("code", "again"), [(Exit.UNREACHABLE, True), (Exit.REFUSED, False)])
def test_a_plan_whose_response_was_lost_is_sent_again_by_its_nonce(
    daemon: Daemon, tmp_path: Path, code: Exit, again: bool
) -> None:
    """The daemon may have begun it; one that it refused has not begun."""
    file = tmp_path / "plan.json"
    file.write_text('{"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1]}]}')
    daemon.failure = Failure(code, "it failed", "the remedy of the daemon")
    said = unwrapped(regent("reassign", "apply", file, "--yes", code=code).stderr)
    [(_, body)] = daemon.posted
    assert (body["nonce"] in said) is again
    assert ("the remedy of the daemon" in said) is not again
