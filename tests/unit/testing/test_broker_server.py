"""Simulated brokers on sockets: requests are cut, counted, answered and, in the lean form, understood later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import testing.simulated.broker_server as module
from brokers.client import BrokerClient
from brokers.transport import TcpTransport
from brokers.wire.errors import Error
from brokers.wire.frames import ConnectionLost
from brokers.wire.partitions import PartitionEncoder, body, head, metadata_tail, topic_piece
from brokers.wire.primitives import Reader
from brokers.wire.requests import Errors, Failure, Requests, live_list, parse_response
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Assignment, Broker, Endpoint, PartitionRow, PartitionState, Topic
from testing.embedded.process import free_port
from testing.simulated.bodies import Bodies
from testing.simulated.broker_server import BrokerServer, Options
from testing.simulated.connection import FRAME_BYTES_MAX, Room
from testing.simulated.digest import view
from testing.simulated.replay import known
from testing.simulated.replies import encode_response
from testing.simulated.requests import read_head, read_request
from tests.kit.deadlines import eventually
from tests.kit.wire import quickly

IBP = Ibp.parse("3.9")
EPOCH = 10
TOPIC_ID = b"7" * 16
BIG = 2_000
"""Partitions of a request that does not fit into one read."""


class Sender:
    """Makes a controller's frames, without their lengths."""

    def __init__(self, controller_epoch: int = 5, broker_epoch: int = EPOCH) -> None:
        self.requests = Requests(IBP, 1_000_001, controller_epoch)
        self.broker_epoch = broker_epoch
        self.encoder = PartitionEncoder(IBP)

    def _rows(self, epochs: dict[int, int], leader: int) -> list[PartitionRow]:
        replicas = Assignment((1, 2, 3))
        online = PartitionState.ONLINE
        return [PartitionRow(0, p, replicas, online, leader, e, (1, 2, 3), 5, 0) for p, e in epochs.items()]

    def _body(self, entries: list[bytes]) -> bytes:
        return body([topic_piece(self.encoder.topic(Topic(0, "orders", TOPIC_ID, (), 0, 1)), entries)])

    def lead(self, epochs: dict[int, int], leader: int = 1, correlation: int = 1) -> bytes:
        said = self._body([head(row) + self.encoder.leader_and_isr_tail(row) for row in self._rows(epochs, leader)])
        return b"".join(self.requests.leader_and_isr(correlation, self.broker_epoch, said))[4:]

    def update(self, epochs: dict[int, int], leader: int = 1, live: tuple[int, ...] = (1, 2, 3)) -> bytes:
        said = self._body([head(row) + metadata_tail(()) for row in self._rows(epochs, leader)])
        listed = live_list([Broker(b, 1, (Endpoint("INTERNAL", "127.0.0.1", 9),)) for b in live])
        return b"".join(self.requests.update_metadata(1, self.broker_epoch, said, listed))[4:]

    def stop(self, epochs: dict[int, int], delete: bool = False) -> bytes:
        entries = [p.to_bytes(4, "big") + e.to_bytes(4, "big") + bytes((delete, 0)) for p, e in epochs.items()]
        said = body([topic_piece(b"\x07orders", entries)])
        return b"".join(self.requests.stop_replica(1, self.broker_epoch, said))[4:]


