"""What the listener of regions reads: nothing large before Hello, and large requests by their first fields."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.regions import listener as module
from brokers.regions.connection import Greeting, Peer
from brokers.regions.listener import RegionListener
from brokers.wire.primitives import BadMessage
from controller.regions.term import RegionsTerm
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, decode_response, head_of
from regent_agent.protocol import Owned, Poll, Refused, Regions, Register, Report, Request
from state_machines.regions.states import ServerState
from tests.kit.regions.term import Stage, stage

HOSTILE = msgspec.msgpack.encode(["follow", 1, 1, ["t"] * (protocol.TABLES_MAX + 1)])
LARGE = protocol.Register("a", 1, "a:1", owned=[protocol.Owned(number, 1 << 40) for number in range(5_000)])


class Handlers:
    """An active domain. ``took``: requests that it got; ``peers``: their connections."""

    epoch = 1

    def __init__(self) -> None:
        self.took: list[protocol.Request] = []
        self.peers: list[Peer] = []
        self.refusal: Refused | None = None

    def judge(self, head: codec.Head, peer: Peer) -> Refused | None:
        return self.refusal

    async def routes(self, request: protocol.Follow | protocol.ListRoutes) -> bytes:
        return codec.encode(await self.handle(request, Peer()))

    async def handle(self, request: protocol.Request, peer: Peer) -> protocol.Response:
        self.took.append(request)
        self.peers.append(peer)
        return protocol.Left(0)


def connection(user: str | None) -> Any:
    greeting = Greeting()
    greeting.peer = None if user is None else Peer(serves=user == "server")
    return SimpleNamespace(authentication=greeting)


async def test_a_request_with_a_list_beyond_its_bound_is_refused_and_named() -> None:
    listener = RegionListener("127.0.0.1", 0)
    listener.serve(Handlers())
    response = decode_response((await listener.respond(HOSTILE, connection("server")))[LENGTH.size :])
    assert response == Refused(protocol.INVALID, "tables: more than the 1000 that a Follow may have there")


async def test_such_a_request_before_hello_ends_its_connection() -> None:
    with pytest.raises(BadMessage, match="tables"):
        await RegionListener("127.0.0.1", 0).respond(HOSTILE, connection(None))


@pytest.mark.parametrize("body", [codec.encode(LARGE)[LENGTH.size :], b"\xdc\x00\x05\xd9\x04poll\xa1a\x01\x01\x00"])
async def test_a_client_has_no_request_of_a_server_read(body: bytes) -> None:
    """Also a large one, and one whose kind stands there in another form of MessagePack."""
    listener, handlers = RegionListener("127.0.0.1", 0), Handlers()
    listener.serve(handlers)
    await listener.respond(body, connection("server"))
    assert len(handlers.took) == 1
    found = decode_response((await listener.respond(body, connection("client")))[LENGTH.size :])
    assert len(handlers.took) == 1
    assert isinstance(found, Refused)
    assert (found.code, found.text[:8]) == (protocol.UNAUTHENTICATED, "secret: ")
    refusal = listener.judge(body[:2_048], 100_000, Peer(serves=False))
    assert refusal is not None
    assert decode_response(refusal[LENGTH.size :]) == found


async def responded(listener: RegionListener, request: protocol.Request) -> protocol.Response:
    framed = await listener.respond(codec.encode(request)[LENGTH.size :], connection("server"))
    return decode_response(framed[LENGTH.size :])


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Returns a list of functions that each decoding of a request calls first."""
    decode, calls = codec.decode_request, list[Callable[[], object]]()

    def decoded(body: bytes) -> protocol.Request:
        for call in calls:
            call()
        return decode(body)

    monkeypatch.setattr(codec, "decode_in_portions", decoded)
    return calls


async def test_a_daemon_that_is_not_active_refuses_requests_unread(decoding: list[Callable[[], object]]) -> None:
    decoded: list[int] = []
    decoding.append(lambda: decoded.append(1))
    listener = RegionListener("127.0.0.1", 0)
    for request in (LARGE, protocol.Poll("a", 1, 1, 0)):
        response = await responded(listener, request)
        assert isinstance(response, Refused)
        assert response.code == protocol.NOT_ACTIVE
    assert not decoded
    assert isinstance(await responded(listener, protocol.Hello(1)), protocol.Welcome)


class Preparing:
    """A listener whose domain is about to begin a term, and a Hello that came meanwhile."""

    def __init__(self) -> None:
        self.listener = RegionListener("127.0.0.1", 0)
        self.listener.prepare(term=True)
        self.listener.prepare(term=True)  # as by each of the two steps of a load
        self.hello = asyncio.ensure_future(responded(self.listener, protocol.Hello(1)))

    async def waits(self) -> bool:
        for _ in range(20):
            await asyncio.sleep(0)
        return not self.hello.done()


