"""Writes records at a fixed rate, remembers every acknowledged one, and reads them back: nothing may be lost.

It is the door of tests and the demo to aiokafka. A record's value is ``run tag:sequence number``, so several loads may
share a topic.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from testing.embedded.ledger import Ledger, Spot, Stall, Verdict

TICK_S: Final = 0.02
"""How often the writer looks how many records are due."""

WAITING_RECORDS_MAX: Final = 50_000
"""Unacknowledged records at which the writer waits instead of sending more: 100 s of an outage at 500 records/s."""

REQUEST_S_MAX: Final = 30.0
"""Longest wait for one response; a record that waited so long and then fails counts as failed, not as lost."""

BATCH_BYTES_MAX: Final = 262_144
"""A partition holds one open batch: a full one would hold up the records of all the others."""

SETTLE_S_MAX: Final = 60.0
CLOSE_S_MAX: Final = 5.0
ASK_S_MIN: Final = 0.5
READ_RECORDS_MAX: Final = 10_000
READ_WAIT_MS: Final = 200
METADATA_AGE_MS_MAX: Final = 5_000
FILL_RECORD_BYTES: Final = 65_536


class Load:
    """``async with Load(bootstrap, {"orders": 60}) as load``: writes with acks=all to every partition in turn.

    ``topics`` maps each topic to its number of partitions; missing topics are auto-created by the brokers, and the
    block starts once all partitions are known. Leaving the block waits for outstanding acknowledgements.
    With ``idempotent`` a retry is never stored twice, but brokers must get producer ids from their controller.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        topics: Mapping[str, int],
        *,
        rate_per_s: int = 500,
        idempotent: bool = False,
        request_s_max: float = REQUEST_S_MAX,
    ) -> None:
        self.ledger = Ledger()
        self.spots = [Spot(topic, partition) for topic, count in topics.items() for partition in range(count)]
        self._topics = dict(topics)
        self._bootstrap = list(bootstrap)
        self._rate = rate_per_s
        self._idempotent = idempotent
        self._request_s_max = request_s_max
        self._waiting: dict[int, tuple[Spot, float]] = {}  # in the order of sending, so the first is the oldest
        self._longest = Stall(0.0, None)
        self._stalls: dict[Spot, float] = {}
        self._producer: Any = None
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=self._idempotent,
            max_batch_size=BATCH_BYTES_MAX,
            metadata_max_age_ms=METADATA_AGE_MS_MAX,
            request_timeout_ms=int(self._request_s_max * 1_000),
        )
        await self._producer.start()
        try:
            await asyncio.wait_for(self._all_known(), SETTLE_S_MAX)
        except BaseException:
            await self._producer.stop()
            raise
        self._writer = asyncio.create_task(self._write(), name="load")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(drain_s=0.0 if error else SETTLE_S_MAX)

    async def stop(self, drain_s: float = SETTLE_S_MAX) -> None:
        """Stops writing and waits up to ``drain_s`` for acknowledgements; raises the writer's error, if any."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await writer
            with suppress(TimeoutError):
                await asyncio.wait_for(self._producer.flush(), drain_s)
        finally:
            await self._close()
            self.ledger.errors["no answer"] += len(self._waiting)
            self._waiting.clear()

    def stall(self) -> Stall:
        """Returns the longest wait so far, of records that still wait too."""
        return max(self._longest, self.oldest())

    def take_stall(self) -> Stall:
        """Returns the longest wait since the last call, waiting records included: one figure per step of a story."""
        longest = max((Stall(seconds, spot) for spot, seconds in self._stalls.items()), default=Stall(0.0, None))
        self._stalls.clear()
        return max(longest, self.oldest())

    def stalls(self) -> dict[Spot, float]:
        """Returns the longest wait by partition, in seconds, since the last :meth:`take_stall`."""
        now, stalls = time.monotonic(), dict(self._stalls)
        for spot, sent_at in self._waiting.values():
            stalls[spot] = max(stalls.get(spot, 0.0), now - sent_at)
        return stalls

    async def _all_known(self) -> None:
        from aiokafka.errors import KafkaError

        for topic, count in self._topics.items():
            known: Iterable[int] = ()
            while len(set(known)) < count:
                with suppress(KafkaError):
                    known = await self._producer.partitions_for(topic)
                if len(set(known)) < count:
                    await self._producer.client.force_metadata_update()
                    await asyncio.sleep(TICK_S)

    async def _write(self) -> None:
        began = time.monotonic()
        while True:
            due = int((time.monotonic() - began) * self._rate)
            while self.ledger.sent < due and len(self._waiting) < WAITING_RECORDS_MAX:
                await self._send(self.ledger.sent)
            await asyncio.sleep(TICK_S)

    async def _send(self, number: int) -> None:
        spot = self.spots[number % len(self.spots)]
        self._waiting[number] = (spot, time.monotonic())
        self.ledger.sent += 1
        try:
            future = await self._producer.send(spot.topic, self.ledger.value(number), partition=spot.partition)
        except BaseException:
            del self._waiting[number]
            self.ledger.errors["not sent"] += 1
            raise
        future.add_done_callback(lambda done: self._settle(number, done))

    def _settle(self, number: int, done: asyncio.Future[Any]) -> None:
        if number not in self._waiting:  # given up by stop()
            return
        spot, sent_at = self._waiting.pop(number)
        waited = time.monotonic() - sent_at
        self._longest = max(self._longest, Stall(waited, spot))
        self._stalls[spot] = max(self._stalls.get(spot, 0.0), waited)
        if done.cancelled():
            self.ledger.errors["cancelled"] += 1
        elif (error := done.exception()) is not None:
            self.ledger.errors[type(error).__name__] += 1
        else:
            self.ledger.acknowledged.setdefault(spot, set()).add(number)

    def acknowledged_since(self, number: int) -> bool:
        """Returns whether every partition has acknowledged a record after this sequence number."""
        return all(max(self.ledger.acknowledged.get(spot, {0})) > number for spot in self.spots)

    def oldest(self) -> Stall:
        """Returns the wait so far of the record that waits longest."""
        for spot, sent_at in self._waiting.values():
            return Stall(time.monotonic() - sent_at, spot)
        return Stall(0.0, None)

    async def _close(self) -> None:
        """Ends the producer; records that it still holds after a moment are given up."""
        await _end(self._producer.stop(), self._producer.client)


class Reader:
    """``async with Reader(bootstrap, load) as reader``: reads everything from the beginning, all the time.

    It follows no group, so no broker needs the offsets topic. :meth:`verdict` is the comparison at the end.
    """

    def __init__(self, bootstrap: Sequence[str], load: Load) -> None:
        self._bootstrap = list(bootstrap)
        self._load = load
        self._read: dict[Spot, Counter[int]] = {}
        self._consumer: Any = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=METADATA_AGE_MS_MAX,
        )
        await self._consumer.start()
        self._consumer.assign([TopicPartition(*spot) for spot in self._load.spots])
        self._task = asyncio.create_task(self._follow(), name="reader")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await _end(self._consumer.stop(), self._consumer._client)  # noqa: SLF001  it has no public name

    @property
    def records(self) -> int:
        """Counts the records of the load that were read so far."""
        return sum(counter.total() for counter in self._read.values())

    def unread(self, numbers: Mapping[Spot, set[int]]) -> dict[Spot, set[int]]:
        """Returns those of the sequence numbers that were not read so far, by partition."""
        unread = {spot: found - self._read.get(spot, Counter()).keys() for spot, found in numbers.items()}
        return {spot: found for spot, found in unread.items() if found}

    async def verdict(self, within_s: float = SETTLE_S_MAX) -> Verdict:
        """Reads to the end, then judges. A record counts as lost only if it did not show up in ``within_s``.

        A new leader's high watermark may lag behind the acknowledged records until its followers have fetched, so the
        end is queried again while a record is missing. Stop the load first.
        """
        deadline = time.monotonic() + within_s
        while True:
            complete = await self._at_end(max(deadline - time.monotonic(), ASK_S_MIN))
            verdict = self._load.ledger.judge(self._read)
            if (complete and not verdict.lost) or time.monotonic() > deadline:
                return verdict
            if self._task is not None and self._task.done():
                self._task.result()
            await asyncio.sleep(TICK_S)

    async def _at_end(self, within_s: float) -> bool:
        from aiokafka.errors import KafkaError

        try:
            async with asyncio.timeout(within_s):
                ends = await self._consumer.end_offsets(self._consumer.assignment())
                return all([await self._consumer.position(one) >= end for one, end in ends.items()])
        except (KafkaError, TimeoutError):
            return False

    async def _follow(self) -> None:
        while True:
            batches = await self._consumer.getmany(timeout_ms=READ_WAIT_MS, max_records=READ_RECORDS_MAX)
            for partition, records in batches.items():
                seen = self._read.setdefault(Spot(partition.topic, partition.partition), Counter())
                for record in records:
                    number = self._load.ledger.number(record.value)
                    if number is not None:
                        seen[number] += 1


async def fill(bootstrap: Sequence[str], spots: Iterable[Spot], bytes_each: int) -> None:
    """Writes so many bytes to each partition (acks=all), in large records that no load knows."""
    from aiokafka import AIOKafkaProducer

    record, spots = bytes(FILL_RECORD_BYTES), list(spots)
    producer = AIOKafkaProducer(bootstrap_servers=list(bootstrap), acks="all", max_request_size=4 * FILL_RECORD_BYTES)
    async with producer:
        for _ in range(-(-bytes_each // FILL_RECORD_BYTES)):
            sent = [await producer.send(spot.topic, record, partition=spot.partition) for spot in spots]
            await asyncio.gather(*sent)


async def _end(stop: Coroutine[Any, Any, None], client: Any) -> None:
    """Ends a producer or consumer in bounded time, whatever state its brokers are in.

    Its stop may wait for responses that never come, or end in the cancellation of one of its own tasks.
    """
    task = asyncio.create_task(stop)
    await asyncio.wait({task}, timeout=CLOSE_S_MAX)
    if not task.done() or task.cancelled() or task.exception() is not None:
        task.cancel()
        await client.close()
