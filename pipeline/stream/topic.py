"""Gives Spark the rows that daemons write to a topic, as the data source ``regent_journal_topic``, for streams.

An offset is that of the topic. Options: ``bootstrap`` (``host:port,host:port``), ``topic``, and ``batch_rows_max``.
Rows that the topic lacks show by their numbers, as those that a file lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipeline.executors import made_ready
from pipeline.storage import NothingToRead
from pipeline.stream.batch import STREAMED
from pipeline.stream.source import whole_number
from pipeline.stream.topic_reading import Extent, Part, batches, extent

NAME: Final = "regent_journal_topic"
BATCH_ROWS_MAX: Final = 200_000
"""Of one batch, which is held in memory."""
PART_ROWS: Final = 50_000
"""Of one task."""


def topic_of(spark: SparkSession, bootstrap: str, name: str) -> DataFrame:
    """Returns the stream of a topic's rows. Raises :class:`~pipeline.storage.NothingToRead`."""
    extent(bootstrap, name)
    made_ready(spark)
    spark.dataSource.register(JournalTopic)
    return spark.readStream.format(NAME).options(bootstrap=bootstrap, topic=name).load()


class JournalTopic(DataSource):
    """The topic of one cluster's daemons."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return STREAMED

    def streamReader(self, schema: StructType) -> TopicStream:  # noqa: N802  # the name is Spark's
        try:
            return TopicStream(
                self.options["bootstrap"],
                self.options["topic"],
                whole_number(self, "batch_rows_max", BATCH_ROWS_MAX, 1),
            )
        except KeyError as error:
            raise ValueError(f"{NAME} needs option {error}: name the brokers in bootstrap, and the topic") from None


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes the records in their order; partitions of a batch are ranges of offsets."""

    def __init__(self, bootstrap: str, topic: str, batch_rows_max: int) -> None:
        self._bootstrap, self._topic, self._rows_max = bootstrap, topic, batch_rows_max
        self._target: Extent | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # the name is Spark's
        return {"offset": self._extent().first}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # the name is Spark's
        return ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # the name is Spark's
        self._target = self._extent()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # the name is Spark's
        return {"offset": self._following(int(start["offset"]), limit)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in parts(self._bootstrap, self._topic, start["offset"], end["offset"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return batches(partition.value)

    def _following(self, start: int, limit: ReadLimit) -> int:
        first, end = self._target or self._extent()
        if end < start:
            raise NothingToRead(
                f"topic {self._topic} ends at {end}, and {start} records of it were read: it was made anew, name a new "
                "checkpoint; rows that are there already are left out"
            )
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._rows_max
        return min(end, max(start, first) + rows_max)

    def _extent(self) -> Extent:
        return extent(self._bootstrap, self._topic)


def parts(bootstrap: str, topic: str, begin: int, end: int) -> list[Part]:
    """Cuts a range of offsets into one part for each task."""
    return [Part(bootstrap, topic, at, min(at + PART_ROWS, end)) for at in range(begin, end, PART_ROWS)]