async def test_a_hello_waits_for_the_term_that_begins_and_gets_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_S", 3_600.0)
    found = Preparing()
    assert await found.waits()
    handlers = Handlers()
    handlers.epoch = 9
    found.listener.serve(handlers)
    assert await found.hello == protocol.Welcome(1, 9, "")
    later = await responded(found.listener, protocol.Hello(1))
    assert isinstance(later, protocol.Welcome), "nothing waits any more"


@pytest.mark.parametrize("ends", ["another daemon has the domain", "the daemon stops"])
async def test_a_hello_waits_for_no_term_that_does_not_begin(ends: str) -> None:
    found = Preparing()
    assert await found.waits()
    if ends == "the daemon stops":
        await found.listener.stop()
    else:
        found.listener.prepare(term=False)
    assert await found.hello == protocol.Welcome(1, 0, "")


async def test_a_hello_waits_for_a_short_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_S", 0.01)
    assert await Preparing().hello == protocol.Welcome(1, 0, "")


async def test_a_hello_that_is_refused_does_not_wait() -> None:
    listener = RegionListener("127.0.0.1", 0)
    listener.prepare(term=True)
    assert isinstance(await responded(listener, protocol.Hello(0)), Refused)


UNFIT: dict[str, tuple[list[Any], str]] = {
    "kind": (["unknown", 1], "request: 'unknown' is not known to this version"),
    "no fields": (["poll"], "a Poll is not as in the protocol: Expected `array` of at least length 5, got 1"),
    "type": (["poll", "s1", "five", 1, 0], "incarnation: a Poll is not as in the protocol: Expected `int`, got `str`"),
    "inside": (["report", "s1", 5, 1, [[7]]], "results: a Report is not as in the protocol: "),
    "long name": (["x" * 250], "request: '" + "x" * 80 + "' is not known"),
}


@pytest.mark.parametrize(("what", "large"), [*((what, False) for what in UNFIT), ("kind", True), ("long name", True)])
async def test_a_request_that_is_not_known_is_refused_and_its_connection_goes_on(what: str, large: bool) -> None:
    """It closed the connection, and an agent in another language did not learn why."""
    message, why = UNFIT[what]
    listener, handlers = RegionListener("127.0.0.1", 0), Handlers()
    listener.serve(handlers)
    body = msgspec.msgpack.encode([*message, b"x" * 100_000] if large else message)
    response = decode_response((await listener.respond(body, connection("server")))[LENGTH.size :])
    assert isinstance(response, Refused)
    assert response.code == protocol.INVALID
    assert response.text.startswith(why)
    assert await responded(listener, LARGE) == protocol.Left(0)


async def test_a_large_request_of_an_unknown_kind_is_skipped_on_its_connection() -> None:
    listener = RegionListener("127.0.0.1", 0)
    await listener.start()
    listener.serve(Handlers())
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    unknown = msgspec.msgpack.encode(["unknown", b"x" * 100_000])
    found = []
    for frame in (codec.encode(protocol.Hello(1)), LENGTH.pack(len(unknown)) + unknown, codec.encode(LARGE)):
        writer.write(frame)
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        found.append(decode_response(await reader.readexactly(length)))
    assert [type(one) for one in found] == [protocol.Welcome, Refused, protocol.Left]
    writer.close()
    await listener.stop()


@pytest.mark.parametrize("body", [b"", b"\x90", b"\xff\xa5hello", b"\xc1", msgspec.msgpack.encode([1, 1])])
async def test_bytes_that_are_no_message_end_the_connection_also_while_inactive(body: bytes) -> None:
    with pytest.raises(BadMessage):
        await RegionListener("127.0.0.1", 0).respond(body, connection("server"))


async def test_a_large_request_is_read_beside_the_loop(decoding: list[Callable[[], object]]) -> None:
    threads: list[threading.Thread] = []
    decoding.append(lambda: threads.append(threading.current_thread()))
    listener, handlers = RegionListener("127.0.0.1", 0), Handlers()
    listener.serve(handlers)
    assert await responded(listener, LARGE) == protocol.Left(0)
    assert threads[0] is not threading.current_thread()
    [took] = handlers.took
    assert isinstance(took, protocol.Register)
    assert list(took.owned) == list(LARGE.owned)


