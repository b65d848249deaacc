"""Saves the shadow's report on disk: its counts outlive the process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from controller.kafka.shadow.statistics import Report, Statistics
from metadata_store.content import decoded

log = logging.getLogger("regent.shadow")

NAME: Final = "shadow-report.json"

SAVE_S: Final = 60.0
"""Interval between two saves of the report."""

LINE_S: Final = 3_600.0
"""Interval between two log lines of counts."""


def report_path(folder: Path) -> Path:
    """Returns the file in a daemon's ``state.directory``."""
    return folder / NAME


def load(path: Path) -> Report | None:
    """Reads the report of an earlier process; None without a readable one."""
    try:
        return decoded(path.read_bytes(), Report)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        log.warning(
            "whether the shadow has an earlier report %s is not known (%s), counting begins anew and is not saved. "
            "Remedy: give %s to the daemon's user (chown regent:regent)",
            path,
            error.strerror,
            path.parent,
        )
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the shadow's earlier report %s cannot be read, counting begins anew: %s", path, error)
        return None


def save(path: Path, report: Report) -> None:
    """Replaces the file atomically; raises OSError and then leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{os.getpid()}.tmp")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class ReportKeeper:
    """Keeps the report of a shadow in ``file`` (None: only in memory); ``report`` returns the present one."""

    def __init__(self, file: Path | None, report: Callable[[], Report]) -> None:
        self._file = file
        self._report = report
        self._saved: Report | None = None
        self._due_save_s = self._due_line_s = 0.0

    async def resume(self, statistics: Statistics) -> None:
        """Adds the counts of an earlier process, before the first save."""
        if self._file is None or self._saved is not None:
            return
        found = await anyio.to_thread.run_sync(load, self._file)
        if found is not None:
            statistics.resume(found)
            log.info("the shadow continues its report in %s: %s", self._file, found.sentence())

    async def keep(self, now_s: float) -> None:
        """Saves the report once a minute where it changed, and logs its counts once an hour."""
        if now_s >= self._due_save_s:
            self._due_save_s = now_s + SAVE_S
            await self.save()
        if not self._due_line_s:
            self._due_line_s = now_s + LINE_S
        elif now_s >= self._due_line_s:
            self._due_line_s = now_s + LINE_S
            log.info("shadow so far: %s", self._report().sentence())

    async def save(self) -> None:
        """Saves the report where it changed; after an error the counts stay in memory."""
        report = self._report()
        if self._file is None or report == self._saved:
            return
        try:
            await anyio.to_thread.run_sync(save, self._file, report)
        except OSError as error:
            log.warning(
                "the shadow's report cannot be saved as %s: %s; counting continues in memory", self._file, error
            )
        self._saved = report
