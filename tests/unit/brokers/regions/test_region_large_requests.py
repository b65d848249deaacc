"""Large requests at the regions' port: judged by their first fields, one of an address at a time, and never kept."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from brokers.listener.inbound import ListenerLimits
from brokers.regions.connection import PLACES_MAX, Peer, RegionConnection
from brokers.regions.listener import RegionListener
from controller.regions.restored import Seen, Serving
from metadata_store.records.port import StoreFailed
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, Head
from regent_agent.protocol import (
    LIST_BYTES_MAX,
    NAMES_BYTES_MAX,
    SMALL_BYTES_MAX,
    Accepted,
    Follow,
    Hello,
    Owned,
    Poll,
    Refused,
    Regions,
    Register,
    Request,
    Response,
)
from tests.kit.deadlines import eventually
from tests.kit.listener import PATIENT
from tests.kit.regions.term import stage

LISTS = [Owned(number, (1 << 40) + number) for number in range(20_000)]
REFUSAL = Refused(protocol.REGISTER, "it is no member")
TOO_LONG = "x" * 1_000


class Domain:
    """An active domain whose members are ``members``; requests wait for ``gate``."""

    epoch = 1

    def __init__(self, *members: str) -> None:
        self.members = members
        self.gate = asyncio.Event()
        self.gate.set()
        self.took: list[Request] = []
        self.at_work = 0

    def judge(self, head: Head, peer: Peer) -> Refused | None:
        return None if head.fields["server"] in self.members else REFUSAL

    async def routes(self, request: protocol.Follow | protocol.ListRoutes) -> bytes:
        return codec.encode(await self.handle(request, Peer()))

    async def handle(self, request: Request, peer: Peer) -> Response:
        self.took.append(request)
        self.at_work += 1
        await self.gate.wait()
        self.at_work -= 1
        return Accepted()


class Strict(Domain):
    """A domain that also refuses small requests of servers that are no members."""

    async def handle(self, request: Request, peer: Peer) -> Response:
        if isinstance(request, protocol.OF_SERVERS) and request.server not in self.members:
            return REFUSAL
        return await super().handle(request, peer)


class Registering(Domain):
    """A domain that registers whatever comes."""

    async def handle(self, request: Request, peer: Peer) -> Response:
        return protocol.Registered(self.epoch, 10_000, 2_500)


class Side:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def greeted(cls, listener: RegionListener, address: str = "127.0.0.1", hello: Hello | None = None) -> Side:
        peer = cls(*await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(address, 0)))
        peer.writer.write(codec.encode(hello or Hello(1)))
        assert isinstance(await peer.response(), protocol.Welcome)
        return peer

    async def response(self) -> Response:
        async with asyncio.timeout(60):
            [size] = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
            return codec.decode_response(await self.reader.readexactly(size))

    async def request(self, request: Request) -> Response:
        self.writer.write(codec.encode(request))
        return await self.response()

    async def ended(self) -> bool:
        async with asyncio.timeout(60):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def listening(domain: Domain | None, **limits: int) -> AsyncIterator[RegionListener]:
    listener = RegionListener("127.0.0.1", 0, ListenerLimits(**PATIENT | limits))
    await listener.start()
    if domain is not None:
        listener.serve(domain)
    try:
        yield listener
    finally:
        if domain is not None:
            domain.gate.set()
        await listener.stop()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the sizes of the requests that were decoded."""
    decode, sizes = codec.decode_in_portions, list[int]()

    def noted(body: bytes) -> Request:
        sizes.append(len(body))
        return decode(body)

    monkeypatch.setattr(codec, "decode_in_portions", noted)
    return sizes


