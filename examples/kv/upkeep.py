"""Writes the files of regions in the background: many edits, an old segment of the log, or what they refer to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from examples.kv import regions, snapshots
from examples.kv.memory import Region
from examples.kv.writer import Fenced, Log
from regent_agent.service import OpenedRegion

FLUSH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Edits of a region from which on its file is written anew."""
SEGMENTS_MAX: Final = 8
"""Segments of the log from which on the regions that need the oldest one are flushed."""


class Upkeep:
    """Writes one region after another. ``owned``: the regions of this process, which come and go.

    ``independent``: gets each region whose file refers to no other region any more.
    """

    def __init__(
        self,
        data: Path,
        log: Log,
        owned: Mapping[int, Region],
        independent: Callable[[OpenedRegion], None],
        flush_bytes_max: int,
    ) -> None:
        self._data = data
        self._log = log
        self._owned = owned
        self._independent = independent
        self._flush_bytes_max = flush_bytes_max
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begins to write what is due, unless it is being done."""
        if self._next() is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def flush(self, region: Region, *, whole: bool, snapshot: str = "") -> None:
        """Writes what the file of a region does not have. ``whole``: it is to refer to no other region after that.

        ``snapshot``: identity of one that gets a copy of the file. Its latest edits may not be durable in the log yet.
        """
        async with region.flushing:
            if region.closing and whole and not snapshot:
                return  # its close has written all edits
            if region.unflushed_from or (whole and region.sources):
                content = region.begin_flush(self._log.segment, whole=whole)
                await asyncio.to_thread(regions.save, self._data, region.number, region.token, content)
                region.end_flush(content)
            if snapshot:
                file = regions.file_of(self._data, region.number, region.token)
                await asyncio.to_thread(snapshots.stage, self._data, snapshot, region.number, region.token, file)
        if region.dependent and not region.sources and not region.closing:
            region.dependent = False
            self._independent(region.opened)

    async def _run(self) -> None:
        try:
            while (region := self._next()) is not None:
                await self.flush(region, whole=True)
                kept = [one.unflushed_from for one in self._owned.values() if one.unflushed_from]
                await self._log.delete_below(min(kept, default=self._log.segment))
        except OSError as error:
            with contextlib.suppress(Fenced, OSError):
                await self._log.confirm()  # a process that was fenced lacks what a later owner has deleted
            self._log.fail(error)

    def _next(self) -> Region | None:
        """Returns a region with many edits, or that keeps the oldest segment of a long log, or that has sources."""
        unflushed = [region for region in self._owned.values() if region.unflushed_from]
        oldest = min((region.unflushed_from for region in unflushed), default=self._log.segment)
        long = self._log.segment - oldest >= SEGMENTS_MAX
        for region in unflushed:
            if region.unflushed_bytes >= self._flush_bytes_max or (long and region.unflushed_from == oldest):
                return region
        return next((one for one in self._owned.values() if one.dependent and not one.closing), None)
