"""Requests of servers and clients at the service: what is refused, what is kept, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokers.regions.connection import Peer
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, head_of
from regent_agent.protocol import FIGURES_KEPT_MAX, NAME_CHARS_MAX, Refused, Register, Request, Response, Routes
from state_machines.regions.states import ServerState, TableState
from tests.kit.regions.term import Stage, stage


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as found:
        yield found


async def handle(found: Stage, request: Request, proof: str = "") -> Response:
    return await found.term.service.handle(request, Peer(proof=proof))


def code(response: Response | None) -> str:
    return response.code if isinstance(response, Refused) else type(response).__name__


FULL = "n" * NAME_CHARS_MAX


@pytest.mark.parametrize(
    ("register", "text"),
    [
        (Register(FULL, (1 << 63) - 1, FULL, FULL), ""),
        (Register("s", 1, "a", ""), ""),
        (Register("", 1, "a"), "server: "),
        (Register(FULL + "n", 1, "a"), "server: "),
        (Register("s\n", 1, "a"), "server"),
        (Register("s,1", 1, "a"), "has a comma"),
        (Register("\u8a9e" * 29, 1, "a"), "takes 261 bytes in the path of a znode, at most 255 fit"),
        (Register("s", 1, ""), "address: "),
        (Register("s", 1, FULL + "a"), "address: "),
        (Register("s", 1, "a\x00"), "address"),
        (Register("s", 1, "a", FULL + "v"), "software: "),
        (Register("s", 1, "a", "v\n"), "software"),
        (Register("s", 0, "a"), "incarnation: 0"),
        (Register("s", -1, "a"), "incarnation: -1"),
        (Register("s", 1 << 63, "a"), f"incarnation: {1 << 63}"),
    ],
)
async def test_each_field_of_a_registration_is_checked_at_its_bounds(
    found: Stage, register: Register, text: str
) -> None:
    found.term.env.latest_ms = lambda: 1 << 62
    response = await handle(found, register)
    if not text:
        assert isinstance(response, protocol.Registered), response
        return
    assert code(response) == protocol.INVALID
    assert text in str(response)
    assert not found.term.env.model.servers
    assert found.term.service._counters.refusals == {protocol.INVALID: 1}


async def test_some_figures_of_a_servers_load_are_kept_in_place_of_those_before(found: Stage) -> None:
    await handle(found, Register("s1", 1, "a"))
    server, epoch = found.term.env.model.servers["s1", 1], found.term.manager.epoch
    many = {f"figure {number}": number for number in range(FIGURES_KEPT_MAX + 5)}
    for load, kept in (
        ({"requests": 3, "a\nb": 1, FULL: 2, FULL + "n": 4}, {"requests": 3, FULL: 2}),
        (many, dict(list(many.items())[:FIGURES_KEPT_MAX])),
        ({}, {}),
    ):
        poll = asyncio.ensure_future(handle(found, protocol.Poll("s1", 1, epoch, 0, load)))
        await found.until(lambda kept=kept: server.load == kept)  # type: ignore[misc]
        poll.cancel()
        await asyncio.wait({poll})


@pytest.mark.parametrize("state", TableState)
async def test_a_table_that_is_being_made_or_deleted_is_out_of_sight(found: Stage, state: TableState) -> None:
    await found.join("s1")
    await found.create("t", 2)
    found.term.env.model.tables["t"].state = state
    listed = await found.term.service.routes(protocol.ListRoutes("t"))
    responses = [await handle(found, protocol.Locate("t", b"k")), codec.decode_response(listed[LENGTH.size :])]
    hidden = state in (TableState.CREATING, TableState.DELETING, TableState.TRUNCATING)
    assert [code(one) for one in responses] == [protocol.UNKNOWN_TABLE if hidden else "Routes"] * 2
    counts = found.term.service._counters.refusals
    assert counts[protocol.UNKNOWN_TABLE] == (2 if hidden else 0)
    again = [await handle(found, protocol.ListRoutes("t")), await handle(found, protocol.Locate("t", b"k"))]
    assert again == responses[::-1]
    assert counts[protocol.UNKNOWN_TABLE] == (4 if hidden else 0), "one for each refusal"


async def test_a_list_begins_with_the_region_that_has_the_key_and_is_bounded(found: Stage) -> None:
    await found.join("s1")
    await found.create("t", 4)
    regions = [one.id for one in found.term.env.model.tables["t"].regions]
    for start, count, expected in (
        (b"", 9, regions),
        (b"4", 2, regions[:2]),
        (b"40000000", 2, regions[1:3]),
        (b"3fffffff", 1, regions[:1]),
        (b"\xff", 9, regions[3:]),
        (b"", 0, regions[:1]),
        (b"8", -5, regions[1:2]),
        (b"", 1 << 40, regions),
    ):
        response = await handle(found, protocol.ListRoutes("t", start, count))
        assert isinstance(response, Routes)
        assert [one.region for one in response.routes] == expected, (start, count)
        assert {one.server for one in response.routes} == {"s1"}


async def test_batches_operations_results_and_refusals_are_counted(found: Stage) -> None:
    member = await found.join("s1")
    await found.create("t", 3)
    counters = found.term.service._counters
    await found.until(lambda: counters.results == 3)
    assert (counters.operations, 1 <= counters.batches <= 3, counters.reports) == (3, True, counters.batches)
    epoch = found.term.manager.epoch
    wrong: list[Request] = [protocol.Report("s1", 1, epoch + 1, []), protocol.Poll("no", 1, epoch, 0)]
    for request in wrong:
        assert code(await handle(found, request)) == protocol.REGISTER
    head = head_of(codec.encode(wrong[0])[LENGTH.size :])
    assert head is not None
    assert code(found.term.service.judge(head)) == protocol.REGISTER
    assert counters.refusals == {protocol.REGISTER: 3}
    member.kill()


@pytest.mark.parametrize("proof", ["right", "wrong"])
async def test_requests_of_a_process_with_a_proof_are_those_of_its_connections_alone(found: Stage, proof: str) -> None:
    assert isinstance(await handle(found, Register("s1", 5, "a"), "right"), protocol.Registered)
    epoch = found.term.manager.epoch
    requests: list[Request] = [
        protocol.Regions("s1", 5, epoch, []),
        protocol.Report("s1", 5, epoch, []),
        Register("s1", 5, "a"),
        protocol.Leave("s1", 5, epoch),
    ]
    for request in requests:
        head = head_of(codec.encode(request)[LENGTH.size :])
        if head is not None:
            assert (found.term.service.judge(head, Peer(proof=proof)) is None) is (proof == "right"), request
        response = await handle(found, request, proof)
        assert (code(response) == protocol.UNAUTHENTICATED) is (proof == "wrong"), (request, response)
    server = found.term.env.model.servers.get(("s1", 5))
    assert proof == "right" or (server is not None and server.state is ServerState.ONLINE), "it did not leave"


async def test_a_daemon_that_may_have_a_successor_still_tells_clients_and_no_server(
    found: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await found.join("s1")
    await found.create("t", 1)
    monkeypatch.setattr(found.term.service, "_leads", lambda: False)
    assert code(await handle(found, protocol.Locate("t", b"k"))) == "Routes"
    assert code(await handle(found, protocol.Locate("none", b"k"))) == protocol.UNKNOWN_TABLE
    epoch = found.term.manager.epoch
    for request in (protocol.Report("s1", 1, epoch, []), protocol.Regions("s1", 1, epoch, [])):
        assert code(await handle(found, request)) == protocol.NOT_ACTIVE
