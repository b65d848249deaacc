"""Sends waiting rows to the journal's topic, a batch after the other, and tries again while that fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from controller.journal.topic_producer import Connect, NotTaken, Producer, Record, TooLarge
from controller.journal.topic_queue import Slice, TopicQueue

log = logging.getLogger("regent.journal")

BATCH_BYTES: Final = 900_000
"""Most bytes of one batch: below Kafka's default of max.message.bytes, 1,048,588."""
OVERHEAD_BYTES: Final = 32
"""Most bytes that a record has beside its key and its value."""
RETRY_S: Final = 2.0
QUIET_S: Final = 10.0
"""Length of an outage after which it is logged and shown; the election of a leader takes less."""
REASONS_MAX: Final = 8
"""Most lines about one outage, a line for each reason."""
PARKED_S: Final = 60.0
"""Time after a line about a row that is too large until the next one."""


class TopicCounters(Protocol):
    """What a topic counts; ``journal_topic_failing``: the reason for which it takes no rows, while that lasts."""

    journal_topic_rows: int
    journal_topic_rows_lost: int
    journal_topic_bytes_waiting: int
    journal_topic_failing: str


class Sending:
    """One batch is in flight at a time, so the order of the rows holds. ``bootstrap``: ``host:port`` of brokers.

    ``woken`` tells that rows wait, ``closing`` that :meth:`run` ends once all are sent. Belongs to one event loop.
    """

    def __init__(
        self,
        topic: str,
        queue: TopicQueue,
        counters: TopicCounters,
        connect: Connect,
        bootstrap: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.woken = asyncio.Event()
        self.closing = False
        self._topic = topic
        self._queue = queue
        self._counters = counters
        self._connect = connect
        self._bootstrap = bootstrap
        self._clock = clock
        self._records: deque[Record] = deque()
        self._records_bytes = 0
        self._batch_bytes = BATCH_BYTES
        self._producer: Producer | None = None
        self._failed_s: float | None = None
        self._reasons: set[str] = set()
        self._parked_s = float("-inf")

    async def run(self) -> None:
        """Sends rows until ``closing`` is set and none waits."""
        while True:
            self.woken.clear()
            self._fill()
            if self._records:
                await self._attempt()
            elif self.closing:
                return
            else:
                await self.woken.wait()

    async def disconnect(self) -> None:
        """Ends the producer. The next one has another producer id, so rows without an answer may come twice."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await producer.close()

    def rest(self) -> int:
        """Takes the rows that were not sent; returns their number."""
        rows = len(self._records)
        while (found := self._queue.take()) is not None:
            rows += found.rows
        self._records.clear()
        return rows

    async def _attempt(self) -> None:
        began_s, batch = self._clock(), self._batch()
        try:
            if self._producer is None:
                self._producer = await self._connect(self._bootstrap(), self._topic)
            await self._producer.send(batch)
        except TooLarge as error:
            await self.disconnect()
            self._narrow(batch, error)
        except Exception as error:
            await self.disconnect()
            self._fail(error, began_s)
            await asyncio.sleep(RETRY_S)
        else:
            self._remove(len(batch))
            self._counters.journal_topic_rows += len(batch)
            self._recover()

    def _fill(self) -> None:
        """Takes slices until a batch is full."""
        while self._records_bytes < self._batch_bytes and (found := self._queue.take()) is not None:
            records = records_of(found)
            self._records += records
            self._records_bytes += sum(map(_size, records))

    def _batch(self) -> list[Record]:
        """Returns the oldest records that fit in a batch, at least one."""
        batch, size = [self._records[0]], _size(self._records[0])
        for at in range(1, len(self._records)):
            size += _size(self._records[at])
            if size > self._batch_bytes:
                break
            batch.append(self._records[at])
        return batch

    def _remove(self, count: int) -> None:
        """Removes the oldest records, which the topic has or will never have."""
        gone = [self._records.popleft() for _ in range(count)]
        self._records_bytes -= sum(map(_size, gone))
        self._queue.release(sum(len(record.value) + 1 for record in gone))

    def _narrow(self, batch: Sequence[Record], error: TooLarge) -> None:
        """Halves the batches; a row that is too large by itself is left out, and the others follow."""
        if len(batch) > 1:
            self._batch_bytes = sum(map(_size, batch)) // 2
            return
        self._queue.lose(1)
        self._remove(1)
        self._batch_bytes = BATCH_BYTES
        now_s = self._clock()
        if now_s - self._parked_s >= PARKED_S:
            self._parked_s = now_s
            log.error("row %s is missing in topic %s, the files have it: %s", batch[0].key.decode(), self._topic, error)

    def _fail(self, error: Exception, began_s: float) -> None:
        """Shows an outage once it lasts, and logs each reason once."""
        if self._failed_s is None:
            self._failed_s = began_s
        if self._clock() - self._failed_s < QUIET_S:
            return
        why = str(error) if isinstance(error, NotTaken) else f"a defect: {type(error).__name__}: {error}"
        self._counters.journal_topic_failing = why
        if why not in self._reasons and len(self._reasons) < REASONS_MAX:
            self._reasons.add(why)
            log.error("no row of the journal reaches topic %s, the files have them: %s", self._topic, why)

    def _recover(self) -> None:
        if self._reasons:
            lost = self._counters.journal_topic_rows_lost
            log.warning(
                "topic %s gets the journal's rows again; %d are missing in it since the start", self._topic, lost
            )
        self._failed_s = None
        self._reasons.clear()
        self._counters.journal_topic_failing = ""


def records_of(found: Slice) -> list[Record]:
    """Returns a record for each line, whose key has the row's term and number, as names of the files do."""
    lines = found.data.splitlines()
    return [Record(b"%010d-%012d" % (found.epoch, seq), line) for seq, line in enumerate(lines, found.seq)]


def _size(record: Record) -> int:
    return len(record.key) + len(record.value) + OVERHEAD_BYTES
