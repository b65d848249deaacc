"""The listener of regions over several Hellos, kinds and ends: what it judges, by which peer, and what it leaves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from brokers.listener.inbound import ListenerLimits
from brokers.regions.connection import Greeting, Peer, RegionConnection, digest_of
from brokers.regions.listener import HELLO_BYTES_MAX, RegionListener
from brokers.regions.secret import NO_SECRETS, Secrets
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, Head
from regent_agent.protocol import Hello, Left, Owned, Poll, Refused, Regions, Register, Request, Response, Welcome
from tests.kit.deadlines import eventually
from tests.unit.brokers.regions.test_region_large_requests import Side

SERVERS, CLIENTS = "of servers", "of clients"
BOTH = Secrets((SERVERS, "the one before"), (CLIENTS, "that before"))
PROOF = b"p" * 16
LISTS = [Owned(number, 1 << 40) for number in range(5_000)]


class Noting:
    """An active domain that notes what it judges and handles, and by which peer; it holds requests of ``held``."""

    epoch = 7
    held = "held"

    def __init__(self) -> None:
        self.judged: list[tuple[type[Request], Peer]] = []
        self.handled: list[tuple[type[Request], Peer]] = []

    def judge(self, head: Head, peer: Peer) -> Refused | None:
        self.judged.append((head.kind, peer))
        return None

    async def routes(self, request: protocol.Follow | protocol.ListRoutes) -> bytes:
        raise AssertionError("no client comes")

    async def handle(self, request: Request, peer: Peer) -> Response:
        self.handled.append((type(request), peer))
        if isinstance(request, Poll) and request.server == self.held:
            await asyncio.get_running_loop().create_future()
        return Left(0)


def made(domain: Noting | None, secrets: Secrets = NO_SECRETS, **limits: int) -> RegionListener:
    listener = RegionListener("127.0.0.1", 0, ListenerLimits(**limits), secrets=secrets, daemon="daemon-1")
    if domain is not None:
        listener.serve(domain)
    return listener


def greeted(peer: Peer | None = None) -> Any:
    """Returns a connection whose Hello was accepted, or that had none."""
    greeting = Greeting()
    greeting.peer = peer
    return SimpleNamespace(authentication=greeting)


async def responded(listener: RegionListener, request: Request, connection: Any) -> Response:
    framed = await listener.respond(codec.encode(request)[LENGTH.size :], connection)
    return codec.decode_response(framed[LENGTH.size :])


SIZES = {
    **dict.fromkeys(("register", "regions", "report"), protocol.LIST_BYTES_MAX),
    **dict.fromkeys(("poll", "loads", "follow"), protocol.NAMES_BYTES_MAX),
    **dict.fromkeys(("hello", "independent", "leave", "locate", "list_routes"), protocol.SMALL_BYTES_MAX),
}
BEGINNINGS: dict[str, Request] = {
    "register": Register("s1", 5, "s1:1"), "regions": Regions("s1", 5, 7, []), "poll": Poll("s1", 5, 7, 0),
    "report": protocol.Report("s1", 5, 7, []), "follow": protocol.Follow(7, 1, []), "hello": Hello(1),
    "independent": protocol.Independent("s1", 5, 7, []), "loads": protocol.Loads("s1", 5, 7, []),
    "leave": protocol.Leave("s1", 5, 7), "locate": protocol.Locate("t", b""), "list_routes": protocol.ListRoutes("t"),
}  # fmt: skip


def test_a_request_of_each_kind_may_have_its_most_bytes_and_not_one_more() -> None:
    domain = Noting()
    listener = made(domain)
    assert {kind.__struct_config__.tag for kind in get_args(Request)} == SIZES.keys() == BEGINNINGS.keys()
    for kind, most in SIZES.items():
        beginning = codec.encode(BEGINNINGS[kind])[LENGTH.size :]
        assert listener.judge(beginning, most, Peer()) is None, kind
        refusal = listener.judge(beginning, most + 1, Peer())
        assert refusal is not None, kind
        assert f"{most + 1} bytes, at most {most} are read" in str(codec.decode_response(refusal[LENGTH.size :]))
    assert {kind for kind, _ in domain.judged} == set(protocol.OF_SERVERS), "requests of clients need no process"


def test_a_large_request_whose_names_are_cut_off_is_refused_before_it_is_judged() -> None:
    domain = Noting()
    body = codec.encode(Register("s" * 3_000, 5, "a" * 3_000, owned=LISTS))[LENGTH.size :]
    refusal = made(domain).judge(body[:4_096], len(body), Peer())
    assert refusal is not None
    assert "take more than 4096 bytes: give it shorter ones" in str(codec.decode_response(refusal[LENGTH.size :]))
    assert not domain.judged


@pytest.mark.parametrize("request_", [Regions("s1", 5, 7, LISTS), Poll("s1", 5, 7, 0)], ids=["large", "small"])
async def test_a_request_is_judged_and_handled_by_the_peer_of_its_last_hello(request_: Request) -> None:
    """A connection of a client may give the secret of servers later."""
    domain = Noting()
    listener, connection = made(domain, BOTH), greeted()
    first, second = Hello(1, CLIENTS, b"q" * 16), Hello(1, SERVERS, PROOF)
    assert isinstance(await responded(listener, first, connection), Welcome)
    refused = await responded(listener, request_, connection)
    assert isinstance(refused, Refused)
    assert (refused.code, domain.judged, domain.handled) == (protocol.UNAUTHENTICATED, [], [])
    assert isinstance(await responded(listener, second, connection), Welcome)
    assert await responded(listener, request_, connection) == Left(0)
    peer = Peer(True, digest_of(PROOF))
    assert domain.handled == [(type(request_), peer)]
    assert domain.judged == ([(Regions, peer)] if isinstance(request_, Regions) else [])


async def test_a_welcome_has_the_lower_version_the_epoch_and_the_name_of_the_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regent_agent.protocol.VERSION", 3)
    for domain, epoch in ((Noting(), 7), (None, 0)):
        for version in (1, 2, 3, 4):
            found = await responded(made(domain), Hello(version), greeted())
            assert found == Welcome(min(version, 3), epoch, "daemon-1")


@pytest.mark.parametrize(
    ("hello", "judged"),
    [
        (Hello(1, SERVERS, PROOF, 9, 99), True),
        (Hello(1, "the one before", PROOF, 9, 99), True),
        (Hello(0, SERVERS, PROOF, 9, 99), False),
        (Hello(1, SERVERS, b"short", 9, 99), False),
        (Hello(1, CLIENTS, PROOF, 9, 99), False),
        (Hello(1, "that before", PROOF, 9, 99), False),
        (Hello(1, "guessed", PROOF, 9, 99), False),
    ],
    ids=["server", "former secret", "version", "proof", "client", "former secret of clients", "secret"],
)
async def test_only_what_an_accepted_server_has_seen_is_judged(hello: Hello, judged: bool) -> None:
    """A term would end by it."""
    found = list[tuple[str, int, int]]()

    async def seen(proof: str, epoch: int, token: int) -> str:
        found.append((proof, epoch, token))
        return ""

    listener, connection = made(Noting(), BOTH), greeted()
    listener.seen = seen
    await responded(listener, hello, connection)
    assert found == ([(digest_of(PROOF), 9, 99)] if judged else [])
    is_ended = isinstance(await responded(listener, Hello(1, SERVERS), greeted()), Refused)
    assert not is_ended
    greeting = connection.authentication
    expected = None if greeting.over else Peer(hello.secret in BOTH.servers, digest_of(PROOF))
    assert greeting.peer == expected


async def test_a_frame_before_the_hello_has_few_bytes_and_one_after_it_many() -> None:
    """Strangers would have the daemon keep megabytes."""
    listener = made(Noting(), BOTH, frame_timeout_ms=600_000)
    await listener.start()
    try:
        longest = Hello(1, SERVERS, PROOF)
        body = codec.encode(longest)[LENGTH.size :]
        assert len(body) < HELLO_BYTES_MAX, "a secret has 1000 bytes at most"
        stranger = Side(*await asyncio.open_connection("127.0.0.1", listener.port))
        stranger.writer.write(LENGTH.pack(HELLO_BYTES_MAX + 1) + body)
        assert await stranger.ended(), "nothing more is waited for"
        server = await Side.greeted(listener, hello=longest)
        assert await server.request(Regions("s1", 5, 7, LISTS)) == Left(0)
        server.writer.close()
    finally:
        await listener.stop()


async def test_a_request_whose_connection_ends_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    domain = Noting()
    listener = made(domain)
    holding = asyncio.ensure_future(
        listener.respond(codec.encode(Poll("held", 5, 7, 0))[LENGTH.size :], greeted(Peer()))
    )
    await eventually(lambda: domain.handled)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert not caplog.records


@pytest.mark.parametrize("secrets", [NO_SECRETS, BOTH], ids=["open", "with a secret"])
async def test_a_connection_of_a_server_keeps_its_slot_through_another_hello(secrets: Secrets) -> None:
    """With a secret each server that gave it keeps its slot, without one each that was served as a member."""
    listener = made(Noting(), secrets, connections_max=12, connections_per_address_max=2)
    await listener.start()
    hello = Hello(1, SERVERS)
    try:
        first = await Side.greeted(listener, hello=hello)
        if not secrets.servers:
            await first.request(Poll("s1", 5, 7, 0))
            assert isinstance(await first.request(hello), Welcome)
        [kept] = listener._connections
        assert isinstance(kept, RegionConnection)
        assert isinstance(kept.authentication, Greeting)
        assert kept.authentication.proven
        second = await Side.greeted(listener, hello=hello)
        if not secrets.servers:
            await second.request(Poll("s2", 5, 7, 0))
        late = Side(*await asyncio.open_connection("127.0.0.1", listener.port))
        assert await late.ended(), "no slot is free"
        for one in (first, second):
            assert await one.request(Poll("s1", 5, 7, 0)) == Left(0)
            one.writer.close()
    finally:
        await listener.stop()
