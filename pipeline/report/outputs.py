"""Writes a report: the page, the JSON, the topics as CSV and the intervals as Parquet, each aside and then renamed."""

from __future__ import annotations

import csv
import io
import uuid
from typing import Final

import msgspec
from pyarrow import fs

from pipeline.layout import in_folder
from pipeline.report.page import page
from pipeline.report.result import Result
from pipeline.storage import place, written

PAGE: Final = "report.html"
RESULT: Final = "report.json"
TOPICS: Final = "topics.csv"
INTERVALS: Final = "intervals"
ASIDE: Final = "_unfinished-"
HEADS: Final = (
    *("topic", "partitions", "intervals", "known_s", "at_most_s", "longest_s", "longest_at_most_s"),
    *("availability", "availability_at_least", "nines", "under_target_s", "under_min_s"),
)


def aside(folder: str) -> str:
    """Returns a folder inside for the intervals of this run, and removes those that killed runs left."""
    store, inside = place(folder)
    store.create_dir(inside, recursive=True)
    for each in store.get_file_info(fs.FileSelector(inside)):
        if each.base_name.startswith(ASIDE) and each.type == fs.FileType.Directory:
            store.delete_dir(each.path)
    return in_folder(folder, f"{ASIDE}{uuid.uuid4().hex}")


def discard(intervals: str) -> None:
    """Removes the folder of a run that failed."""
    store, inside = place(intervals)
    if store.get_file_info(inside).type == fs.FileType.Directory:
        store.delete_dir(inside)


def write(result: Result, folder: str, intervals: str) -> None:
    """Writes all files and puts the folder ``intervals`` in its place; the JSON comes last."""
    store, inside = place(in_folder(folder, INTERVALS))
    if store.get_file_info(inside).type != fs.FileType.NotFound:
        store.delete_dir(inside)
    store.move(place(intervals)[1], inside)
    encoded = msgspec.json.format(msgspec.json.encode(result), indent=2)
    for name, content in ((TOPICS, topics_csv(result).encode()), (PAGE, page(result).encode()), (RESULT, encoded)):
        with written(in_folder(folder, name), uuid.uuid4().hex) as stream:
            stream.write(content)


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
                *(topic.under_target_s, topic.under_min_s),
            )
        )
    return text.getvalue()
