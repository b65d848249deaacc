"""regent snapshot: requests one, and waits for its file."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cli.exit_codes import Exit
from controller.operator.snapshots import SnapshotItem
from tests.kit.answering import ANSWERS, Answering
from tests.kit.command import items, regent, unwrapped

pytestmark = pytest.mark.usefixtures("view")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.commands.snapshot.POLL_S", 0.0)


def ends_after(view: Answering, looks: int, **end: Any) -> None:
    """Has the snapshot end after so many looks."""
    done = {"state": "done", "file": "/s/1.jsonl.gz", "partitions": 5, "brokers": 3, "file_bytes": 700, "took_ms": 12}
    ended = ANSWERS["snapshots.described"].model_copy(update=end or done)

    def described(_: int) -> SnapshotItem:
        if len(view.noted("snapshots.described")) < looks:
            return cast("SnapshotItem", ANSWERS["snapshots.described"])
        view.answers["snapshots.listed"] = [ended]
        return cast("SnapshotItem", ended)

    view.answers["snapshots.described"] = described


def test_a_snapshot_is_requested_and_not_waited_for(view: Answering) -> None:
    said = regent("snapshot", "--reason", "before the move").stdout
    assert said == "snapshot 1 is waiting; see: regent list snapshots\n"
    [request] = view.noted("snapshots.requested")
    assert request.reason == "before the move"


def test_with_wait_the_file_is_named(view: Answering) -> None:
    ends_after(view, 3)
    assert regent("snapshot", "--wait").stdout == "/s/1.jsonl.gz: 5 partitions, 3 brokers, 700 bytes, in 12 ms\n"
    [item] = items("snapshot", "--wait")
    assert (item["state"], item["file"], item["fileBytes"]) == ("done", "/s/1.jsonl.gz", 700)
    assert "/s/1.jsonl.gz" in regent("list", "snapshots").stdout


def test_a_failed_snapshot_fails_the_command(view: Answering) -> None:
    ends_after(view, 1, state="failed", error="No space left on device")
    said = unwrapped(regent("snapshot", "--wait", code=Exit.FAILED).stderr)
    assert "no snapshot: No space left on device" in said


def test_a_snapshot_that_outlasts_the_wait_is_unfinished(view: Answering) -> None:
    regent("snapshot", "--wait", "--timeout", "1", code=Exit.UNFINISHED)
