"""The controller listener over real sockets: brokers' calls, lost roles, and peers that misbehave."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from msgspec import Struct

from brokers.listener.controller_listener import ControllerListener, NotController
from brokers.listener.envelopes import CarriedCall
from brokers.listener.inbound import ListenerLimits
from brokers.rate_limited_log import LOG_INTERVAL_S, LOG_LINES_MAX, RateLimitedLog
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, Call, ControlledShutdownCall
from brokers.wire.replies import (
    AllocateProducerIdsReply,
    AlterPartitionReply,
    ControlledShutdownReply,
    PartitionReply,
)
from tests.core.wire_kit import part, read_response, to_uuid, write_request
from tests.polling import eventually

TOPIC_ID = bytes(range(1, 17))
SHUTDOWN, VERSIONS, ALTER, ALLOCATE = 7, 18, 56, 67


class CallsDouble:
    """Answers calls; ``gate`` keeps answers back, ``error`` is raised instead of one."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.finished = 0
        self.at_once_max = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.remaining = [("left", 4)]
        self.known: set[tuple[int, int]] | None = None

    async def _took(self, call: Call) -> None:
        self.calls.append(call)
        self.at_once_max = max(self.at_once_max, len(self.calls) - self.finished)
        await self.gate.wait()
        self.finished += 1
        if self.error is not None:
            raise self.error

    def registered(self, broker: int, epoch: int) -> bool:
        return self.known is None or (broker, epoch) in self.known

    async def admits(self, principal: str, client_host: str) -> bool:
        return True

    async def carried(self, call: CarriedCall) -> Struct:
        raise NotController

    async def controlled_shutdown(self, call: ControlledShutdownCall) -> ControlledShutdownReply:
        await self._took(call)
        return ControlledShutdownReply(0, self.remaining)

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        await self._took(call)
        states = [PartitionReply(p.topic, p.partition, 0, 1, 5, p.isr, p.partition_epoch + 1) for p in call.proposals]
        return AlterPartitionReply(0, states)

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        await self._took(call)
        return AllocateProducerIdsReply(0, 7_000, 1_000)


