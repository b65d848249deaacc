"""Writes the log of this process: one fsync, and one look for the marker of a fence, for all answers that wait."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from examples.kv import files, logs
from examples.kv.records import Edit, encode

SEGMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size from which on a new segment begins."""


class Fenced(Exception):
    """Another server has fenced this process: nothing may be answered any more, and the process ends."""


class Segments:
    """Writes segments, one after another, in the calling thread."""

    def __init__(self, data: Path, server: str, incarnation: int, bytes_max: int = SEGMENT_BYTES_MAX) -> None:
        self._folder = logs.make_folder(data, server, incarnation)
        self._bytes_max = bytes_max
        self.number = 0
        self._handle = -1
        self._begin()

    def write(self, records: bytes) -> None:
        """Makes records durable; returns only where the process was not fenced after that, else raises Fenced."""
        if records:
            if self._size >= self._bytes_max:
                self._begin()
            files.append(self._handle, records)
            os.fsync(self._handle)
            self._size += len(records)
        if (self._folder / logs.MARKER).exists():
            raise Fenced(f"{self._folder / logs.MARKER} exists: other servers have this process's regions")

    def delete_below(self, number: int) -> None:
        """Deletes segments whose edits are all in files of regions."""
        for name in logs.segments(self._folder):
            if name < logs.name_of(number):
                (self._folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._handle)

    def _begin(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self.number += 1
        path = self._folder / logs.name_of(self.number)
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0
        files.sync(self._folder)


class Log:
    """Collects edits and answers on the event loop, and writes them in rounds in a thread of its own."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._thread = ThreadPoolExecutor(1, "kv-log")
        self._records: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._round: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Has the reason once nothing can be answered any more: :class:`Fenced`, or the failure of a write."""

    @property
    def segment(self) -> int:
        """Returns a segment that is not newer than the one that the next edit goes to."""
        return self._segments.number

    def append(self, edit: Edit) -> None:
        """Takes an edit for the next round."""
        self._records.append(encode(edit))

    async def confirm(self) -> None:
        """Returns once all edits up to now are durable, and the process was not fenced after that; or raises.

        Every answer to a client waits for this, also of a read: it may have seen an edit that is not durable yet, and
        the process may have been frozen and fenced before.
        """
        if self.failed.done():
            raise self.failed.result()
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._write_rounds())
        await waiting

    def fail(self, error: Exception) -> None:
        """Answers nothing any more, because of a failure."""
        if not self.failed.done():
            self.failed.set_result(error)
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()

    async def delete_below(self, segment: int) -> None:
        """Deletes segments whose edits are all in files of regions."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._segments.delete_below, segment)

    async def close(self) -> None:
        """Ends the last round, and closes the file."""
        if self._round is not None:
            await self._round
        self._thread.shutdown()
        self._segments.close()

    async def _write_rounds(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            records, self._records = b"".join(self._records), []
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._segments.write, records)
            except (Fenced, OSError) as error:
                self._waiting += waiting
                self.fail(error)
                return
            for answer in waiting:
                if not answer.done():
                    answer.set_result(None)
