"""Reads the partition of a topic to which daemons write their journals. It is the pipeline's only door to aiokafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pipeline.lines import BLOCK_BYTES, Lines
from pipeline.storage import NothingToRead
from pipeline.stream.batch import of_bad, of_rows

PARTITION: Final = 0
"""The only one that daemons write to."""
WAIT_MS: Final = 500
WITHIN_S: Final = 60.0
"""Longest wait for a connection, or for the next records; Spark repeats a task that fails."""


class Part(NamedTuple):
    """Records of a topic: offsets from ``begin`` up to ``end``, which is not one of them."""

    bootstrap: str
    topic: str
    begin: int
    end: int


class Extent(NamedTuple):
    """The first offset of a topic that is still there, and the one that its next record gets."""

    first: int
    end: int


def extent(bootstrap: str, topic: str) -> Extent:
    """Returns how far the topic reaches; raises :class:`~pipeline.storage.NothingToRead`."""
    return asyncio.run(_extent(bootstrap, topic))


def batches(part: Part) -> Iterator[Any]:
    """Yields Arrow's batches with the columns of a batch of the stream, without rows that the topic has dropped."""
    parser = Lines()
    for offset, block in _blocks(part):
        rows, bad = parser.parsed(block)
        yield from of_rows(rows).combine_chunks().to_batches()
        if bad:
            yield from of_bad(f"{part.topic}-{PARTITION}", offset, bad).to_batches()


def _blocks(part: Part) -> Iterator[tuple[int, bytes]]:
    """Yields lines, about :data:`~pipeline.lines.BLOCK_BYTES` of them, with the offset of the first one."""
    with asyncio.Runner() as runner:
        consumer, spot = runner.run(_opened(part.bootstrap, part.topic))
        try:
            at = max(part.begin, runner.run(_first(consumer, spot)))
            consumer.seek(spot, at)
            lines: list[bytes] = []
            begin, size = at, 0
            while at < part.end:
                for record in runner.run(_more(consumer, spot)):
                    if record.offset >= part.end:
                        break
                    begin = begin if lines else record.offset
                    lines.append(record.value or b"")
                    size += len(lines[-1])
                at = runner.run(_position(consumer, spot))
                if lines and (size >= BLOCK_BYTES or at >= part.end):
                    yield begin, b"\n".join(lines) + b"\n"
                    lines, size = [], 0
        finally:
            runner.run(consumer.stop())


async def _extent(bootstrap: str, topic: str) -> Extent:
    consumer, spot = await _opened(bootstrap, topic)
    try:
        async with asyncio.timeout(WITHIN_S):
            return Extent(await _first(consumer, spot), (await consumer.end_offsets([spot]))[spot])
    except TimeoutError:
        raise NothingToRead(f"topic {topic} at {bootstrap} does not say how far it reaches") from None
    finally:
        await consumer.stop()


async def _opened(bootstrap: str, topic: str) -> tuple[Any, Any]:
    """Returns a consumer without a group, and its partition; raises :class:`~pipeline.storage.NothingToRead`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import KafkaError

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs each attempt
    spot = TopicPartition(topic, PARTITION)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=BLOCK_BYTES,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            await consumer.start()
            if topic not in await consumer.topics():
                raise NothingToRead(f"there is no topic {topic} at {bootstrap}: name that of journal.topic")
            consumer.assign([spot])
    except BaseException as error:
        await consumer.stop()
        if isinstance(error, KafkaError | OSError | TimeoutError):
            raise NothingToRead(f"no broker of {bootstrap} can be reached: {error or 'no answer'}") from None
        raise
    return consumer, spot


async def _first(consumer: Any, spot: Any) -> int:
    first: int = (await consumer.beginning_offsets([spot]))[spot]
    return first


async def _position(consumer: Any, spot: Any) -> int:
    position: int = await consumer.position(spot)
    return position


async def _more(consumer: Any, spot: Any) -> list[Any]:
    """Returns the next records, waiting for them; raises ``TimeoutError`` where they do not come."""
    async with asyncio.timeout(WITHIN_S):
        while not (found := await consumer.getmany(spot, timeout_ms=WAIT_MS)):
            pass
        records: list[Any] = found[spot]
        return records
