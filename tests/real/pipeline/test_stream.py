"""A stream on Spark, over a crash between its folder and Spark's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.layout import manifest_of
from pipeline.stream.batch import Kept, parted
from pipeline.stream.bronze import keeper
from pipeline.stream.query import Keeper, Trigger, journals, run
from pipeline.stream.source import RegentJournal
from tests.real.pipeline.logs import sound
from tests.real.pipeline.plain_ingest import expected
from tests.real.pipeline.stream_kit import as_table, rows_of, two_daemons

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_folder_is_read_as_rows_and_as_lines_that_are_none(tmp_path: Path) -> None:
    source = RegentJournal({"path": two_daemons(tmp_path)[0]})
    reader = source.reader(source.schema())

    found = parted(as_table([batch for part in reader.partitions() for batch in reader.read(part)]))

    rows = [row for row in sound("c") if row["ctl_id"] == 1]
    assert found.rows.select(["ctl_epoch", "seq", "isr1"]).to_pylist() == [
        {"ctl_epoch": row["ctl_epoch"], "seq": row["seq"], "isr1": row.get("isr1")} for row in rows
    ]
    assert found.bad["why"].to_pylist() == ["it is torn"]


def test_a_batch_that_spark_repeats_after_a_crash_is_kept_once_and_the_stream_ends_when_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    folders = two_daemons(tmp_path)
    into, checkpoint, ended = str(tmp_path / "out"), str(tmp_path / "checkpoint"), Event()
    told: list[Kept] = []

    def crashes(query: str) -> Keeper:
        keep = keeper(into, query)

        def kept(number: int, batch: Any) -> Kept:
            keep(number, batch)
            raise MemoryError("the process ends here")

        return kept

    def tell(kept: Kept) -> None:
        told.append(kept)
        ended.set()

    def started(make: Callable[[str], Keeper], trigger: Trigger) -> None:
        run(journals(spark, folders, 0), make, checkpoint, trigger, tell, ended)

    with pytest.raises(Exception, match="the process ends here"):
        started(crashes, {"availableNow": True})
    started(partial(keeper, into), {"processingTime": "1 second"})

    wanted = expected(path for folder in folders for path in Path(folder).iterdir())
    assert [each.again for each in told] == [True]
    assert rows_of(into) == wanted.rows
    assert manifest_of(into).quarantined == wanted.quarantined
