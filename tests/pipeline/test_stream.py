"""The data source regent_journal, and a stream over a crash between its folder and Spark's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import jobs
from pipeline.layout import manifest_of
from pipeline.stream.batch import Kept
from pipeline.stream.bronze import keeper
from pipeline.stream.query import Keeper, journals, run
from pipeline.stream.source import NAME, RegentJournal
from tests.pipeline.logs import sound, text
from tests.pipeline.stream_kit import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONCE = {"availableNow": True}


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Writes the journals of two daemons, one with a line that is no row."""
    for daemon, epoch in ((1, 5), (2, 6)):
        folder = tmp_path / f"d{daemon}"
        folder.mkdir()
        lines = text(row for row in sound("c") if row["ctl_id"] == daemon)
        (folder / f"{epoch:010d}-000000000001.jsonl").write_text(lines + ("no row\n" if daemon == 1 else ""))
    return [str(tmp_path / "d1"), str(tmp_path / "d2")]


def test_a_notebook_reads_the_rows_of_a_folder_and_says_which_lines_are_none(
    spark: SparkSession, folders: list[str]
) -> None:
    spark.dataSource.register(RegentJournal)

    found = spark.read.format(NAME).load(folders[0]).select("ctl_epoch", "seq", "isr1", "bad.why").collect()

    rows = [row for row in sound("c") if row["ctl_id"] == 1]
    assert [(row[0], row[1], row[2]) for row in found if row.why is None] == [
        (row["ctl_epoch"], row["seq"], row.get("isr1")) for row in rows
    ]
    assert [row.why for row in found if row.why] == ["it is torn"]


def test_a_batch_that_spark_repeats_after_a_crash_is_kept_once(
    spark: SparkSession, folders: list[str], tmp_path: Path
) -> None:
    into, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    told: list[Kept] = []

    def crashes(query: str) -> Keeper:
        keep = keeper(into, query)

        def kept(number: int, batch: Any) -> Kept:
            keep(number, batch)
            raise MemoryError("the process ends here")

        return kept

    def started(make: Callable[[str], Keeper]) -> None:
        run(journals(spark, folders, 0), make, checkpoint, ONCE, told.append, Event())

    with pytest.raises(Exception, match="the process ends here"):
        started(crashes)
    started(partial(keeper, into))

    jobs.ingest(spark, folders, str(tmp_path / "ingested"))
    assert [each.again for each in told] == [True]
    assert rows_of(into) == rows_of(tmp_path / "ingested")
    assert manifest_of(into).kinds == manifest_of(str(tmp_path / "ingested")).kinds
    assert jobs.audit(spark, into)["clean"]


def test_a_stream_that_is_told_to_end_ends_without_an_error(
    spark: SparkSession, folders: list[str], tmp_path: Path
) -> None:
    into, ended = str(tmp_path / "out"), Event()

    run(
        journals(spark, folders, 0),
        partial(keeper, into),
        str(tmp_path / "checkpoint"),
        {"processingTime": "1 second"},
        lambda _: ended.set(),
        ended,
    )

    assert manifest_of(into).rows == len(sound("c"))
