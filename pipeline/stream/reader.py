"""Follows the journals of a cluster's daemons as a stream of Spark (4.2 or newer, which tells where a batch begins)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from pipeline.stream.batch import parts, read
from pipeline.stream.offsets import complete, following, slices


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes complete files in the order of their first rows; partitions of a batch are slices of files."""

    def __init__(self, folders: Sequence[str], closed_after_s: float, batch_bytes_max: int) -> None:
        self._folders, self._closed_after_s, self._bytes_max = folders, closed_after_s, batch_bytes_max
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # the name is Spark's
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # the name is Spark's
        return ReadMaxBytes(self._bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # the name is Spark's
        self._target = self._complete()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # the name is Spark's
        files = self._complete() if self._target is None else self._target
        return following(start, files, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return parts(slices(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition)

    def _complete(self) -> dict[str, int]:
        return complete(self._folders, time.time(), self._closed_after_s)