@pytest.mark.parametrize(
    "request_", [Regions("stranger", 1, 1, LISTS), Register("stranger", 1, "s:1", owned=LISTS)], ids=["list", "entry"]
)
@pytest.mark.parametrize("active", [True, False])
async def test_a_list_of_a_stranger_is_refused_by_its_first_fields_and_not_kept(
    decoded: list[int], request_: Request, active: bool
) -> None:
    async with listening(Domain("member") if active else None) as listener:
        peer = await Side.greeted(listener)
        frame = codec.encode(request_)
        half = len(frame) // 2
        peer.writer.write(frame[:half])
        [connection] = listener._connections
        await eventually(lambda: connection._frames.partial and listener.slots.held == 0)
        assert connection._frames.held == 0, "nothing is kept"
        peer.writer.write(frame[half:] + codec.encode(Poll("x", 1, 1, 0)))
        first = await peer.response()
        assert isinstance(first, Refused)
        assert first.code == (protocol.REGISTER if active else protocol.NOT_ACTIVE)
        assert isinstance(await peer.response(), Accepted if active else Refused), "the connection goes on"
        assert max(decoded, default=0) < 1_000


async def test_of_two_large_requests_that_are_refused_each_gets_its_own_refusal() -> None:
    """The end of the first one and the beginning of the second come together."""
    first = codec.encode(Regions("stranger", 1, 1, LISTS))
    body = codec.encode(protocol.Locate("t", b""))[LENGTH.size :]
    second = LENGTH.pack(SMALL_BYTES_MAX + 1) + body.ljust(SMALL_BYTES_MAX + 1, b"\0")
    async with listening(Domain("member")) as listener:
        peer = await Side.greeted(listener)
        [connection] = listener._connections
        connection.data_received(first[: len(first) // 2])
        connection.data_received(first[len(first) // 2 :] + second[: len(second) // 2])
        connection.data_received(second[len(second) // 2 :] + codec.encode(Poll("member", 1, 1, 0)))
        refusals = [await peer.response() for _ in range(2)]
        assert [one.code for one in refusals if isinstance(one, Refused)] == [protocol.REGISTER, protocol.INVALID]
        assert await peer.response() == Accepted()


async def test_a_small_request_behind_a_large_one_goes_on_where_its_connection_ends() -> None:
    """The end of a connection ends the wait for a place; what is carried out, as a registration, is not torn."""
    domain = Domain("member")
    async with listening(domain) as listener:
        peer = await Side.greeted(listener)
        assert await peer.request(Regions("member", 1, 1, LISTS)) == Accepted()
        domain.gate.clear()
        peer.writer.write(codec.encode(Register("member", 2, "m:1")))
        await eventually(lambda: domain.at_work == 1)
        [connection] = listener._connections
        connection.slot.give_way()
        await eventually(lambda: listener.connections == 0)
        domain.gate.set()
        await eventually(lambda: domain.at_work == 0)


async def test_a_list_that_comes_at_once_is_judged_before_it_is_decoded(decoded: list[int]) -> None:
    async with listening(Domain("member")) as listener:
        peer = await Side.greeted(listener)
        connection = next(iter(listener._connections))
        decoded.clear()
        frame = codec.encode(Regions("stranger", 1, 1, LISTS))[LENGTH.size :]
        assert codec.decode_response((await listener.respond(frame, connection))[LENGTH.size :]) == REFUSAL
        assert not decoded
        peer.writer.close()


async def test_a_list_of_a_member_is_taken_whole() -> None:
    domain = Domain("member")
    async with listening(domain) as listener:
        peer = await Side.greeted(listener)
        assert await peer.request(Regions("member", 1, 1, LISTS)) == Accepted()
    [took] = domain.took
    assert isinstance(took, Regions)
    assert list(took.owned) == LISTS


TOO_LARGE: dict[str, tuple[Request, int]] = {
    "list of regions": (Register("member", 1, "m:1", owned=LISTS), LIST_BYTES_MAX),
    "tables": (Follow(1, 1, ["t"] * 100), NAMES_BYTES_MAX),
    "load": (Poll("member", 1, 1, 0, {"x": 1}), NAMES_BYTES_MAX),
    "key": (protocol.Locate("t", b""), SMALL_BYTES_MAX),
}


@pytest.mark.parametrize("what", TOO_LARGE)
async def test_each_kind_of_request_has_a_size_that_it_may_have(what: str, decoded: list[int]) -> None:
    request, most = TOO_LARGE[what]
    domain = Domain("member")
    async with listening(domain) as listener:
        peer = await Side.greeted(listener)
        decoded.clear()
        body = codec.encode(request)[LENGTH.size :]
        peer.writer.write(LENGTH.pack(most + 1) + body.ljust(most + 1, b"\0"))
        refused = await peer.response()
    kind = type(request).__name__
    expected = f"a {kind} of {most + 1} bytes, at most {most} are read: send less in it"
    assert refused == Refused(protocol.INVALID, expected)
    assert not decoded


async def test_names_that_leave_no_room_for_the_first_fields_are_refused() -> None:
    domain = Domain(TOO_LONG)
    long = Register(TOO_LONG, 1, "\u8a9e" * 1_000, "v" * 1_000, LISTS)
    async with listening(domain) as listener:
        peer = await Side.greeted(listener)
        refused = await peer.request(long)
    assert isinstance(refused, Refused)
    assert refused.code == protocol.INVALID
    assert not domain.took


async def test_bytes_that_begin_like_no_request_end_the_connection() -> None:
    async with listening(Domain()) as listener:
        peer = await Side.greeted(listener)
        peer.writer.write(LENGTH.pack(100_000) + bytes(50_000))
        assert await peer.ended()


async def test_one_list_of_an_address_is_under_way_at_a_time_and_other_addresses_do_not_wait_for_it() -> None:
    domain = Domain("member")
    domain.gate.clear()
    async with listening(domain) as listener:
        mine = [await Side.greeted(listener) for _ in range(PLACES_MAX + 2)]
        for peer in mine:
            peer.writer.write(codec.encode(Regions("member", 1, 1, LISTS)))
        await eventually(lambda: domain.at_work == 1)
        other = await Side.greeted(listener, "127.0.0.2")
        other.writer.write(codec.encode(Regions("member", 1, 1, LISTS)))
        await eventually(lambda: domain.at_work == 2)
        small = await Side.greeted(listener)
        small.writer.write(codec.encode(Poll("member", 1, 1, 0)))
        await eventually(lambda: domain.at_work == 3)
        assert len(domain.took) == 3, "the other lists of the first address wait, and take no place meanwhile"
        domain.gate.set()
        for peer in (*mine, other, small):
            assert await peer.response() == Accepted()
    assert not listener._places._addresses


async def test_a_server_that_came_before_the_term_and_registered_in_it_may_connect_anew() -> None:
    """It knows the epoch by its registration, and not by a term that another store had."""
    proof, seen, ends = b"p" * 16, Seen(), list[StoreFailed]()
    looked = asyncio.Event()
    looked.set()

    async def note(_: int) -> None:
        """Stores nothing: no number of this story is above the store's."""

    async with listening(None) as listener:
        listener.seen, listener.told = seen.named, seen.told
        early = await Side.greeted(listener, hello=Hello(1, proof=proof))
        seen.begin(Serving(1, 50, lambda: 100, lambda: looked, lambda: True, note, ends.append))
        listener.serve(Registering("member"))
        assert isinstance(await early.request(Register("member", 1, "m:1")), protocol.Registered)
        early.writer.close()
        for token in (0, 60):
            await Side.greeted(listener, hello=Hello(1, proof=proof, seen_epoch=1, seen_token=token))
        assert not ends, "no term ends for it"


async def test_few_lists_of_all_addresses_are_under_way_at_a_time() -> None:
    domain = Domain("member")
    domain.gate.clear()
    async with listening(domain) as listener:
        peers = [await Side.greeted(listener, f"127.0.0.{number}") for number in range(1, 8)]
        for peer in peers:
            peer.writer.write(codec.encode(Regions("member", 1, 1, LISTS)))
        await eventually(lambda: domain.at_work == 4)
        await eventually(lambda: listener.slots.held > 6 * len(codec.encode(Regions("member", 1, 1, LISTS))))
        assert domain.at_work == 4
        domain.gate.set()
        for peer in peers:
            assert await peer.response() == Accepted()


async def test_requests_that_follow_each_other_get_their_own_responses_where_one_of_them_is_refused() -> None:
    """A refusal is known as soon as the first bytes are here: while a request before it waits for its turn."""
    domain = Domain("member")
    domain.gate.clear()
    async with listening(domain) as listener:
        peer = await Side.greeted(listener)
        polls = [codec.encode(Poll("member", 1, 1, taken)) for taken in range(2)]
        peer.writer.write(polls[0] + polls[1] + codec.encode(Regions("stranger", 1, 1, LISTS)))
        [connection] = listener._connections
        assert isinstance(connection, RegionConnection)
        await eventually(lambda: bool(connection._refusals))
        assert len(domain.took) == 1, "the second one waits, and the refusal of the third one is known"
        domain.gate.set()
        assert [await peer.response() for _ in range(3)] == [Accepted(), Accepted(), REFUSAL]


async def test_requests_that_fail_by_a_fault_leave_one_traceback_and_get_responses_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Domain):
        async def handle(self, request: Request, peer: Peer) -> Response:
            raise LookupError(str(request))

    async with listening(Faulty()) as listener:
        peer = await Side.greeted(listener)
        for taken in range(50):
            response = await peer.request(Poll("member", 1, 1, taken))
            assert isinstance(response, Refused)
            assert response.code == protocol.NOT_ACTIVE
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in tracebacks] == ["a Poll failed; its peer tries it again"]


async def test_a_list_whose_connection_has_given_way_while_it_waited_is_not_decoded(decoded: list[int]) -> None:
    domain = Domain("member")
    domain.gate.clear()
    async with listening(domain) as listener:
        first = await Side.greeted(listener)
        first.writer.write(codec.encode(Regions("member", 1, 1, LISTS)))
        await eventually(lambda: domain.at_work == 1)
        [before] = listener._connections
        second = await Side.greeted(listener)
        second.writer.write(codec.encode(Regions("member", 2, 1, LISTS)))
        [waiting] = listener._connections - {before}
        await eventually(lambda: waiting._task is not None and waiting._served_bytes > 1_000)
        waiting.slot.give_way()
        await eventually(lambda: listener.connections == 1 and waiting._task is None)
        domain.gate.set()
        assert await first.response() == Accepted()
    assert sum(size > 1_000 for size in decoded) == 1


async def test_clients_that_wait_for_news_keep_neither_their_requests_nor_a_place(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        listener = RegionListener("127.0.0.1", 0)
        listener.serve(found.term.service)
        await listener.start()
        epoch, log = found.term.manager.epoch, found.term.env.routes
        frame = codec.encode(Follow(epoch, 0, [f"{number:0200}" for number in range(1_000)]))
        tracemalloc.start()
        try:
            peers = [await Side.greeted(listener) for _ in range(20)]
            for peer in peers:
                peer.writer.write(frame)
            await eventually(lambda: len(log._waiting) == len(peers))
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await listener.stop()
        assert listener.slots.held == 0
        assert not listener._places._addresses
        assert kept_bytes < len(peers) * len(frame) / 2


@pytest.mark.parametrize(
    "strangers",
    [Hello(1), protocol.Locate("t", b""), Poll("stranger", 1, 1, 0), Register("stranger", 1, "s:1")],
    ids=["greeted", "served", "refused", "refused as a new one"],
)
async def test_strangers_that_only_stay_give_way_to_a_server(strangers: Request) -> None:
    domain = Strict("member")
    async with listening(domain, connections_max=12, connections_per_address_max=3) as listener:
        honest = await Side.greeted(listener)
        await honest.request(Poll("member", 1, 1, 0))
        crowd = [await Side.greeted(listener) for _ in range(2)]
        for peer in crowd:
            await peer.request(strangers)
        late = await Side.greeted(listener)
        assert await late.request(Poll("member", 2, 1, 0)) == Accepted()
        assert await crowd[0].ended()
        assert await honest.request(Poll("member", 1, 1, 0)) == Accepted(), "a server that was served stays"


async def test_a_greeted_connection_stays_without_a_request_where_slots_are_free() -> None:
    async with listening(Domain("member"), frame_timeout_ms=100) as listener:
        greeted = await Side.greeted(listener)
        _, silent = await asyncio.open_connection("127.0.0.1", listener.port)
        await eventually(lambda: listener.connections == 2)
        await eventually(lambda: listener.connections == 1)
        assert await greeted.request(Poll("member", 1, 1, 0)) == Accepted()
        silent.close()
