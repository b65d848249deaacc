"""A stream whose processes are killed ten times, while two daemons write and begin files: no row is lost or doubled."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from controller.journal.segments import Bounds, Segments
from tests.real.pipeline.fast import FAST, WITHOUT_CODE
from tests.real.pipeline.logs import rows, text

pytest.importorskip("pyspark", reason="the extra 'pipeline' is not installed")

from pipeline import merge
from pipeline.gaps import EXPIRED
from pipeline.layout import manifest_of
from pipeline.merge import Workers
from pipeline.session import CannotStart, need_java
from tests.real.pipeline.test_merge import rows_of

KILLS = 10
STEP_S_MAX = 300.0
"""Longest wait for a start of Spark, or for a batch, on a busy machine."""
AFTER_S_MAX = 4.0
"""The kill comes so long after a batch, or earlier: a batch takes about as long."""
TERM_ROWS = 400
BOUNDS = Bounds(bytes_max=1 << 30, age_s_max=86_400.0, segment_bytes=8_000, segment_s=1.0)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lets two daemons write terms in turn, into files of a few rows."""
    ended = Event()

    def write() -> None:
        daemons = itertools.cycle([(each, Segments(folder / f"d{each}", BOUNDS, sync=False)) for each in (1, 2)])
        for epoch, (daemon, segments) in enumerate(daemons, 1):
            events = [{"kind": "ISR", "topic": f"t{number % 7}", "partition": 0} for number in range(TERM_ROWS)]
            for row in rows("c", epoch, daemon, *events):
                segments.append(epoch, row["seq"], text([row]).encode())
                if ended.wait(0.02):
                    segments.close()
                    return

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Stream:
    """The process of the stream with all that it started."""

    def __init__(self, folder: Path, log: Path, *options: str) -> None:
        settings = [f"--conf={name}={value}" for name, value in (FAST | WITHOUT_CODE).items()]
        words = [sys.executable, "-m", "pipeline", "stream", *(str(folder / name) for name in ("copy", "d1", "d2"))]
        into = ["--into", str(folder / "out"), "--checkpoint", str(folder / "checkpoint"), "--master", "local[1]"]
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [*words, *into, *settings, *options], stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def until(condition: Callable[[], bool], stream: Stream) -> None:
    end = time.monotonic() + STEP_S_MAX
    while not condition():
        assert stream.process.poll() is None, "the stream ended by itself"
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ten_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    seed = random.SystemRandom().randrange(1 << 32)
    chosen = random.Random(seed)
    log, manifest = tmp_path / "log", tmp_path / "out/manifest.json"
    for name in ("copy", "d1", "d2"):
        (tmp_path / name).mkdir()

    def changed(before: int) -> bool:
        return manifest.exists() and manifest.stat().st_mtime_ns != before

    with writing(tmp_path):
        for kill in range(KILLS):
            stream = Stream(tmp_path, log, "--interval", "1s")
            before = manifest.stat().st_mtime_ns if manifest.exists() else 0
            until(lambda before=before: changed(before), stream)  # type: ignore[misc]
            time.sleep(chosen.uniform(0, AFTER_S_MAX))
            stream.kill()
            copied(chosen, tmp_path, torn=kill % 2 == 0)
    last = Stream(tmp_path, log, "--once", "--closed-after", "0s")
    assert last.process.wait(STEP_S_MAX) == 0, log.read_text()[-4_000:]

    here = Workers(lambda function, values, _=None: [function(value) for value in values], 2)
    ingested = merge.merge(here, [str(tmp_path / name) for name in ("copy", "d1", "d2")], str(tmp_path / "ingested"))
    made = manifest_of(str(tmp_path / "out"))
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "ingested"), f"seed {seed}"
    assert made.rows > TERM_ROWS
    assert made.lines == made.rows + made.copies + made.quarantined
    assert {gap.kind for gap in ingested.gaps} <= {EXPIRED, "CUT_SHORT"}
    print(f"{made.rows} rows, {made.copies} copies, {len(made.files)} batches with rows, {KILLS} kills")


def copied(chosen: random.Random, folder: Path, *, torn: bool) -> None:
    """Copies a file, the first part of it or all."""
    path = chosen.choice(sorted(folder.glob("d*/*.jsonl")))
    whole = path.read_bytes()
    (folder / "copy" / path.name).write_bytes(whole[: len(whole) // 2] if torn else whole)
    shutil.copystat(path, folder / "copy" / path.name)
