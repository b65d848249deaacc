"""Runs a stream: Spark cuts a source into batches and remembers them in the checkpoint, a keeper takes each of them.

Spark repeats the last batch after a kill, with the same rows and the same number; the keeper takes it once. A batch
that has begun is ended before the stream is.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pipeline.executors import Unfit, made_ready
from pipeline.session import errors
from pipeline.storage import CannotMerge, NothingToRead, first_line, for_spark, is_folder, opened
from pipeline.stream.batch import Kept
from pipeline.stream.source import NAME, RegentJournal

SPARK_MIN: Final = (4, 2)
"""Before, a source was not told where a batch begins."""
POLL_S: Final = 1
ENDS: Final = "the stream ends; this batch is the next one's"

Trigger = dict[str, Any]
"""``{"availableNow": True}``, or ``{"processingTime": "30 seconds"}``."""


Keeper = Callable[[int, DataFrame], Kept]
"""Takes a batch with the columns of :data:`pipeline.stream.batch.STREAMED`, each number once."""


def journals(spark: SparkSession, folders: list[str], closed_after_s: int) -> DataFrame:
    """Returns the stream of the journals in ``folders``.

    Raises :class:`~pipeline.storage.NothingToRead`, :class:`~pipeline.executors.Unfit`.
    """
    for folder in folders:
        if not is_folder(folder):
            raise NothingToRead(f"there is no folder {folder}: name those that daemons or copies of them fill")
    if tuple(map(int, spark.version.split(".")[:2])) < SPARK_MIN:
        raise Unfit(f"a stream needs Spark 4.2 or newer, and this is {spark.version}: install it with the extra")
    made_ready(spark)
    spark.dataSource.register(RegentJournal)
    options = {"paths": json.dumps(folders), "closed_after_s": str(closed_after_s)}
    return spark.readStream.format(NAME).options(**options).load()


def run(
    rows: DataFrame,
    keeper: Callable[[str], Keeper],
    checkpoint: str,
    trigger: Trigger,
    told: Callable[[Kept], None],
    ended: Event,
) -> None:
    """Runs a stream until it has all there is (``availableNow``), or ``ended`` is set.

    ``keeper`` makes the keeper for the query's id; ``told`` is called after each batch. Raises what the keeper raises,
    and the errors of Spark (:func:`pipeline.session.errors`).
    """
    batches = Batches(keeper, checkpoint, told, ended)
    writer = rows.writeStream.foreachBatch(batches.take).option("checkpointLocation", for_spark(checkpoint))
    query = writer.trigger(**trigger).start()
    try:
        while not query.awaitTermination(POLL_S):
            if ended.is_set():
                with batches.between:
                    query.stop()
    except errors():
        if batches.failure is not None:
            raise batches.failure from None
        if not ended.is_set():  # else the signal has ended the processes of Spark as well
            raise


@contextmanager
def ending() -> Iterator[Event]:
    """Provides an event that SIGTERM and SIGINT set."""
    ended = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: ended.set())
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Batches:
    """Hands batches to the keeper, one at a time. ``between``: no batch is being kept while it is held."""

    def __init__(
        self, keeper: Callable[[str], Keeper], checkpoint: str, told: Callable[[Kept], None], ended: Event
    ) -> None:
        self.between = Lock()
        self.failure: Exception | None = None
        self._make, self._checkpoint, self._told, self._ended = keeper, checkpoint, told, ended
        self._keeper: Keeper | None = None

    def take(self, batch: DataFrame, number: int) -> None:
        """Has the keeper take a batch; raises ``InterruptedError`` where the stream ends."""
        # The lock's only other holder stops the query, and that waits for this call: two would wait for each other.
        if not self.between.acquire(blocking=False):
            raise InterruptedError(ENDS)
        try:
            if self._ended.is_set():
                raise InterruptedError(ENDS)
            if self._keeper is None:
                self._keeper = self._make(_query_id(self._checkpoint))
            self._told(self._keeper(number, batch))
        except (NothingToRead, CannotMerge) as error:
            self.failure = error
            raise
        finally:
            self.between.release()


def _query_id(checkpoint: str) -> str:
    """Reads the id that Spark has given the query, the same after each start."""
    try:
        with opened(f"{checkpoint.rstrip('/')}/metadata") as file:
            return str(json.loads(file.read())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise CannotMerge(f"the checkpoint {checkpoint} cannot be read: {first_line(error)}") from None