class Line:
    """A connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def response(self) -> bytes:
        """Returns the next frame."""
        async with asyncio.timeout(60):
            return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def exchange(self, frame: bytes) -> Errors:
        """Sends a request; returns the errors of its response."""
        self.send(frame)
        found = await self.response()
        header = read_head(Reader(frame))
        return parse_response(header.api, header.version, found, header.correlation)


@asynccontextmanager
async def server(room: Room | None = None, **options: Any) -> AsyncIterator[tuple[BrokerServer, Line]]:
    made = BrokerServer(1, Options(IBP, **options), Bodies(), room or Room())
    await made.listen()
    made.enter(EPOCH)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        yield made, Line(reader, writer)
        writer.close()
    finally:
        made.vanish()


def count(made: BrokerServer, api: Api) -> tuple[int, int, int]:
    found = made.counts[api]
    assert 0 < found.first_ns <= found.last_ns
    return found.requests, found.bytes, found.refused


DONE = Errors(0, [])


@pytest.mark.parametrize(("partitions", "sizes"), [(BIG, (1_000_000, 4_096, 777)), (4, (1, 2))])
@pytest.mark.parametrize("options", [{}, {"full_answers": True}, {"exact": True}], ids=str)
async def test_requests_are_answered_and_counted_in_whatever_pieces_they_arrive(
    options: dict[str, Any], partitions: int, sizes: tuple[int, ...]
) -> None:
    sender, everything = Sender(), dict.fromkeys(range(partitions), 4)
    frames = [sender.update(everything), sender.lead(everything), sender.stop({3: 4}), sender.lead({3: 5})]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    for size in sizes:
        async with server(**options) as (made, line):
            for at in range(0, len(stream), size):
                line.writer.write(stream[at : at + size])
                await asyncio.sleep(0)
            assert [int.from_bytes((await line.response())[:4], "big") for _ in frames] == [1] * 4
            assert count(made, Api.LEADER_AND_ISR) == (2, len(frames[1]) + len(frames[3]) + 8, 0)
            assert count(made, Api.UPDATE_METADATA) == (1, len(frames[0]) + 4, 0)
            assert count(made, Api.STOP_REPLICA) == (1, len(frames[2]) + 4, 0)
            [(_, broker)] = known([made])
            assert len(broker.metadata) == len(broker.replicas) == partitions
            assert broker.replicas["orders", 3].leader_epoch == 5


async def test_a_port_that_is_taken_is_not_chosen_and_later_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server() as (made, _):
        ports = iter([made.port, made.port, free_port()])
        monkeypatch.setattr(module, "free_port", lambda: next(ports))
        other = BrokerServer(2, Options(IBP), Bodies(), Room())
        await other.listen()
        assert other.port != made.port
        made.vanish()
        other.vanish()
        other.port = made.port
        await made.listen()
        with pytest.raises(OSError, match="address already in use"):
            await other.listen()


class CountedRoom(Room):
    """Counts the requests that arrive, and those that wait for room."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.arriving = self.waiting = 0

    def take(self, size: int, enter: Callable[[], None]) -> None:
        def entered() -> None:
            self.waiting -= 1
            self.arriving += 1
            enter()

        self.waiting += 1
        super().take(size, entered)

    def give_back(self, size: int) -> None:
        self.arriving -= 1
        super().give_back(size)


