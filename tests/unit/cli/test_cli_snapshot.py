"""regent snapshot: requests one, and waits for its file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.exit_codes import Exit
from tests.kit.command import items, regent, unwrapped
from tests.kit.http_world import DaemonDouble, daemon_in_thread


@pytest.fixture(autouse=True)
def view(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonDouble]:
    found = DaemonDouble()
    monkeypatch.setattr("cli.commands.snapshot.POLL_S", 0.0)
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), found) as socket:
        monkeypatch.setenv("REGENT_SERVER", str(socket))
        yield found


def test_a_snapshot_is_requested_and_not_waited_for(view: DaemonDouble) -> None:
    said = regent("snapshot", "--reason", "before the move").stdout
    assert said == "snapshot 1 is waiting; see: regent list snapshots\n"
    [(request, _)] = view.taken.seen
    assert request.reason == "before the move"


def test_with_wait_the_file_is_named(view: DaemonDouble) -> None:
    view.taken.left = 3
    assert regent("snapshot", "--wait").stdout == "/s/1.jsonl.gz: 5 partitions, 3 brokers, 700 bytes, in 12 ms\n"
    [item] = items("snapshot", "--wait")
    assert (item["state"], item["file"], item["fileBytes"]) == ("done", "/s/1.jsonl.gz", 700)
    assert "/s/1.jsonl.gz" in regent("list", "snapshots").stdout


def test_a_failed_snapshot_fails_the_command(view: DaemonDouble) -> None:
    view.taken.end = {"state": "failed", "error": "No space left on device"}
    said = unwrapped(regent("snapshot", "--wait", code=Exit.FAILED).stderr)
    assert "no snapshot: No space left on device" in said


def test_a_snapshot_that_outlasts_the_wait_is_unfinished(view: DaemonDouble) -> None:
    view.taken.left = 10**9
    regent("snapshot", "--wait", "--timeout", "1", code=Exit.UNFINISHED)
