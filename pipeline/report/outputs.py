"""Writes a report: the page, the JSON, the topics as CSV and the intervals as Parquet, each aside and then renamed."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec
from msgspec.structs import replace
from pyarrow import fs

from pipeline.layout import BUCKETS, in_folder
from pipeline.report.page import page
from pipeline.report.result import Result
from pipeline.storage import listed, place, remove, written

PAGE: Final = "report.html"
RESULT: Final = "report.json"
TOPICS: Final = "topics.csv"
INTERVALS: Final = "intervals"
ASIDE: Final = "_unfinished-"
NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF})
"""Errors of a file system that has no locks of folders."""
HEADS: Final = (
    *("topic", "partitions", "intervals", "known_s", "at_most_s", "longest_s", "longest_at_most_s"),
    *("availability", "availability_at_least", "nines", "under_target_s", "under_min_s", "min_isr_unknown_s"),
)


class InUse(Exception):
    """Another report is being made in the folder; the message names it and says what to do."""


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """Makes the folder, and keeps it for one report at a time; raises :class:`InUse`, ``OSError``.

    Only a folder of this machine is kept so, and the lock ends with its process.
    """
    store, inside = place(folder)
    store.create_dir(inside, recursive=True)
    if not isinstance(store, fs.LocalFileSystem):
        yield
        return
    kept = os.open(inside, os.O_RDONLY)
    try:
        _lock(kept, folder)
        yield
    finally:
        os.close(kept)


def _lock(opened: int, folder: str) -> None:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(
            f"another report is being made in {folder}: wait for its end, or name another folder by --into"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def aside(folder: str) -> str:
    """Returns a folder inside for the intervals of this run, and removes those that killed runs left."""
    store, inside = place(folder)
    for each in store.get_file_info(fs.FileSelector(inside)):
        if each.base_name.startswith(ASIDE) and each.type == fs.FileType.Directory:
            store.delete_dir(each.path)
    return in_folder(folder, f"{ASIDE}{uuid.uuid4().hex}")


def discard(intervals: str) -> None:
    """Removes the folder of a run with what is in it."""
    store, inside = place(intervals)
    if store.get_file_info(inside).type == fs.FileType.Directory:
        store.delete_dir(inside)


def write(result: Result, folder: str, intervals: str) -> Result:
    """Writes all files and gives the files in the folder ``intervals`` their names; returns the result with these.

    All is written aside before anything is renamed, and the JSON comes last. Then intervals that it does not name are
    removed, so an error leaves the report that was there. Raises ``OSError``.
    """
    run = uuid.uuid4().hex
    parts = [path for path, _ in listed(intervals)]
    if len(parts) != BUCKETS:
        raise OSError(
            f"{len(parts)} of {BUCKETS} files of intervals are left, another report was made there; repeat it"
        )
    names = [f"{INTERVALS}/{run}-{bucket:02d}.parquet" for bucket in range(BUCKETS)]
    result = replace(result, interval_files=names)
    encoded = msgspec.json.format(msgspec.json.encode(result), indent=2)
    try:
        with ExitStack() as renamed:
            # The file that is entered last is renamed first.
            for name, content in (
                (RESULT, encoded),
                (PAGE, page(result).encode()),
                (TOPICS, topics_csv(result).encode()),
            ):
                stream = renamed.enter_context(written(in_folder(folder, name), run))
                stream.write(content)
            store, inside = place(in_folder(folder, INTERVALS))
            store.create_dir(inside, recursive=True)
            for path, name in zip(parts, names, strict=True):
                store.move(place(path)[1], place(in_folder(folder, name))[1])
    except BaseException:
        for name in names:
            remove(in_folder(folder, name))
        raise
    for path, _ in listed(in_folder(folder, INTERVALS), ".parquet"):
        if not path.rpartition("/")[2].startswith(run):
            remove(path)
    discard(intervals)
    return result


def topics_csv(result: Result) -> str:
    """Returns a line for each topic, empty where a figure is not known."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(HEADS)
    for topic in result.topics:
        cost = topic.cost
        lines.writerow(
            (
                *(topic.topic, topic.partitions, cost.intervals, cost.known_s, cost.at_most_s, cost.longest_s),
                *(cost.longest_at_most_s, topic.availability, topic.availability_at_least, topic.nines),
                *(topic.under_target_s, topic.under_min_s, topic.min_isr_unknown_s),
            )
        )
    return text.getvalue()
