"""Large requests of servers are judged by their first fields as whole ones are; clients follow tables that exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.regions.term import RegionsTerm
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, head_of
from regent_agent.protocol import Owned, Poll, Refused, Regions, Register, Report, Request
from state_machines.regions.states import ServerState
from tests.kit.regions_kit import Stage, stage

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
