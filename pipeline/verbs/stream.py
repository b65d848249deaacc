"""Has the verb ``stream``: it follows the journals of all daemons, and keeps their rows each once."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from pipeline.ending import DONE, FAILED, REFUSED, USAGE, Stopped
from pipeline.report.wording import counted
from pipeline.verbs.options import Argument, Conf, Master, Option, Quiet, length
from pipeline.verbs.running import Shown, running

if TYPE_CHECKING:
    from pipeline.stream.batch import Kept

PARQUET: Final = "parquet"
DELTA: Final = "delta"
NO_ICEBERG: Final = (
    "there is no Apache Iceberg for Spark 4.2 or newer, which a stream needs: "
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0 does not load there"
)
EXAMPLES: Final = (
    "regent pipeline stream /journals/daemon-1 /journals/daemon-2 --into /lake/journal --checkpoint /lake/checkpoint",
    "regent pipeline stream /journals/daemon-1 --into /lake/journal --checkpoint /lake/checkpoint --once",
    "regent pipeline stream --from-kafka kafka1:9092 --topic regent --into /lake/journal --checkpoint /lake/checkpoint",
)


def stream(
    show: Shown,
    into: Annotated[str, Option("--into", "Folder that the stream fills.")],
    checkpoint: Annotated[
        str, Option("--checkpoint", "Folder in which Spark notes what was read; it belongs to --into.")
    ],
    journals: Annotated[list[str] | None, Argument("Folders of journals, one of each daemon.")] = None,
    from_kafka: Annotated[
        str | None,
        Option("--from-kafka", "Read a topic of these brokers instead of folders.", metavar="HOST:PORT,..."),
    ] = None,
    topic: Annotated[str | None, Option("--topic", "The topic: journal.topic of the daemons.")] = None,
    row_format: Annotated[
        str, Option("--format", "Form of the rows: parquet, or delta for tables of Delta Lake.", metavar="FORMAT")
    ] = PARQUET,
    once: Annotated[bool, Option("--once", "End when all complete files have been read.")] = False,
    interval: Annotated[str, Option("--interval", "Time from one look to the next.", metavar="TIME")] = "30s",
    closed_after: Annotated[
        str,
        Option(
            "--closed-after",
            "Read a daemon's last file, too, once it has not changed for so long: journal.segment_s_max, or 0s.",
            metavar="TIME",
        ),
    ] = "10m",
    strict: Annotated[bool, Option("--strict", "Exit code 3 if lines were put into quarantine.")] = False,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
) -> int:
    """Follow the journals of all daemons, and keep each row once in Parquet, over any crash."""
    every_s, closed_after_s = _seconds("--interval", interval), _seconds("--closed-after", closed_after)
    folders = journals or []
    if bool(folders) == bool(from_kafka) or bool(from_kafka) != bool(topic):
        raise Stopped(USAGE, "a stream reads folders or a topic", "name folders, or give --from-kafka and --topic")
    if row_format not in (PARQUET, DELTA):
        why = NO_ICEBERG if row_format == "iceberg" else f"--format {row_format} is not known"
        raise Stopped(USAGE, why, f"give {PARQUET} or {DELTA}")
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every_s} seconds"}
    told = Told(show, quiet=quiet)
    with running(master, conf, quiet=quiet) as spark:
        from pipeline.executors import Unfit
        from pipeline.storage import CannotMerge, NothingToRead
        from pipeline.stream import bronze, delta
        from pipeline.stream.offsets import TooManyFiles, waiting
        from pipeline.stream.query import ending, run
        from pipeline.stream.query import journals as files
        from pipeline.stream.topic import topic_of

        try:
            with ending() as ended:
                rows = (
                    topic_of(spark, from_kafka, topic)
                    if from_kafka and topic
                    else files(spark, folders, closed_after_s)
                )
                if row_format == DELTA:
                    delta.fit(spark)
                keeper = partial(delta.keeper, spark, into) if row_format == DELTA else partial(bronze.keeper, into)
                run(rows, keeper, checkpoint, trigger, told.batch, ended)
            left = waiting(folders, time.time(), closed_after_s) if folders else []
        except (NothingToRead, CannotMerge, Unfit, TooManyFiles) as error:
            raise Stopped(FAILED, str(error)) from None
    told.end(into, left)
    return REFUSED if strict and told.quarantined else DONE


class Told:
    """Tells of each batch, and of all of them at the end."""

    def __init__(self, show: Shown, *, quiet: bool) -> None:
        self._show, self._quiet = show, quiet
        self.batches = self.rows = self.copies = self.quarantined = 0

    def batch(self, kept: Kept) -> None:
        """Counts a batch, and tells of it."""
        self.batches += not kept.again
        self.rows += kept.rows
        self.copies += kept.copies
        self.quarantined += kept.quarantined
        if self._quiet:
            return
        there = "was there already" if kept.again else f"{kept.rows} rows"
        until = "" if kept.last_us is None else f" until {datetime.fromtimestamp(kept.last_us / 1e6, UTC):%FT%TZ}"
        self._show.message(f"batch {kept.batch}: {there}{until}{_others(kept.copies, kept.quarantined)}")

    def end(self, into: str, left: list[str]) -> None:
        """Prints the sums; ``left``: files that the stream has not read, because they may grow."""
        if self._show.for_programs:
            names = ("batches", "rows", "copies", "quarantined")
            self._show.document("Stream", [{**{name: getattr(self, name) for name in names}, "waiting": len(left)}])
        of = "batch" if self.batches == 1 else "batches"
        self._show.message(
            f"{self.rows} rows in {self.batches} {of} into {into}{_others(self.copies, self.quarantined)}",
            style="yellow" if self.quarantined else "green",
        )
        if left:
            more = f" and {counted(len(left) - 1, 'other file')}" if len(left) > 1 else ""
            what = f"not read yet: {left[0]}{more}, which may still grow; --closed-after 0s reads files as they are"
            self._show.message(what, style="yellow")


def _others(copies: int, quarantined: int) -> str:
    return f", {copies} copies, {quarantined} lines in quarantine"


def _seconds(option: str, text: str) -> int:
    found = length(text)
    if found is None:
        raise Stopped(USAGE, f"{option} {text} is no time", "give a number and a unit: 30s, 5m or 1h")
    return int(found.total_seconds())