async def test_a_request_that_is_read_while_the_term_ends_is_refused(decoding: list[Callable[[], object]]) -> None:
    listener, handlers = RegionListener("127.0.0.1", 0), Handlers()
    listener.serve(handlers)
    decoding.append(listener.resign)
    response = await responded(listener, LARGE)
    assert isinstance(response, Refused)
    assert response.code == protocol.NOT_ACTIVE
    assert not handlers.took


LISTS = [Owned(number, (1 << 40) + number) for number in range(20_000)]


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as found:
        yield found


def judged(term: RegionsTerm, request: Request) -> Refused | None:
    head = head_of(codec.encode(request)[LENGTH.size :][:4_096])
    assert head is not None
    return term.service.judge(head)


def of_process(name: str, incarnation: int, epoch: int) -> list[Request]:
    return [
        Regions(name, incarnation, epoch, LISTS),
        Report(name, incarnation, epoch, []),
        Poll(name, incarnation, epoch, 0),
    ]


async def test_requests_of_a_member_are_wanted(found: Stage) -> None:
    await found.join("s1", 5)
    for request in of_process("s1", 5, found.term.manager.epoch):
        assert judged(found.term, request) is None
    assert judged(found.term, Register("s1", 5, "s1:1", "", LISTS)) is None
    assert judged(found.term, Register("s2", 1, "s2:1", "", [])) is None


async def test_requests_of_others_are_refused_as_their_whole_ones_are(found: Stage) -> None:
    term, epoch = found.term, found.term.manager.epoch
    await found.join("s1", 5)
    await found.join("dead", 5)
    term.env.model.servers["dead", 5].state = ServerState.CRASHED
    requests: list[Request] = [Register("new", 1, "s:1", "", LISTS[:5]), Register("dead", 5, "s:1", "", LISTS[:5])]
    for process in (("s1", 5, epoch + 1), ("s1", 4, epoch), ("dead", 5, epoch), ("no", 1, epoch)):
        requests += of_process(*process)
    for request in requests:
        refusal = judged(term, request)
        assert refusal is not None
        assert refusal == await term.service.handle(request)


async def test_a_daemon_that_may_have_a_successor_ends_no_process(found: Stage) -> None:
    term = found.term
    with mock.patch.object(term.service, "_leads", return_value=False):
        refusal = judged(term, Register("new", 1, "s:1", "", LISTS))
    assert refusal is not None
    assert refusal.code == protocol.NOT_ACTIVE


@pytest.mark.parametrize("incarnation", [0, -1, -(1 << 63)])
async def test_incarnations_that_no_process_has_are_unknown(found: Stage, incarnation: int) -> None:
    epoch = found.term.manager.epoch
    for request in (*of_process("no", incarnation, epoch), protocol.Leave("no", incarnation, epoch)):
        response = await found.term.service.handle(request)
        unknown = isinstance(response, Refused) and response.code == protocol.REGISTER
        assert unknown or response == protocol.Left(0), response


SCALARS = st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=20)


async def test_first_fields_of_any_kind_are_judged_or_are_no_request(found: Stage) -> None:
    """An error here would end the connection with a traceback in the log, as often as a stranger likes."""
    await found.join("s1", 5)

    @given(
        tag=st.sampled_from(["register", "regions", "report", "poll", "leave"]),
        fields=st.lists(SCALARS | st.just("s1") | st.just(5), max_size=6),
        rest=st.none() | st.lists(SCALARS, max_size=3) | st.floats(),
    )
    def judged_or_none(tag: str, fields: list[object], rest: object) -> None:
        head = head_of(msgspec.msgpack.encode([tag, *fields, rest]))
        if head is not None:
            refusal = found.term.service.judge(head)
            assert refusal is None or refusal.code in protocol.CODES

    await asyncio.to_thread(judged_or_none)
    assert head_of(msgspec.msgpack.encode(["regions", "s1", "five", 1, []])) is None
    assert head_of(msgspec.msgpack.encode(["regions", 1, 5, 1, []])) is None


async def test_a_client_that_follows_tables_which_do_not_exist_gets_no_routes_of_others(found: Stage) -> None:
    await found.join("s1")
    await found.join("s2")
    await found.create("t", 2)
    [first, _] = found.term.env.model.tables["t"].regions
    assert first.server is not None
    await found.move("t", first.id, "s2" if first.server.name == "s1" else "s1")
    epoch = found.term.manager.epoch

    async def followed(*tables: str) -> set[str]:
        response = await found.term.service.handle(protocol.Follow(epoch, 0, list(tables)))
        assert isinstance(response, protocol.Changes)
        assert response.change > 0
        return {one.table for one in response.routes}

    assert await followed("none", "nor this") == set()
    assert await followed("none", "t") == {"t"}
    assert await followed() == {"t"}
