"""Gives Spark the journals' rows as the data source ``regent_journal``, for batches, streams and notebooks.

``spark.dataSource.register(RegentJournal)`` makes it known; then ``spark.read.format("regent_journal").load(folder)``
has each row once for each time it is in a file: copies are not removed. A line that is no row gives a row with nothing
but ``bad``. Options: ``path`` (a folder or a file), or ``paths`` (a list of them, as JSON); for a stream
``closed_after_s`` (:func:`pipeline.stream.offsets.complete`) and ``batch_bytes_max``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.merge import files_of
from pipeline.stream.batch import STREAMED, parts, read
from pipeline.stream.offsets import BATCH_BYTES_MAX, CLOSED_AFTER_S, Slice

if TYPE_CHECKING:
    from pipeline.stream.reader import JournalStream

NAME: Final = "regent_journal"


class RegentJournal(DataSource):
    """The journals of one or several daemons as a table."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return STREAMED

    def reader(self, schema: StructType) -> JournalReader:
        return JournalReader(self.paths)

    def streamReader(self, schema: StructType) -> JournalStream:  # noqa: N802  # the name is Spark's
        from pipeline.stream.reader import JournalStream

        return JournalStream(
            self.paths,
            whole_number(self, "closed_after_s", CLOSED_AFTER_S, 0),
            whole_number(self, "batch_bytes_max", BATCH_BYTES_MAX, 1),
        )

    @property
    def paths(self) -> list[str]:
        """The folders. Raises :class:`ValueError` for options that name none."""
        try:
            paths = json.loads(self.options["paths"]) if "paths" in self.options else [self.options["path"]]
        except (KeyError, ValueError):
            paths = None
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise ValueError(f'{NAME} needs a folder: load("/journals/daemon-1"), or option paths with a JSON list')
        return paths


def whole_number(source: DataSource, name: str, default: int, least: int) -> int:
    """Returns an option of a source. Raises :class:`ValueError` for one that is no whole number from ``least``."""
    text = source.options.get(name, str(default))
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"option {name} of {source.name()} is {text}: give a whole number from {least}")
    return int(text)


class JournalReader(DataSourceReader):
    """Reads all files as they are now."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def partitions(self) -> Sequence[InputPartition]:
        return parts(Slice(path, 0, size) for path, size in files_of(self._paths))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(partition)
