"""A stream reads the journal's rows from a topic of real brokers: each once over restarts, and holes are gaps."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from aiokafka import AIOKafkaProducer

pytest.importorskip("pyspark", reason="the extra 'pipeline' is not installed")

from pipeline import session
from pipeline.gaps import HOLE
from pipeline.stream.batch import Kept
from pipeline.stream.bronze import keeper
from pipeline.stream.query import run
from pipeline.stream.topic import topic_of
from testing.znodes import create_topic
from tests.kit.cluster.world import ClusterWorld, world
from tests.real.pipeline.logs import sound, text
from tests.real.pipeline.plain_ingest import expected
from tests.real.pipeline.stream_kit import rows_of
from tests.real.pipeline.test_stream_once import gaps_of

TOPIC = "journal"
MISSING = 7
ONCE = {"availableNow": True}


async def send(w: ClusterWorld, lines: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=w.cluster.bootstrap, acks="all") as producer:
        for line in lines:
            await producer.send_and_wait(TOPIC, line, partition=0)


@pytest.mark.timeout(600)
async def test_rows_of_a_topic_are_kept_once_over_restarts_and_a_hole_is_a_gap(tmp_path: Path) -> None:
    lines = text(sound("c")).encode().splitlines()
    there = lines[:MISSING] + lines[MISSING + 1 :]
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\n".join(there) + b"\n")
    async with world(1) as w:
        await create_topic(w.zk, TOPIC, {0: (1,)})
        await w.healed()
        into, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
        bootstrap = ",".join(w.cluster.bootstrap)
        told: list[Kept] = []

        def streamed() -> None:
            run(topic_of(spark, bootstrap, TOPIC), partial(keeper, into), checkpoint, ONCE, told.append, Event())

        spark = await asyncio.to_thread(session.start, "local[2]", {})
        try:
            await send(w, there[:20])
            await asyncio.to_thread(streamed)
            await asyncio.to_thread(streamed)
            await send(w, [*there[18:20], *there[20:]])
            await asyncio.to_thread(streamed)
        finally:
            spark.stop()
    wanted = expected([file])
    assert rows_of(into) == wanted.rows
    assert gaps_of(into) == wanted.gaps
    assert [gap[0] for gap in wanted.gaps] == [HOLE]
    assert [(one.rows, one.copies) for one in told if one.rows] == [(20, 0), (len(there) - 20, 2)]
