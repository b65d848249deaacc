"""Causes what keeps daemons from writing their files, on the stage of :mod:`tests.verify.watched.faults`."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from controller.kafka.snapshots.writer import folder_in
from testing.znodes import create_topic
from tests.verify.watched.mending import gone, other, value
from tests.verify.watched.stage import Watched

JOURNAL_BYTES: Final = 16_777_216
FULL_PARTITIONS: Final = 100
"""Their rows do not fit into what is left of the last page of a full disk."""


@asynccontextmanager
async def journal_disk_full(s: Watched) -> AsyncIterator[None]:
    """Fills the disk with the journal of the active daemon, and causes decisions."""
    filler = s.daemons[await s.active()].journal / "filler"
    await asyncio.to_thread(_fill, filler)
    await create_topic(s.w.zk, "unwritten", dict.fromkeys(range(FULL_PARTITIONS), (1, 2, 3)))
    await value(s, "max(regent_journal_failing)", 1)
    yield
    await asyncio.to_thread(filler.unlink)
    await value(s, "1 - max(regent_journal_failing)", 1)
    await s.w.zk.create("/admin/delete_topics/unwritten", b"")
    await gone(s, "unwritten")


@asynccontextmanager
async def journal_topic_missing(s: Watched) -> AsyncIterator[None]:
    """Has the standby write its journal to a topic that does not exist, too, and stops the active daemon."""
    active = await s.active()
    place = other(s, active)
    former = s.daemons[place]
    await s.replace(place, s.daemon(place, settings={"journal.topic": "nowhere"}), "standby")
    await s.at(place)
    await s.daemons[active].stop()
    await s.daemons[active].boot("standby")
    await value(s, "max(regent_journal_topic_failing)", 1)
    yield
    await s.replace(place, former, "standby")
    await s.at(place)


def _fill(file: Path) -> None:
    subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=64k"], check=False, capture_output=True)


@asynccontextmanager
async def snapshots_not_written(s: Watched) -> AsyncIterator[None]:
    """Makes the active daemon's folder of snapshots read-only, and requests a snapshot."""
    place = await s.active()
    daemon = s.daemons[place]
    with disk(folder_in(daemon.folder / "state"), "ro"):
        await daemon.post("/v1/snapshots", {"reason": "a fault"})
        await value(s, "max(regent_snapshot_failures_total)", 1)
        yield
    taken = sum((await daemon.metric("regent_snapshots_total")).values())
    await daemon.post("/v1/snapshots", {"reason": "it is mended"})
    await value(s, f'regent_snapshots_total{{instance="{place}"}}', taken + 1)


@contextmanager
def disk(at: Path, mode: str = "rw") -> Iterator[None]:
    """Mounts a small file system in memory at a folder; that needs root."""
    at.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"{mode},size={JOURNAL_BYTES}", "tmpfs", str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
