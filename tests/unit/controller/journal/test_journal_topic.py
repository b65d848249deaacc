"""The journal's topic: rows in order and within bounds, whatever its brokers do, and only rows that the files have."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs.connections import SecuritySettings
from configs.journal_section import JournalSettings
from controller.journal.journal import Journal
from controller.journal.segments import segments_in
from controller.journal.topic import QUIET_S, RETRY_S, JournalTopic, Sending, Slice, TopicQueue, records_of
from controller.journal.topic_producer import NotTaken, Producer, Record, TooLarge, connect
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.metrics.values import Counters
from tests.kit.deadlines import WITHIN_S, in_exact_time
from tests.kit.journals import DAEMON, Disk, record


class Brokers(Producer):
    """A topic that keeps records; ``down`` is the reason for which it takes none, "" while it works."""

    def __init__(self, *, record_bytes_max: int = 1_000_000) -> None:
        self.down = ""
        self.record_bytes_max = record_bytes_max
        self.silent = False
        self.batches: list[Sequence[Record]] = []
        self.bootstraps: list[Sequence[str]] = []
        self.arrived = threading.Event()

    @property
    def values(self) -> list[bytes]:
        return [one.value for batch in self.batches for one in batch]

    async def connect(self, bootstrap: Sequence[str], topic: str) -> Brokers:
        assert topic == "t"
        self.bootstraps.append(bootstrap)
        if self.down:
            raise NotTaken(self.down)
        return self

    async def send(self, records: Sequence[Record]) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.down:
            raise NotTaken(self.down)
        if sum(len(one.value) for one in records) > self.record_bytes_max:
            raise TooLarge("max.message.bytes of topic t")
        self.batches.append(records)
        self.arrived.set()

    async def close(self) -> None:
        pass


class Line:
    """A queue with its sender, in virtual time; ``lines`` are rows of the fifth term, numbered from 1."""

    def __init__(self, brokers: Brokers, bytes_max: int = 1_000_000) -> None:
        self.counters = Counters()
        self.queue = TopicQueue(bytes_max, self.counters)
        clock = asyncio.get_running_loop().time
        self.sending = Sending("t", self.queue, self.counters, brokers.connect, lambda: ["b:1"], clock)
        self.seq = 1

    def put(self, *lines: bytes) -> None:
        self.queue.stage(Slice(5, self.seq, len(lines), b"".join(line + b"\n" for line in lines)))
        self.queue.commit()
        self.seq += len(lines)
        self.sending.woken.set()

    async def drained(self) -> None:
        self.sending.closing = True
        self.sending.woken.set()
        await self.sending.run()


def test_a_record_has_its_term_and_number_as_its_key() -> None:
    assert records_of(Slice(7, 41, 2, b"{a}\n{b}\n")) == [
        (b"0000000007-000000000041", b"{a}"),
        (b"0000000007-000000000042", b"{b}"),
    ]


@in_exact_time
async def test_rows_arrive_in_their_order_in_batches() -> None:
    brokers = Brokers()
    line = Line(brokers, bytes_max=10_000_000)
    wanted = [b"%d" % number + b"x" * 9_000 for number in range(300)]
    for at in range(0, len(wanted), 10):
        line.put(*wanted[at : at + 10])
    await line.drained()
    assert brokers.values == wanted
    assert len(brokers.batches) == 4
    assert line.counters.journal_topic_rows == 300
    assert line.counters.journal_topic_bytes_waiting == 0


@in_exact_time
async def test_rows_without_room_are_dropped_and_leave_a_hole(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    line = Line(brokers, bytes_max=30)
    line.put(b"first" * 5)
    line.put(b"second" * 5)
    assert line.counters.journal_topic_rows_lost == 1
    assert line.counters.journal_topic_bytes_waiting == 26
    sending = asyncio.create_task(line.sending.run())
    await asyncio.sleep(1)
    line.put(b"third" * 5)
    await asyncio.sleep(1)
    sending.cancel()
    assert [one.key[-1:] for batch in brokers.batches for one in batch] == [b"1", b"3"]


@in_exact_time
async def test_an_outage_is_shown_once_it_lasts_and_each_reason_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "regent.journal")
    brokers = Brokers()
    brokers.down = "topic t does not exist: create it"
    line = Line(brokers)
    line.put(b"1", b"2")
    sending = asyncio.create_task(line.sending.run())
    await asyncio.sleep(QUIET_S - RETRY_S)
    assert (line.counters.journal_topic_failing, caplog.messages) == ("", [])
    await asyncio.sleep(60)
    assert line.counters.journal_topic_failing == brokers.down
    brokers.down = "no broker can be reached"
    await asyncio.sleep(60)
    brokers.down = ""
    await asyncio.sleep(RETRY_S)
    sending.cancel()
    assert caplog.messages == [
        "no row of the journal reaches topic t, the files have them: topic t does not exist: create it",
        "no row of the journal reaches topic t, the files have them: no broker can be reached",
        "topic t gets the journal's rows again; 0 are missing in it since the start",
    ]
    assert line.counters.journal_topic_failing == ""
    assert brokers.values == [b"1", b"2"]


@in_exact_time
async def test_an_election_of_a_leader_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    brokers.down = "no leader"
    line = Line(brokers)
    line.put(b"1")
    sending = asyncio.create_task(line.sending.run())
    await asyncio.sleep(QUIET_S / 2)
    brokers.down = ""
    await asyncio.sleep(RETRY_S)
    sending.cancel()
    assert (brokers.values, caplog.messages) == ([b"1"], [])


@in_exact_time
async def test_a_defect_of_the_client_is_an_outage_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, tries = Brokers(), 0

    async def send(records: Sequence[Record], _real: Any = brokers.send) -> None:
        nonlocal tries
        tries += 1
        if tries <= 10:
            raise AttributeError("nodeId")
        await _real(records)

    monkeypatch.setattr(brokers, "send", send)
    line = Line(brokers)
    line.put(b"1")
    sending = asyncio.create_task(line.sending.run())
    await asyncio.sleep(15)
    assert line.counters.journal_topic_failing == "a defect: AttributeError: nodeId"
    await asyncio.sleep(15)
    sending.cancel()
    assert brokers.values == [b"1"]
    assert len(brokers.bootstraps) == 11, "a producer is not used again after an error"


@in_exact_time
async def test_a_row_that_is_too_large_is_left_out_alone(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers(record_bytes_max=1_000)
    line = Line(brokers)
    wanted = [b"%03d" % number + b"x" * 400 for number in range(20)]
    line.put(*wanted[:10], b"y" * 1_001, *wanted[10:])
    await line.drained()
    assert brokers.values == wanted
    assert line.counters.journal_topic_rows_lost == 1
    assert line.counters.journal_topic_bytes_waiting == 0
    assert caplog.messages == [
        "row 0000000005-000000000011 is missing in topic t, the files have it: max.message.bytes of topic t"
    ]


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def topic(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> JournalTopic:
    monkeypatch.setattr("controller.journal.journal.QUIET_S", 0.001)
    monkeypatch.setattr("controller.journal.topic.CLOSE_S_MAX", WITHIN_S)
    return JournalTopic(JournalSettings(topic="t"), Counters(), brokers.connect)


def test_a_journal_gives_its_topic_what_its_files_have(tmp_path: Path, topic: JournalTopic, brokers: Brokers) -> None:
    journal = Journal(tmp_path, JournalSettings(), Counters(), copies=topic)
    journal.start()
    topic.start(lambda: ["b1:9092"])
    term = journal.term(DAEMON, 5, KafkaJournal)
    record(term, *map(str, range(600)))
    assert brokers.arrived.wait(WITHIN_S)
    record(term, "last")
    journal.close()
    assert brokers.values == b"".join(path.read_bytes() for path in segments_in(tmp_path)).splitlines()
    assert len(brokers.values) == 601
    assert brokers.bootstraps == [["b1:9092"]]


def test_a_row_that_the_disk_refused_is_not_in_the_topic(
    tmp_path: Path, topic: JournalTopic, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.sync_fails = True
    journal = Journal(tmp_path, JournalSettings(), Counters(), copies=topic)
    term = journal.term(DAEMON, 5, KafkaJournal)
    record(term, "refused")
    journal._write(journal._taken(), last=True)
    disk.sync_fails = False
    record(term, "written")
    journal._write(journal._taken(), last=True)
    topic.start(lambda: ["b1:9092"])
    assert brokers.arrived.wait(WITHIN_S)
    topic.close()
    assert b'"UNRECORDED"' in brokers.values[0]
    assert b'"written"' in brokers.values[1]
    assert len(brokers.values) == 2


def test_a_stop_does_not_wait_for_brokers(
    tmp_path: Path,
    topic: JournalTopic,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("controller.journal.topic.CLOSE_S_MAX", 0.3)
    brokers.silent = True
    journal = Journal(tmp_path, JournalSettings(), Counters(), copies=topic)
    journal.start()
    topic.start(lambda: ["b1:9092"])
    record(journal.term(DAEMON, 5, KafkaJournal), "a", "b")
    journal.close()
    topic._thread.join(WITHIN_S)
    assert not topic._thread.is_alive()
    assert "the last 2 rows are missing in topic t, the files have them" in caplog.messages


def test_brokers_that_died_are_tried_again_at_their_last_addresses(topic: JournalTopic) -> None:
    live = [["b1:1", "b2:1"], []]
    topic._brokers = lambda: live.pop(0)
    assert [topic._bootstrap(), topic._bootstrap()] == [["b1:1", "b2:1"]] * 2
    topic._known, topic._brokers = (), list
    with pytest.raises(NotTaken, match="no broker is registered"):
        topic._bootstrap()


def test_the_settings_name_the_brokers_of_another_cluster() -> None:
    settings = JournalSettings(topic="t", topic_bootstrap="k1:9092, k2:9092")
    assert JournalTopic(settings, Counters(), Brokers().connect)._bootstrap() == ["k1:9092", "k2:9092"]


async def test_an_address_without_a_broker_is_a_reason() -> None:
    with pytest.raises(NotTaken, match=r"127\.0\.0\.1:1: no broker can be reached"):
        await connect(["127.0.0.1:1"], "t", security=SecuritySettings(), timeout_s=5.0)


async def test_a_file_of_a_password_that_is_missing_is_a_reason(tmp_path: Path) -> None:
    security = SecuritySettings(protocol="SASL_PLAINTEXT", sasl_file=tmp_path / "none")
    with pytest.raises(NotTaken, match="none cannot be read"):
        await connect(["127.0.0.1:1"], "t", security=security, timeout_s=5.0)
