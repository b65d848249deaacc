"""Followers of routes over many waits: none hangs, kept frames are bounded, and no response has a doubtful owner."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from controller.regions import routes
from controller.regions.routes import KEPT_MAX, PAGE_S, TOGETHER, RouteLog, route_of
from regent_agent.protocol import ROUTES_MAX, Changes, Route
from state_machines.regions.entities import Server
from state_machines.regions.states import RegionState, ServerState
from tests.kit.deadlines import in_exact_time
from tests.unit.controller.regions.test_region_followers import HOLD_S, changes, follow, region, start, table
from tests.unit.controller.regions.test_region_followers import routes as listed


@pytest.mark.parametrize(("state", "server"), list(product(RegionState, (None, *ServerState))))
def test_a_route_names_the_owner_of_an_open_region_at_a_server_that_is_online_alone(
    state: RegionState, server: ServerState | None
) -> None:
    one = region(table("t"), 7)
    one.state = state
    one.server = None if server is None else Server("a", 1, "a:1", "", server, {})
    nobody = Route(7, "t", one.start, one.end, gone=state in (RegionState.SPLIT, RegionState.MERGED))
    is_open = state in (RegionState.OPEN, RegionState.SPLITTING, RegionState.MERGING)
    serves = is_open and server is ServerState.ONLINE
    assert route_of(one) == (Route(7, "t", one.start, one.end, 7, "a", "a:1") if serves else nobody)
    assert route_of(one, {7}) == nobody, "it shares keys with another one"
    assert (route_of(one, {8}) == nobody) is not serves


@in_exact_time
async def test_regions_that_share_keys_have_no_owner_in_news_and_in_lists() -> None:
    log, of = RouteLog(), table("t")
    log.unanswered = {of.regions[1].id}
    waiting = asyncio.create_task(follow(log))
    await asyncio.sleep(0)
    for one in of.regions[:3]:
        log.changed(one)
    assert [one.server for one in changes(await waiting).routes] == ["s1", "", "s1"]
    assert [one.server for one in listed(log.page(1, b"", of.regions, 0, 3))] == ["s1", "", "s1"]


@in_exact_time
async def test_each_wait_without_news_ends_however_many_there_were_before() -> None:
    log = RouteLog()
    for _ in range(3):
        async with asyncio.timeout(2 * HOLD_S):
            assert changes(await follow(log)) == Changes(1, 0)
        assert not log._waiting, "a wait that is over is forgotten"


@in_exact_time
async def test_a_client_that_leaves_while_nothing_changes_is_forgotten() -> None:
    log = RouteLog()
    gone = asyncio.create_task(follow(log))
    await asyncio.sleep(1)
    gone.cancel()
    await asyncio.wait({gone})
    assert not log._waiting


@in_exact_time
async def test_a_client_that_leaves_while_others_are_told_keeps_none_of_them_waiting() -> None:
    log, of = RouteLog(), table("t")
    followers = start(log, 3 * TOGETHER)
    await asyncio.sleep(0)
    log.changed(of.regions[0])
    await followers[0]
    gone = followers.pop(2 * TOGETHER)
    gone.cancel()
    async with asyncio.timeout(HOLD_S / 2):
        assert {changes(frame).change for frame in await asyncio.gather(*followers)} == {1}


@in_exact_time
async def test_a_client_that_was_told_waits_until_there_are_other_news() -> None:
    log, of = RouteLog(), table("t")
    followers = start(log, 10 * TOGETHER)
    await asyncio.sleep(0)
    log.changed(of.regions[0])
    await followers[0]
    again = asyncio.create_task(follow(log, 1))
    await asyncio.gather(*followers)
    await asyncio.sleep(HOLD_S / 2)
    assert not again.done()
    log.changed(of.regions[1])
    assert [one.region for one in changes(await again).routes] == [1]


@in_exact_time
async def test_a_follower_that_falls_behind_while_it_waits_lists_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "CHANGES_MAX", 3)
    log, of = RouteLog(), table("t")
    waiting = asyncio.create_task(follow(log))
    await asyncio.sleep(0)
    for _ in range(4):
        log.changed(of.regions[0])
    assert changes(await waiting) == Changes(1, 4, reset=True)


@in_exact_time
async def test_very_many_changes_come_in_several_responses_with_each_region_once() -> None:
    log, of = RouteLog(), table("t")
    waiting = asyncio.create_task(follow(log))
    await asyncio.sleep(0)
    for _ in range(ROUTES_MAX):
        log.changed(of.regions[0])
    log.changed(of.regions[1])
    found = changes(await waiting)
    assert (found.change, [one.region for one in found.routes]) == (ROUTES_MAX, [0])
    found = changes(await follow(log, found.change))
    assert (found.change, [one.region for one in found.routes]) == (ROUTES_MAX + 1, [1])


@in_exact_time
async def test_of_responses_to_many_different_requests_those_that_were_used_last_are_kept() -> None:
    log, of = RouteLog(), table("t")
    waiting = asyncio.create_task(follow(log))
    await asyncio.sleep(0)
    log.changed(of.regions[0])
    await waiting
    first = await follow(log, 0, ["t0"])
    for number in range(1, KEPT_MAX):
        await follow(log, 0, [f"t{number}"])
    assert await follow(log, 0, ["t0"]) is first
    await follow(log, 0, ["one more"])
    assert await follow(log, 0, ["t0"]) is first
    assert len(log._news) == KEPT_MAX


@in_exact_time
async def test_pages_are_the_same_for_a_while_again_and_again() -> None:
    log, of = RouteLog(), table("t")
    seen: list[bytes] = []
    for _ in range(3):
        some = [log.page(1, b"", of.regions, 0, 5) for _ in range(2)]
        assert some[0] is some[1]
        assert not any(some[0] is one for one in seen)
        seen.append(some[0])
        await asyncio.sleep(PAGE_S)
    for number in range(2 * KEPT_MAX):
        log.page(1, b"", of.regions, number % 10, 1 + number // 10)
    assert len(log._pages) == KEPT_MAX
