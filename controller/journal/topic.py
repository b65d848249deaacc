"""Gives the journal's rows to a topic of Kafka, on a thread with an event loop of its own.

The files stay the truth. Rows without room in the queue, or that the topic refuses, are counted and missing in the
topic: a reader sees the hole in their numbers. After an outage some rows may come twice, with the same numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from configs.journal_section import JournalSettings
from controller.journal.topic_producer import Connect, NotTaken, Producer, Record, TooLarge

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
CLOSE_S_MAX: Final = 3.0
"""Longest time for the last rows at a stop, and again for the end of the connections."""


class TopicCounters(Protocol):
    """Counts for the metrics of the domain; the thread writes, the loop reads."""

    journal_topic_rows: int
    journal_topic_rows_lost: int
    journal_topic_bytes_waiting: int
    journal_topic_failing: str


class JournalTopic:
    """The topic of one daemon's journal. Only the thread waits for brokers."""

    def __init__(self, settings: JournalSettings, counters: TopicCounters, connect: Connect) -> None:
        self._topic = settings.topic
        self._given = [server.strip() for server in settings.topic_bootstrap.split(",") if server.strip()]
        self._brokers: Callable[[], Sequence[str]] = list
        self._known: Sequence[str] = ()
        self._counters = counters
        self._queue = TopicQueue(settings.topic_bytes_max, counters)
        self._sending = Sending(self._topic, self._queue, counters, connect, self._bootstrap)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="journal-topic", daemon=True)

    def start(self, brokers: Callable[[], Sequence[str]]) -> None:
        """Starts the thread; ``brokers`` returns ``host:port`` of the brokers that the daemon controls. Any thread."""
        self._brokers = brokers
        self._thread.start()

    def stage(self, epoch: int, seq: int, rows: int, data: bytes) -> None:
        """Keeps lines that are on their way to the disk; never waits."""
        self._queue.stage(Slice(epoch, seq, rows, data))

    def commit(self) -> None:
        """Sends the staged lines, because the files have them."""
        if self._queue.commit():
            self._call(self._sending.woken.set)

    def discard(self) -> None:
        """Forgets the staged lines, because the files do not have them."""
        self._queue.discard()

    def close(self) -> None:
        """Sends the last rows for ``CLOSE_S_MAX`` at most, and ends the thread."""
        self._closing = True
        self._call(self._closed.set)
        if self._thread.is_alive():
            self._thread.join(2 * CLOSE_S_MAX)

    def _call(self, callback: Callable[[], None]) -> None:
        """Has the thread's loop run a callback, where it runs."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed
                loop.call_soon_threadsafe(callback)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._closing:
            self._closed.set()
        sending = asyncio.create_task(self._sending.run())
        await self._closed.wait()
        self._sending.closing = True
        self._sending.woken.set()
        await asyncio.wait({sending}, timeout=CLOSE_S_MAX)
        sending.cancel()
        await asyncio.wait({sending}, timeout=CLOSE_S_MAX / 3)
        await self._sending.disconnect()
        if rest := self._sending.rest():
            self._queue.lose(rest)
            log.error("the last %d rows are missing in topic %s, the files have them", rest, self._topic)

    def _bootstrap(self) -> Sequence[str]:
        """Returns the brokers to connect to: those of the settings, or the last ones that the daemon knew."""
        if self._given:
            return self._given
        self._known = self._brokers() or self._known
        if not self._known:
            raise NotTaken("no broker is registered")
        return self._known


# -- the rows that wait


class Slice(NamedTuple):
    """Lines of consecutive rows of one term; ``seq`` is the number of the first one."""

    epoch: int
    seq: int
    rows: int
    data: bytes


class TopicQueue:
    """Takes slices from the journal's thread and gives them to the topic's; rows without room are counted.

    Slices are staged until the files have them, so that the topic has no row that the files lack.
    """

    def __init__(self, bytes_max: int, counters: TopicCounters) -> None:
        self._bytes_max = bytes_max
        self._counters = counters
        self._lock = threading.Lock()
        self._staged: list[Slice] = []
        self._waiting: deque[Slice] = deque()
        self._bytes = 0

    def stage(self, found: Slice) -> None:
        """Keeps a slice until :meth:`commit`; without room its rows are lost to the topic. Never waits."""
        with self._lock:
            if self._bytes + len(found.data) <= self._bytes_max:
                self._staged.append(found)
                self._count(len(found.data))
            else:
                self._counters.journal_topic_rows_lost += found.rows

    def lose(self, rows: int) -> None:
        """Counts rows that the topic will never have."""
        with self._lock:
            self._counters.journal_topic_rows_lost += rows

    def commit(self) -> bool:
        """Hands the staged slices on; returns whether there are some."""
        with self._lock:
            staged, self._staged = self._staged, []
            self._waiting += staged
        return bool(staged)

    def discard(self) -> None:
        """Forgets the staged slices: the files do not have them."""
        with self._lock:
            self._count(-sum(len(one.data) for one in self._staged))
            self._staged = []

    def take(self) -> Slice | None:
        """Returns the oldest slice, whose bytes count until :meth:`release`; None where none waits."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def release(self, size: int) -> None:
        """Frees the bytes of rows that the topic has, or will never have."""
        with self._lock:
            self._count(-size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._counters.journal_topic_bytes_waiting = self._bytes


# -- the sending


class Sending:
    """Sends waiting rows, a batch after the other, and tries again while that fails.

    One batch is in flight at a time, so the order of the rows holds. ``bootstrap``: ``host:port`` of brokers.

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
