"""A topic of rows as a source of the stream: ranges of offsets become rows, and what the topic dropped is left out."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pipeline.ending import Stopped
from pipeline.storage import NothingToRead
from pipeline.stream import topic, topic_reading
from pipeline.stream.batch import parted
from pipeline.stream.topic import TopicStream, parts
from pipeline.stream.topic_reading import Extent, Part
from pipeline.verbs.running import Plain
from pipeline.verbs.stream import stream
from tests.real.pipeline.logs import sound, text

LINES = text(sound("c")).encode().splitlines()


class Consumer:
    """A partition whose records have the offsets of ``records``."""

    def __init__(self, records: dict[int, bytes | None], end: int) -> None:
        self.records, self.end, self.at = records, end, 0
        self.stopped = False

    async def beginning_offsets(self, spots: Sequence[Any]) -> dict[Any, int]:
        return dict.fromkeys(spots, min(self.records, default=self.end))

    async def end_offsets(self, spots: Sequence[Any]) -> dict[Any, int]:
        return dict.fromkeys(spots, self.end)

    def seek(self, _spot: Any, at: int) -> None:
        self.at = at

    async def position(self, _spot: Any) -> int:
        return self.at

    async def getmany(self, spot: Any, timeout_ms: int) -> dict[Any, list[Any]]:
        some = [SimpleNamespace(offset=at, value=value) for at, value in self.records.items() if at >= self.at][:10]
        self.at = some[-1].offset + 1 if some else self.end
        return {spot: some} if some else {}

    async def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer(dict(enumerate(LINES, 5)), len(LINES) + 5)

    async def opened(bootstrap: str, name: str) -> tuple[Consumer, str]:
        assert (bootstrap, name) == ("b:1", "t")
        return made, "spot"

    monkeypatch.setattr(topic_reading, "_opened", opened)
    return made


def read(*ranges: Part) -> Any:
    return parted(pa.Table.from_batches([batch for part in ranges for batch in topic_reading.batches(part)]))


def numbers(found: Any) -> list[tuple[int, int]]:
    return list(zip(found.rows["ctl_epoch"].to_pylist(), found.rows["seq"].to_pylist(), strict=True))


WANTED = [(row["ctl_epoch"], row["seq"]) for row in sound("c")]


def test_the_ranges_of_a_batch_are_its_rows(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "PART_ROWS", 7)
    found = read(*parts("b:1", "t", 5, 5 + len(LINES)))
    assert numbers(found) == WANTED
    assert len(found.bad) == 0
    assert consumer.stopped


def test_a_range_ends_where_its_offset_says(consumer: Consumer) -> None:
    assert numbers(read(Part("b:1", "t", 7, 9))) == WANTED[2:4]


def test_rows_that_the_topic_has_dropped_are_left_out(consumer: Consumer) -> None:
    assert numbers(read(Part("b:1", "t", 0, 9))) == WANTED[:4]


def test_a_range_whose_last_records_were_compacted_ends(consumer: Consumer) -> None:
    del consumer.records[8], consumer.records[9]
    assert numbers(read(Part("b:1", "t", 5, 10))) == WANTED[:3]


def test_a_record_that_is_no_row_is_named_with_its_offset(consumer: Consumer) -> None:
    consumer.records[7] = b"no row"
    found = read(Part("b:1", "t", 5, 10))
    assert numbers(found) == [*WANTED[:2], *WANTED[3:5]]
    assert found.bad.to_pylist() == [{"file": "t-0", "line": 8, "why": "it is torn", "value": "no row"}]


def test_a_batch_is_bounded_and_begins_at_the_first_record_that_is_there(consumer: Consumer) -> None:
    stream = TopicStream("b:1", "t", 3)
    assert stream.initialOffset() == {"offset": 5}
    assert stream.latestOffset({"offset": 5}, stream.getDefaultReadLimit()) == {"offset": 8}
    assert stream.latestOffset({"offset": 0}, ReadMaxRows(4)) == {"offset": 9}
    assert stream.latestOffset({"offset": consumer.end}, ReadAllAvailable()) == {"offset": consumer.end}


def test_what_comes_after_the_start_is_not_of_a_single_run(consumer: Consumer) -> None:
    stream = TopicStream("b:1", "t", 1_000)
    stream.prepareForTriggerAvailableNow()
    end, consumer.end = consumer.end, consumer.end + 10
    assert stream.latestOffset({"offset": 5}, ReadMaxRows(1_000)) == {"offset": end}


def test_a_topic_that_was_made_anew_is_not_passed_over(consumer: Consumer) -> None:
    consumer.end = 25
    stream = TopicStream("b:1", "t", 1_000)
    with pytest.raises(NothingToRead, match=r"topic t ends at 25.* it was made anew, name a new checkpoint"):
        stream.latestOffset({"offset": 26}, ReadMaxRows(5))


@pytest.mark.parametrize(
    "given",
    [{}, {"journals": ["/journals"], "from_kafka": "b:1", "topic": "t"}, {"from_kafka": "b:1"}, {"topic": "t"}],
    ids=["neither", "both", "no topic", "no brokers"],
)
def test_a_stream_reads_folders_or_a_topic(given: dict[str, Any]) -> None:
    with pytest.raises(Stopped, match="a stream reads folders or a topic") as end:
        stream(Plain(json_wanted=False), into="/lake", checkpoint="/checkpoint", **given)
    assert (end.value.code, end.value.remedy) == (2, "name folders, or give --from-kafka and --topic")


def test_an_address_without_a_broker_is_named() -> None:
    with pytest.raises(NothingToRead, match=r"no broker of 127\.0\.0\.1:1 can be reached"):
        topic_reading.extent("127.0.0.1:1", "t")


def test_the_extent_is_that_of_the_partition(consumer: Consumer) -> None:
    assert topic_reading.extent("b:1", "t") == Extent(5, consumer.end)
