"""Reads from a journal when brokers died in the terms that this daemon had just before the present one.

The journal has what this daemon saw. Where another controller had a term in between, a broker may have come and gone
unseen, so only terms without a gap between their epochs count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from controller.journal.query import HISTORY_BYTES_MAX, rows_with
from controller.journal.reader import LINE_BYTES_MAX, parsed
from controller.journal.segments import SegmentName, segments_in
from state_machines.journal.events import Kind, Row

NEEDLE: Final = b'"kind":"BROKER_'
"""Begin of the kinds of rows that brokers have alone."""


def departures(folder: Path, cluster: str, epoch: int) -> dict[int, int]:
    """Returns the times, in milliseconds, at which brokers died that had not come back when term ``epoch`` began.

    It reads at most ``HISTORY_BYTES_MAX`` of the newest files, a megabyte at a time: the daemon calls it beside its
    loop.
    """
    found: dict[int, int] = {}
    for path in _joined(folder, cluster, epoch):
        for row in rows_with(path, NEEDLE):
            if row.broker is not None and row.kind == Kind.BROKER_DOWN:
                found[row.broker] = row.ts_us // 1_000
            elif row.broker is not None and row.kind == Kind.BROKER_UP:
                found.pop(row.broker, None)
    return found


def _joined(folder: Path, cluster: str, epoch: int) -> Iterator[Path]:
    """Yields the files of the terms before ``epoch``, oldest first, as far back as no epoch is missing."""
    chosen: list[Path] = []
    left, expected = HISTORY_BYTES_MAX, epoch
    for path in reversed(segments_in(folder)):
        name = SegmentName.of(path)
        if name is None or name.epoch >= epoch or _cluster_of(path) != cluster:
            continue
        if name.epoch < expected - 1 or left <= 0:
            break
        expected = name.epoch
        left -= path.stat().st_size
        chosen.append(path)
    yield from reversed(chosen)


def _cluster_of(path: Path) -> str | None:
    """Returns the cluster of a file's rows; None where the first one cannot be read."""
    with path.open("rb") as file:
        row = parsed(file.readline(LINE_BYTES_MAX))
    return row.cluster if isinstance(row, Row) else None