async def test_a_request_without_room_waits_until_another_one_has_arrived_or_its_connection_has_ended() -> None:
    frame = Sender().update(dict.fromkeys(range(BIG), 4))
    stream = len(frame).to_bytes(4, "big") + frame
    room = CountedRoom(len(frame) + len(frame) // 2)
    async with server(room) as (made, first):
        others = [Line(*await asyncio.open_connection("127.0.0.1", made.port)) for _ in range(3)]
        first.writer.write(stream[:-1])
        await eventually(lambda: room.arriving == 1)
        for line in others:
            line.writer.write(stream)
        await eventually(lambda: room.waiting == 3)
        assert not made.counts
        others[0].writer.transport.abort()
        first.writer.write(stream[-1:])
        for line in (first, *others[1:]):
            assert (await line.response())[4:] == bytes(4)
        others[1].writer.write(stream[:-1])
        await eventually(lambda: room.arriving == 1)
        others[1].writer.transport.abort()
        await eventually(lambda: room.arriving == 0)
        assert await others[2].exchange(frame) == DONE


async def test_full_responses_list_every_partition_with_error_11_where_it_was_sent_before() -> None:
    async with server(full_answers=True) as (made, line):
        frame = Sender().lead({0: 4, 7: 4})
        for expected in (0, 11):
            line.send(frame)
            response = await line.response()
            entries = [partition.to_bytes(4, "big") + expected.to_bytes(2, "big") + b"\0" for partition in (0, 7)]
            assert response.endswith(TOPIC_ID + b"\3" + b"".join(entries) + b"\0\0")
        made.begin(EPOCH + 1)
        line.send(Sender(broker_epoch=EPOCH + 1).lead({0: 4, 7: 4}))
        assert (await line.response())[-20:-2].count(b"\x0b") == 0, "a new incarnation"


@pytest.mark.parametrize("partitions", [1, 100, BIG])
async def test_one_kind_of_request_gets_full_responses_by_a_fault(partitions: int) -> None:
    sender, epochs = Sender(), dict.fromkeys(range(partitions), 4)
    async with server() as (made, line):
        made.faults.full = frozenset({Api.STOP_REPLICA})
        frame = sender.stop(epochs, delete=True)
        line.send(frame)
        response = await line.response()
        assert response == encode_response(read_request(frame), 0, {("orders", p): 0 for p in epochs})
        line.send(sender.lead(epochs))
        assert len(await line.response()) < 12


@pytest.mark.parametrize("exact", [False, True])
async def test_stale_requests_are_refused_counted_and_have_no_effect(exact: bool) -> None:
    async with server(exact=exact) as (made, line):
        assert await line.exchange(Sender(controller_epoch=6).update({0: 4})) == DONE
        assert (await line.exchange(Sender().update({0: 9}))).top == 11
        assert (await line.exchange(Sender(controller_epoch=6, broker_epoch=EPOCH - 1).update({0: 9}))).top == 77
        assert count(made, Api.UPDATE_METADATA)[::2] == (3, 2)
        [(_, broker)] = known([made])
        assert broker.metadata["orders", 0].leader_epoch == 4
        assert made.broker.controller_epoch == 6


@pytest.mark.parametrize("exact", [False, True])
async def test_injected_errors(exact: bool) -> None:
    async with server(exact=exact) as (made, line):
        made.faults.top = {Api.UPDATE_METADATA: 77}
        made.faults.each = {Api.LEADER_AND_ISR: 56}
        assert await line.exchange(Sender().update({0: 4})) == Errors(77, [])
        errors = await line.exchange(Sender().lead({0: 4, 1: 4}))
        assert errors == Errors(0, [Failure(TOPIC_ID, 0, 56), Failure(TOPIC_ID, 1, 56)])
        made.faults.top, made.faults.each = {}, {}
        [(_, broker)] = known([made])
        assert (broker.metadata, broker.replicas) == ({}, {})
        assert await line.exchange(Sender().update({0: 4})) == DONE


async def test_slow_and_mute_brokers_take_requests() -> None:
    async with server() as (made, line):
        made.faults.delay_s = 0.05
        began = asyncio.get_running_loop().time()
        assert await line.exchange(Sender().update({0: 4})) == DONE
        assert asyncio.get_running_loop().time() - began >= 0.04
        made.faults.delay_s, made.faults.mute = 0.0, True
        line.send(Sender().update({0: 5}))
        await eventually(lambda: made.counts[Api.UPDATE_METADATA].requests == 2)
        made.faults.mute = False
        assert await line.exchange(Sender().update({1: 5})) == DONE, "the next response is that of the next request"
        [(_, broker)] = known([made])
        assert broker.metadata["orders", 0].leader_epoch == 5


async def test_a_broker_that_vanishes_closes_its_port_and_its_connections_and_comes_back_empty() -> None:
    async with server() as (made, line):
        await line.exchange(Sender().update({0: 4}))
        made.vanish()
        assert await asyncio.wait_for(line.reader.read(), 60) == b""
        with pytest.raises(ConnectionRefusedError):
            await TcpTransport().connect("127.0.0.1", made.port, lambda: None)
        await made.listen()
        made.enter(EPOCH + 5)
        connection = await TcpTransport().connect("127.0.0.1", made.port, lambda: None)
        [(_, broker)] = known([made])
        assert (broker.metadata, broker.epoch) == ({}, EPOCH + 5)
        frame = Sender(broker_epoch=EPOCH).update({0: 4})
        response = await connection.exchange([len(frame).to_bytes(4, "big"), frame])
        assert parse_response(Api.UPDATE_METADATA, 8, response, 1).top == 77
        connection.close()


async def test_between_listening_and_registering_only_requests_to_the_next_incarnation_count() -> None:
    async with server(exact=True) as (made, _):
        made.vanish()
        await made.listen()
        line = Line(*await asyncio.open_connection("127.0.0.1", made.port))
        stale = Errors(Error.STALE_BROKER_EPOCH, [])
        assert await line.exchange(Sender().lead({0: 4})) == stale
        assert await line.exchange(Sender(broker_epoch=EPOCH + 5).lead({0: 4})) == DONE
        made.enter(EPOCH + 5)
        assert list(made.broker.replicas) == [("orders", 0)]
        line.writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\0\0\0\1x",
        b"\0\0\0\x20" + b"\0\4\0\3" + bytes(28),
        b"\0\0\0\x20" + b"\0\x20\0\1" + bytes(28),
        b"\0\0\x40\0" + b"\0\4\0\7" + b"\xff" * 600,
    ],
    ids=["huge", "negative", "tiny", "old version", "old query", "no head"],
)
async def test_malformed_bytes_close_their_connection_alone(sent: bytes) -> None:
    async with server() as (made, line):
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        assert await line.exchange(Sender().update({0: 4})) == DONE


