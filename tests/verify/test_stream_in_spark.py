"""The data source regent_journal in Spark, and a stream that ends when it has read all, beside an ingest."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="the extra 'pipeline' is not installed")

from pipeline import jobs
from pipeline.layout import manifest_of
from pipeline.stream.batch import Kept
from pipeline.stream.bronze import keeper
from pipeline.stream.query import journals, run
from pipeline.stream.source import NAME, RegentJournal
from tests.real.pipeline.fast import sessions
from tests.real.pipeline.logs import sound
from tests.real.pipeline.stream_kit import rows_of, two_daemons


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    yield from sessions()


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    return two_daemons(tmp_path)


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


def test_a_stream_that_ends_when_it_has_read_all_has_what_an_ingest_has(
    spark: SparkSession, folders: list[str], tmp_path: Path
) -> None:
    into, told = str(tmp_path / "out"), list[Kept]()

    run(
        journals(spark, folders, 0),
        partial(keeper, into),
        str(tmp_path / "checkpoint"),
        {"availableNow": True},
        told.append,
        Event(),
    )

    jobs.ingest(spark, folders, str(tmp_path / "ingested"))
    assert [(each.rows, each.quarantined) for each in told] == [(len(sound("c")), 1)]
    assert rows_of(into) == rows_of(tmp_path / "ingested")
    assert manifest_of(into).kinds == manifest_of(str(tmp_path / "ingested")).kinds
    assert jobs.audit(spark, into)["clean"]