class Peer:
    """A broker's connection to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation = 0

    async def ask(self, key: int, version: int, **fields: object) -> Any:
        """One call and its answer, read with kio."""
        self._correlation += 1
        self.send(write_request(key, version, self._correlation, "2", **fields))
        return await self.answer(key, version)

    def send(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def answer(self, key: int, version: int) -> Any:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        correlation, entity = read_response(key, version, await self.reader.readexactly(size))
        assert correlation == self._correlation
        return entity

    async def closed(self) -> bool:
        """Waits until the listener closes the connection; whatever it still sends is dropped."""
        try:
            async with asyncio.timeout(10):
                while await self.reader.read(65_536):
                    pass
        except ConnectionError:
            pass
        self.writer.close()
        return True


class Desk:
    """A listener, who answers, and connections to it."""

    def __init__(self, listener: ControllerListener, double: CallsDouble) -> None:
        self.listener = listener
        self.double = double
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        self._writers.append(writer)
        return Peer(reader, writer)

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def desk(*, serving: bool = True, **limits: int) -> AsyncIterator[Desk]:
    """A listener on a free port."""
    listener, double = ControllerListener("127.0.0.1", 0, ListenerLimits(**limits)), CallsDouble()
    await listener.start()
    if serving:
        listener.serve(double)
    made = Desk(listener, double)
    try:
        yield made
    finally:
        double.gate.set()
        made.hang_up()
        await listener.stop()


def isr_change(version: int = 3, isr: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    """Fields of an AlterPartition of one partition."""
    members = tuple(part(ALTER, 3, "BrokerState", broker_id=b, broker_epoch=-1) for b in isr)
    partition = part(
        ALTER,
        version,
        "PartitionData",
        partition_index=3,
        leader_epoch=5,
        new_isr=isr,
        new_isr_with_epochs=members,
        leader_recovery_state=0,
        partition_epoch=8,
    )
    topic_id = to_uuid(TOPIC_ID)
    topic = part(ALTER, version, "TopicData", topic_name="t", topic_id=topic_id, partitions=(partition,))
    return {"broker_id": 1, "broker_epoch": 57, "topics": (topic,)}


# -- what brokers call


@pytest.mark.seed("S4-80", "S4-87")
async def test_a_broker_asks_for_versions_and_then_calls_on_the_same_connection() -> None:
    async with desk() as d:
        peer = await d.connect()
        software = {"client_software_name": "apache-kafka-java", "client_software_version": "3.9.1"}
        versions = await peer.ask(VERSIONS, 4, **software)
        assert {key.api_key: key.max_version for key in versions.api_keys} == {7: 3, 18: 4, 56: 3, 67: 0}
        for version in range(4):
            answer = await peer.ask(ALTER, version, **isr_change(version))
            (state,) = answer.topics[0].partitions
            assert (answer.error_code, state.isr, state.partition_epoch) == (0, (1, 2), 9)
        block = await peer.ask(ALLOCATE, 0, broker_id=1, broker_epoch=57)
        assert (block.error_code, block.producer_id_start, block.producer_id_len) == (0, 7_000, 1_000)
        assert [type(call).__name__ for call in d.double.calls] == ["AlterPartitionCall"] * 4 + [
            "AllocateProducerIdsCall"
        ]


@pytest.mark.seed("S4-72")
@pytest.mark.parametrize("version", [2, 3])
async def test_a_controlled_shutdown_comes_without_asking_for_versions(version: int) -> None:
    async with desk() as d:
        peer = await d.connect()
        answer = await peer.ask(SHUTDOWN, version, broker_id=2, broker_epoch=57)
        assert [(p.topic_name, p.partition_index) for p in answer.remaining_partitions] == [("left", 4)]
        assert d.double.calls == [ControlledShutdownCall(version, 2, 57)]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_controlled_shutdown_without_a_broker_epoch_is_not_served(version: int) -> None:
    async with desk() as d:
        peer = await d.connect()
        client_id = "0001 61" if version else ""
        peer.send(bytes.fromhex(f"0007 000{version} 00000001 {client_id} 00000002"))
        await eventually(lambda: d.listener.connections == 0)
        assert d.double.calls == []


async def test_a_newer_broker_is_told_which_versions_of_api_versions_there_are() -> None:
    async with desk() as d:
        peer = await d.connect()
        peer.send(bytes.fromhex("0012 0007 00000000 0001 32 00") + b"whatever version 7 will bring")
        answer = await peer.answer(VERSIONS, 0)
        assert answer.error_code == 35
        assert {key.api_key: key.max_version for key in answer.api_keys}[VERSIONS] == 4
        assert (await peer.ask(VERSIONS, 0)).error_code == 0


async def test_calls_of_one_connection_are_answered_one_after_the_other() -> None:
    async with desk() as d:
        peer = await d.connect()
        d.double.gate.clear()
        for correlation in (1, 2, 3):
            peer.send(write_request(ALLOCATE, 0, correlation, broker_id=correlation, broker_epoch=1))
        await eventually(lambda: d.double.calls)
        d.double.gate.set()
        for correlation in (1, 2, 3):
            peer._correlation = correlation
            assert (await peer.answer(ALLOCATE, 0)).error_code == 0
        assert d.double.at_once_max == 1
        assert [call.broker_id for call in d.double.calls if isinstance(call, AllocateProducerIdsCall)] == [
            1,
            2,
            3,
        ]


async def test_no_more_is_read_from_a_broker_while_its_call_is_under_way() -> None:
    async with desk() as d:
        peer = await d.connect()
        d.double.gate.clear()
        peer.send(write_request(ALLOCATE, 0, 1, broker_id=1, broker_epoch=1))
        await eventually(lambda: d.double.calls)
        for _ in range(20):
            peer.send(bytes(1_000_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.writer.drain(), 0.5)


async def test_a_slow_call_of_one_broker_holds_no_other_up() -> None:
    async with desk() as d:
        slow, quick = await d.connect(), await d.connect()
        d.double.gate.clear()
        slow.send(write_request(ALLOCATE, 0, 1, broker_id=1, broker_epoch=1))
        await eventually(lambda: d.double.calls)
        assert (await quick.ask(VERSIONS, 0)).error_code == 0


# -- the role


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("why", ["never held", "resigned", "lost while the call waited", "a bug"])
async def test_who_does_not_hold_the_role_says_so(why: str, caplog: pytest.LogCaptureFixture) -> None:
    async with desk(serving=why != "never held") as d:
        if why == "resigned":
            d.listener.resign()
        d.double.error = {"lost while the call waited": NotController(), "a bug": ZeroDivisionError()}.get(why)
        peer = await d.connect()
        assert (await peer.ask(SHUTDOWN, 3, broker_id=1, broker_epoch=1)).error_code == 11
        assert (await peer.ask(ALTER, 3, **isr_change())).error_code == 41
        assert (await peer.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)).error_code == 41
    assert len(caplog.records) == (3 if why == "a bug" else 0)


async def test_resigning_closes_every_connection_so_that_brokers_look_elsewhere_at_once() -> None:
    async with desk() as d:
        peers = [await d.connect() for _ in range(3)]
        for peer in peers:
            await peer.ask(VERSIONS, 0)
        d.double.gate.clear()
        peers[0].send(write_request(ALLOCATE, 0, 9, broker_id=1, broker_epoch=1))
        await eventually(lambda: d.double.calls)
        d.listener.resign()
        assert all([await peer.closed() for peer in peers])
        await eventually(lambda: d.listener.connections == 0)


async def test_a_call_that_takes_too_long_is_answered_and_goes_on() -> None:
    async with desk(call_timeout_ms=50) as d:
        d.double.gate.clear()
        peer = await d.connect()
        assert (await peer.ask(SHUTDOWN, 3, broker_id=1, broker_epoch=1)).error_code == 7
        assert d.double.finished == 0
        d.double.gate.set()
        await eventually(lambda: d.double.finished == 1)


async def test_a_call_whose_broker_hung_up_goes_on() -> None:
    async with desk() as d:
        d.double.gate.clear()
        peer = await d.connect()
        peer.send(write_request(SHUTDOWN, 3, 1, broker_id=1, broker_epoch=1))
        await eventually(lambda: d.double.calls)
        peer.writer.transport.abort()
        d.double.gate.set()
        await eventually(lambda: d.double.finished == 1 and d.listener.connections == 0)


async def test_too_many_calls_under_way_are_refused_and_not_queued() -> None:
    async with desk(calls_max=1) as d:
        d.double.gate.clear()
        first, second = await d.connect(), await d.connect()
        first.send(write_request(SHUTDOWN, 3, 1, broker_id=1, broker_epoch=1))
        await eventually(lambda: d.double.calls)
        assert (await second.ask(SHUTDOWN, 3, broker_id=2, broker_epoch=1)).error_code == 7
        assert len(d.double.calls) == 1


# -- peers that misbehave

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "tls": bytes.fromhex("160301020001000001fc0303") + bytes(300),
    "negative length": b"\xff\xff\xff\xff",
    "empty frame": b"\0\0\0\0",
    "short header": b"\0\0\0\x05\0\x38\0\3\0",
    "other api": b"\0\0\0\x0e" + bytes.fromhex("0003 000c 00000001 0001 32 00 00 00"),
    "other version": b"\0\0\0\x0e" + bytes.fromhex("0038 0009 00000001 0001 32 00 00 00"),
    "cut body": b"\0\0\0\x10" + bytes.fromhex("0038 0003 00000001 0001 32 00 00000001"),
    "huge array": b"\0\0\0\x1c"
    + bytes.fromhex("0038 0003 00000001 0001 32 00 00000001 0000000000000009 ffffffff0f 00 "),
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_closes_its_own_connection_with_one_sentence_and_nobody_elses(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk() as d:
        good = await d.connect()
        await good.ask(VERSIONS, 0)
        for _ in range(20):
            bad = await d.connect()
            bad.writer.write(GARBAGE[kind])
            assert await bad.closed()
        assert (await good.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)).error_code == 0
        assert d.listener.connections == 1
    assert len([r for r in caplog.records if "a connection from 127.0.0.1 is closed: " in r.getMessage()]) == 1


async def test_an_api_that_is_not_served_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with desk() as d:
        peer = await d.connect()
        peer.writer.write(GARBAGE["other api"])
        assert await peer.closed()
    assert "API key 3 v12, which the controller listener does not serve" in caplog.text


async def test_a_frame_above_the_limit_is_refused_at_its_length() -> None:
    async with desk(frame_bytes_max=1_000) as d:
        peer = await d.connect()
        peer.writer.write((1_001).to_bytes(4, "big"))
        assert await peer.closed()


async def test_a_request_that_never_arrives_whole_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(frame_timeout_ms=150) as d:
        peer = await d.connect()
        peer.writer.write(b"\0\0\0\x20\0\x38")
        assert await peer.closed()
        behind = await d.connect()
        await behind.ask(VERSIONS, 0)
        behind.writer.write(b"\0\0")
        assert await behind.closed()
    assert "does not arrive whole" in caplog.text


async def test_a_peer_that_takes_no_answers_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(frame_timeout_ms=100) as d:
        d.double.remaining = [("a-topic-with-a-long-name", p) for p in range(50_000)]
        peer = await d.connect()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            peer.send(write_request(SHUTDOWN, 3, 1, broker_id=1, broker_epoch=1))
        await eventually(lambda: d.double.calls and d.listener.connections == 0)
    assert "does not take its response" in caplog.text


async def test_an_idle_connection_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(idle_timeout_ms=400) as d:
        peer = await d.connect()
        await peer.ask(VERSIONS, 0)
        assert await peer.closed()
    assert not caplog.records


@pytest.mark.parametrize("asked", [False, True])
async def test_a_connection_without_a_real_call_ends_sooner_than_an_idle_one(
    asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(frame_timeout_ms=300) as d:
        broker, stranger = await d.connect(), await d.connect()
        await broker.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)
        if asked:
            await stranger.ask(VERSIONS, 0)
        assert await stranger.closed()
        assert (await broker.ask(VERSIONS, 0)).error_code == 0
    assert not caplog.records


async def test_a_connection_whose_first_call_takes_long_is_not_taken_for_one_without() -> None:
    async with desk(frame_timeout_ms=100) as d:
        d.double.gate.clear()
        broker = await d.connect()
        broker.send(write_request(ALLOCATE, 0, 0, broker_id=1, broker_epoch=1))
        await eventually(lambda: d.double.calls)
        await asyncio.sleep(0.2)
        d.double.gate.set()
        assert (await broker.answer(ALLOCATE, 0)).error_code == 0


async def test_a_flood_of_questions_is_no_call_that_takes_long() -> None:
    async with desk(frame_timeout_ms=100, call_timeout_ms=200) as d:
        stranger = await d.connect()
        question = write_request(VERSIONS, 0, 1)

        async def flood() -> None:
            while True:
                stranger.send(question)
                await stranger.writer.drain()
                await stranger.reader.read(100_000)

        flooding = asyncio.create_task(flood())
        await eventually(lambda: d.listener.connections == 1)
        await eventually(lambda: d.listener.connections == 0)
        flooding.cancel()


async def test_strangers_that_fill_every_place_make_room_for_brokers_which_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with desk(connections_max=5) as d:
        broker = await d.connect()
        await broker.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)
        crowd = [await d.connect() for _ in range(20)]
        for stranger in crowd[-4:]:
            await stranger.ask(VERSIONS, 0)
        assert d.listener.connections == 5
        other = await d.connect()
        assert (await other.ask(ALLOCATE, 0, broker_id=2, broker_epoch=1)).error_code == 0
        assert (await broker.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)).error_code == 0
    assert not caplog.records


async def test_brokers_above_the_bound_are_refused_until_one_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(connections_max=2) as d:
        peers = [await d.connect() for _ in range(2)]
        for peer in peers:
            await peer.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)
        for _ in range(10):
            assert await (await d.connect()).closed()
        peers[0].writer.close()
        await eventually(lambda: d.listener.connections == 1)
        assert (await (await d.connect()).ask(VERSIONS, 0)).error_code == 0
    refused = [r.getMessage() for r in caplog.records if "is refused" in r.getMessage()]
    assert len(refused) == 1
    assert "raise listener.connections_max" in refused[0]


async def test_bytes_of_all_peers_together_are_bounded_as_they_come_not_as_they_are_announced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    size = 1_000_000
    head = write_request(ALTER, 3, 0, **large())[:2_000]
    async with desk(buffered_bytes_max=2 * size) as d:
        peers = [await d.connect() for _ in range(3)]
        for peer in peers:
            peer.writer.write(size.to_bytes(4, "big") + head[:1])
        await eventually(lambda: d.listener.slots.held == 15)
        for peer in peers[:2]:
            peer.writer.write(head[1:] + bytes(size - len(head) - 10))
        await eventually(lambda: d.listener.slots.held >= 2 * size - 20)
        peers[2].writer.write(head[1:] + bytes(size - len(head) - 10))
        assert await peers[2].closed()
        broker = await d.connect()
        assert (await broker.ask(ALLOCATE, 0, broker_id=2, broker_epoch=1)).error_code == 0
        broker.writer.write(size.to_bytes(4, "big") + bytes(size - 10))
        await eventually(lambda: d.listener.connections == 2)
        await eventually(lambda: d.listener.slots.held >= 2 * size - 20)
        assert d.listener.slots.held <= 2 * size
    assert "all peers together" in caplog.text


async def test_a_call_counts_until_it_is_answered() -> None:
    async with desk() as d:
        d.double.gate.clear()
        peer = await d.connect()
        peer.send(write_request(ALTER, 3, 1, **large()))
        await eventually(lambda: d.double.calls)
        assert d.listener.slots.held > 60_000
        d.double.gate.set()
        peer._correlation = 1
        await peer.answer(ALTER, 3)
        await eventually(lambda: d.listener.slots.held == 0)


# -- large calls


def large(partitions: int = 3_000) -> dict[str, Any]:
    """Fields of an AlterPartition that is read beside the loop."""
    fields = isr_change()
    [topic] = fields["topics"]
    return fields | {"topics": (dataclasses.replace(topic, partitions=topic.partitions * partitions),)}


async def test_a_large_call_of_a_registered_broker_is_read_while_others_are_answered() -> None:
    async with desk() as d:
        d.double.known = {(1, 57)}
        peer, quick = await d.connect(), await d.connect()
        answer, versions = await asyncio.gather(peer.ask(ALTER, 3, **large()), quick.ask(VERSIONS, 0))
        assert (answer.error_code, len(answer.topics[0].partitions)) == (0, 3_000)
        assert versions.error_code == 0


async def test_a_large_call_is_not_read_unless_it_is_of_a_registered_broker() -> None:
    async with desk() as d:
        d.double.known = {(1, 56), (2, 57)}
        frame = write_request(ALTER, 3, 1, **large())
        peer = await d.connect()
        await peer.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)
        for serving, error in ((True, 77), (False, 41)):
            if not serving:
                d.listener._handlers = None
            peer.send(frame[:60] + b"\xff" * (len(frame) - 60))
            assert (await peer.answer(ALTER, 3)).error_code == error
        assert len(d.double.calls) == 1


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("kind", ["ISR changes", "another broker's epoch", "versions", "an envelope", "zeros"])
async def test_of_a_stranger_s_large_request_nothing_but_the_beginning_is_taken(kind: str, serving: bool) -> None:
    heads = {
        "ISR changes": write_request(ALTER, 3, 1, **large()),
        "another broker's epoch": write_request(ALTER, 3, 1, **(large() | {"broker_id": 2})),
        "versions": write_request(VERSIONS, 0, 1),
        "an envelope": bytes.fromhex("003a 0000 00000001 ffff 00"),
    }
    async with desk(serving=serving) as d:
        d.double.known = {(1, 56), (2, 56)}
        peer = await d.connect()
        peer.writer.write((10_000_000).to_bytes(4, "big") + heads.get(kind, b"").ljust(2_000, b"\0")[:2_000])
        assert await peer.closed()
        assert d.double.calls == []


async def test_a_large_first_call_of_a_registered_broker_is_taken_however_it_comes() -> None:
    async with desk() as d:
        d.double.known = {(1, 57)}
        peer = await d.connect()
        frame = write_request(ALTER, 3, 0, **large())
        framed = len(frame).to_bytes(4, "big") + frame
        for start in range(0, len(framed), 700):
            peer.writer.write(framed[start : start + 700])
            await asyncio.sleep(0)
        assert (await peer.answer(ALTER, 3)).error_code == 0


async def test_a_call_that_is_small_in_every_broker_is_not_taken_when_it_is_large() -> None:
    async with desk() as d:
        peer = await d.connect()
        peer.send(write_request(ALLOCATE, 0, 1, broker_id=1, broker_epoch=1) + bytes(40_000))
        assert await peer.closed()


def test_a_sentence_is_said_once_a_minute_with_the_number_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    quiet = RateLimitedLog(lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            quiet.warn("10.0.0.1", "frame", "garbage from 10.0.0.1")
        quiet.warn("10.0.0.2", "frame", "garbage from 10.0.0.2")
        now[0] = LOG_INTERVAL_S
        quiet.warn("10.0.0.1", "frame", "garbage from 10.0.0.1")
    assert [record.getMessage() for record in caplog.records] == [
        "garbage from 10.0.0.1",
        "garbage from 10.0.0.2",
        "garbage from 10.0.0.1 (4 more of these in the last minute or longer)",
    ]


def test_many_peers_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    quiet = RateLimitedLog(lambda: now[0])
    for turn in range(2):
        now[0] = turn * LOG_INTERVAL_S
        for number in range(1_000):
            quiet.warn(f"{turn}.{number}", "frame", "garbage")
    said = [record.getMessage() for record in caplog.records]
    assert said.count("garbage") == 2 * LOG_LINES_MAX
    assert len(said) == 2 * LOG_LINES_MAX + 1
    assert f"{1_000 - LOG_LINES_MAX} warnings about other peers" in said[LOG_LINES_MAX]


def test_what_was_said_is_remembered_for_a_bounded_number_of_peers() -> None:
    quiet = RateLimitedLog(lambda: 0.0)
    for i in range(5_000):
        quiet.warn(str(i), "frame", "garbage")
    assert len(quiet._logged) == 1_000


# -- life


async def test_it_can_be_stopped_and_started_again() -> None:
    async with desk() as d:
        peer = await d.connect()
        await peer.ask(VERSIONS, 0)
        await d.listener.stop()
        assert await peer.closed()
        with pytest.raises(RuntimeError, match="not started"):
            assert d.listener.port
        await d.listener.start()
        again = await d.connect()
        assert (await again.ask(ALLOCATE, 0, broker_id=1, broker_epoch=1)).error_code == 41


async def test_a_port_that_is_taken_is_named() -> None:
    async with desk() as d:
        other = ControllerListener("127.0.0.1", d.listener.port)
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{d.listener.port}"):
            await other.start()


def test_it_runs_on_uvloop_too(caplog: pytest.LogCaptureFixture) -> None:
    uvloop.run(test_a_broker_asks_for_versions_and_then_calls_on_the_same_connection())
    uvloop.run(test_a_frame_above_the_limit_is_refused_at_its_length())
    uvloop.run(test_a_peer_that_takes_no_answers_ends_its_connection(caplog))