async def test_a_broker_responds_with_its_ibp_and_its_versions() -> None:
    async with server() as (made, _):
        client = await BrokerClient.connect("127.0.0.1", made.port)
        assert client.api_versions[Api.LEADER_AND_ISR] == (4, 7)
        name = "inter.broker.protocol.version"
        assert await client.broker_configs(1, [name]) == {name: "3.9-IV0"}
        assert await client.broker_configs(1) == {name: "3.9-IV0"}
        client.close()
        connection = await TcpTransport().connect("127.0.0.1", made.port, lambda: None)
        with pytest.raises(ConnectionLost):
            await connection.exchange([b"\0\0\0\x0a\0\x25\0\0\0\0\0\1\0\0"])


# -- lean and exact brokers know the same

steps = st.lists(
    st.tuples(
        st.sampled_from(["lead", "update", "stop", "delete"]),
        st.dictionaries(st.integers(0, 3), st.integers(0, 4), min_size=1),
        st.sampled_from([1, 2, 3]),
        st.sampled_from([(1, 2, 3), (1, 2), (1,)]),
    ),
    max_size=12,
)


@quickly
@given(sent=st.lists(steps, min_size=1, max_size=3), data=st.data())
def test_kept_requests_have_the_effect_that_they_would_have_had_at_once(sent: list[Any], data: st.DataObject) -> None:
    """Some of the brokers were sent the very same."""
    bodies = Bodies()
    chosen = [data.draw(st.sampled_from(sent)) for _ in range(4)]
    lean = [BrokerServer(n, Options(IBP), bodies, Room()) for n in range(4)]
    exact = [BrokerServer(n, Options(IBP, exact=True), bodies, Room()) for n in range(4)]
    for one in (*lean, *exact):
        one.enter(EPOCH)
        for frame in map(framed, chosen[one.id]):
            reader = Reader(frame)
            header = read_head(reader)
            one.request(header, frame[reader.position :], len(frame), 1, lambda _: None)
    found = {made.id: broker for made, broker in known(lean)}
    for made in exact:
        assert view(found[made.id]) == view(made.broker)
        assert found[made.id].replicas == made.broker.replicas
        assert found[made.id].metadata == made.broker.metadata
        assert found[made.id].live == made.broker.live


def framed(step: tuple[str, dict[int, int], int, tuple[int, ...]]) -> bytes:
    kind, epochs, leader, live = step
    sender = Sender()
    match kind:
        case "lead":
            return sender.lead(epochs, leader)
        case "update":
            return sender.update(epochs, leader, live)
        case _:
            return sender.stop(epochs, delete=kind == "delete")
