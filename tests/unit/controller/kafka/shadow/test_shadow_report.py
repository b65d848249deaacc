"""Keeps the shadow's report: its lines, its file, and the counts that the next process continues."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from unittest import mock

import anyio
import pytest

from controller.kafka.shadow.report import LINE_S, SAVE_S, Report, ReportKeeper, Statistics, load, report_path
from controller.kafka.shadow.shadow import Shadow
from tests.kit.shadow_kit import TRIPLES
from tests.kit.shadow_store import reported, shadowing, stored


async def test_the_next_process_continues_the_report_of_the_last_one(tmp_path: Path) -> None:
    w, file = stored(*TRIPLES), report_path(tmp_path)
    for expected, broker in ((4, 1), (8, 2)):
        shadow = Shadow(poll_s=0.2, wait_s=1.0, file=file)
        async with shadowing(w.server, shadow):
            w.deregister(broker)
            w.controller.finish()
            await reported(shadow, lambda r: r.compared_total == expected)  # noqa: B023 - awaited here
        kept = load(file)
        assert kept is not None
        assert (kept.compared_total, kept.since_ms) == (expected, shadow.statistics.since_ms)
        w.register(broker)
        w.controller.finish()
    assert not await anyio.to_thread.run_sync(lambda: [p for p in tmp_path.iterdir() if p != file]), "no draft is left"


async def test_a_report_that_cannot_be_read_or_saved_is_logged_and_counting_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "folder" / "report.json"
    file.mkdir(parents=True)
    async with shadowing(stored(*TRIPLES).server, Shadow(poll_s=0.2, wait_s=1.0, file=file)):
        pass
    assert "cannot be read, counting begins anew" in caplog.text
    assert "the shadow's report cannot be saved" in caplog.text


def test_a_closed_folder_is_named_with_its_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(Path, "read_bytes", mock.Mock(side_effect=denied))
    assert load(tmp_path / "shadow-report.json") is None
    assert "is not known (Permission denied)" in caplog.text
    assert f"Remedy: give {tmp_path} to the daemon's user" in caplog.text
    assert "earlier report cannot be read" not in caplog.text


async def test_changed_counts_are_saved_each_minute_and_logged_each_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regent.shadow")
    statistics, file = Statistics(), tmp_path / "report.json"

    def report() -> Report:
        return Report({}, 0, [], {}, {}, 0, statistics.isr_changes, 0, {}, 0, None, 1)

    keeper = ReportKeeper(file, report)
    for cycle in range(3):
        begin_s = 1.0 + cycle * SAVE_S
        saved = []
        for now_s in (begin_s, begin_s + SAVE_S - 0.1):
            statistics.isr_changes += 1
            await keeper.keep(now_s)
            kept = load(file)
            saved.append(kept.isr_changes if kept is not None else 0)
        assert saved == [2 * cycle + 1] * 2
    for now_s in (LINE_S + 0.9, LINE_S + 1.0, LINE_S + 2.0, 2 * LINE_S + 1.0):
        await keeper.keep(now_s)
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == ["shadow so far"] * 2
