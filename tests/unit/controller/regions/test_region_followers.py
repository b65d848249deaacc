"""Clients that follow routes: they are told together, what is the same is encoded once, nothing is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pytest

from controller.regions.routes import (
    CHANGES_MAX,
    GATHER_EACH_S,
    GATHER_S,
    PAGE_S,
    REST_S,
    ROUTES_BYTES_MAX,
    TOGETHER,
    RouteLog,
)
from regent_agent.codec import FRAME_BYTES_MAX, LENGTH, decode_response
from regent_agent.protocol import ROUTES_MAX, Changes, Route, Routes
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState
from tests.kit.deadlines import in_exact_time

HOLD_S = 10.0
SERVER = Server("s1", 1, "s1:1", "", ServerState.ONLINE, {})


def table(name: str, state: TableState = TableState.ENABLED) -> Table:
    found = Table(name, TableKind.USER, state, {}, [])
    found.regions.extend(region(found, number) for number in range(10))
    return found


def region(of: Table, number: int, key: bytes = b"") -> Region:
    return Region(number, of, key or b"%09d" % number, key + b"%09d" % (number + 1), RegionState.OPEN, SERVER, number)


def changes(frame: bytes) -> Changes:
    found = decode_response(frame[LENGTH.size :])
    assert isinstance(found, Changes)
    return found


def routes(frame: bytes) -> list[Route]:
    found = decode_response(frame[LENGTH.size :])
    assert isinstance(found, Routes)
    return list(found.routes)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def follow(log: RouteLog, change: int = 0, tables: Iterable[str] = ()) -> bytes:
    wanted = frozenset(tables)
    return await log.after(1, change, wanted or None, HOLD_S)


def start(log: RouteLog, count: int) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(follow(log)) for _ in range(count)]


@in_exact_time
async def test_all_followers_get_the_same_bytes_with_all_changes_of_a_while() -> None:
    log, of = RouteLog(), table("t")
    followers = start(log, 300)
    await asyncio.sleep(1)
    begun_s = now_s()
    log.changed(of.regions[0])
    await asyncio.sleep(GATHER_S / 2)
    log.changed(of.regions[1])
    log.changed(of.regions[0])
    frames = await asyncio.gather(*followers)
    assert now_s() - begun_s == pytest.approx(2 * GATHER_S, abs=0.01), "once for a while nothing more has changed"
    assert all(frame is frames[0] for frame in frames)
    found = changes(frames[0])
    assert found.change == 3
    assert sorted(one.region for one in found.routes) == [0, 1]


@in_exact_time
async def test_few_followers_are_woken_in_one_turn_of_the_loop() -> None:
    log, of = RouteLog(), table("t")
    followers = start(log, 10 * TOGETHER)
    await asyncio.sleep(0)
    log.changed(of.regions[0])
    await asyncio.sleep(GATHER_S)
    woken = [sum(one.done() for one in followers)]
    assert woken[0] <= 2 * TOGETHER
    while woken[-1] < len(followers):
        await asyncio.sleep(0)
        woken.append(sum(one.done() for one in followers))
    steps = [after - before for before, after in pairwise(woken)]
    assert set(steps) == {TOGETHER}


@in_exact_time
async def test_a_change_while_followers_are_told_is_told_next_without_any_other_event() -> None:
    log, of = RouteLog(), table("t")
    followers = start(log, 10 * TOGETHER)
    await asyncio.sleep(0)
    log.changed(of.regions[0])
    first = changes(await followers[0])
    again = asyncio.create_task(follow(log, first.change))
    await asyncio.sleep(0)
    log.changed(of.regions[1])
    assert not followers[-1].done(), "others are not told yet"
    begun_s = now_s()
    assert changes(await again).change == 2
    assert now_s() - begun_s == pytest.approx(len(followers) * REST_S, abs=0.01)


@in_exact_time
async def test_many_followers_are_told_less_often() -> None:
    """Telling takes the loop's time, which regions need."""
    log, of = RouteLog(), table("t")
    told_s: list[float] = []

    async def client() -> None:
        change = 0
        while True:
            change = changes(await follow(log, change)).change
            if not told_s or now_s() > told_s[-1] + 0.01:
                told_s.append(now_s())

    clients = [asyncio.create_task(client()) for _ in range(1_000)]
    await asyncio.sleep(1)
    begun_s = now_s()
    for number in range(500):
        log.changed(of.regions[number % 10])
        await asyncio.sleep(0.01)
    await asyncio.sleep(2)
    for one in clients:
        one.cancel()
    pauses = [after - before for before, after in pairwise(told_s)]
    assert told_s[0] - begun_s <= GATHER_S + 1_000 * GATHER_EACH_S + 0.02, "the first news are quicker"
    assert min(pauses) >= 1_000 * REST_S - 0.01
    assert 5 <= len(told_s) <= 7


@in_exact_time
async def test_many_changes_in_a_row_are_told_to_many_followers_at_once() -> None:
    """What costs is a response to each: the regions of a server that crashed are opened again in half a second."""
    log, of = RouteLog(), table("t")
    followers = start(log, 2_000)
    await asyncio.sleep(1)
    begun_s = now_s()
    for number in range(50):
        log.changed(of.regions[number % 10])
        await asyncio.sleep(0.01)
    frames = await asyncio.gather(*followers)
    assert {changes(frame).change for frame in set(frames)} == {50}
    assert now_s() - begun_s == pytest.approx(0.5 + GATHER_S, abs=0.06)


@in_exact_time
async def test_a_single_change_is_told_soon_however_many_follow() -> None:
    log, of = RouteLog(), table("t")
    followers = start(log, 2_000)
    await asyncio.sleep(1)
    begun_s = now_s()
    log.changed(of.regions[0])
    await asyncio.gather(*followers)
    assert now_s() - begun_s == pytest.approx(GATHER_S, abs=0.01)


@pytest.mark.parametrize("count", [1, 500])
@in_exact_time
async def test_changes_that_never_end_are_told_all_the_same(count: int) -> None:
    log, of = RouteLog(), table("t")
    followers = start(log, count)
    await asyncio.sleep(1)
    begun_s = now_s()
    while not followers[-1].done():
        log.changed(of.regions[0])
        await asyncio.sleep(0.01)
    assert now_s() - begun_s == pytest.approx(GATHER_S + count * GATHER_EACH_S, abs=0.03)


@in_exact_time
async def test_without_news_the_wait_ends_after_its_time_also_for_the_second_of_two() -> None:
    log = RouteLog()
    begun_s = now_s()
    first = asyncio.create_task(follow(log))
    await asyncio.sleep(3)
    second = asyncio.create_task(follow(log))
    assert changes(await first) == Changes(1, 0)
    assert now_s() - begun_s == pytest.approx(HOLD_S, abs=0.01)
    assert changes(await second) == Changes(1, 0)
    assert now_s() - begun_s == pytest.approx(HOLD_S + 3, abs=0.01)


@in_exact_time
async def test_a_follower_that_left_is_no_burden() -> None:
    log, of = RouteLog(), table("t")
    gone, stays = start(log, 2)
    await asyncio.sleep(1)
    gone.cancel()
    await asyncio.sleep(0)
    log.changed(of.regions[0])
    assert changes(await stays).change == 1
    assert not log._waiting


@in_exact_time
async def test_a_slow_follower_gets_at_once_what_others_were_told_and_no_more() -> None:
    log, of = RouteLog(), table("t")
    prompt = asyncio.create_task(follow(log))
    await asyncio.sleep(1)
    log.changed(of.regions[0])
    await prompt
    log.changed(of.regions[1])
    begun_s = now_s()
    late = changes(await follow(log))
    assert now_s() == begun_s
    assert (late.change, [one.region for one in late.routes]) == (1, [0])
    rest = changes(await follow(log, late.change))
    assert (rest.change, [one.region for one in rest.routes]) == (2, [1])


@pytest.mark.parametrize("change", [-1, CHANGES_MAX + 11])
@in_exact_time
async def test_a_follower_with_a_number_of_elsewhere_lists_all_again(change: int) -> None:
    log, of = RouteLog(), table("t")
    for _ in range(10):
        log.changed(of.regions[0])
    assert changes(await follow(log, change)) == Changes(1, 10, reset=True)


@in_exact_time
async def test_a_follower_that_is_too_far_behind_lists_all_again() -> None:
    log, of = RouteLog(), table("t")
    for _ in range(CHANGES_MAX + 1):
        log.changed(of.regions[0])
    assert changes(await follow(log, 0)).reset
    assert not changes(await follow(log, 1)).reset


@in_exact_time
async def test_tables_that_are_followed_are_told_alone() -> None:
    log, of, other = RouteLog(), table("t"), table("u")
    mine = asyncio.create_task(follow(log, 0, ["t"]))
    everything = asyncio.create_task(follow(log))
    await asyncio.sleep(0)
    log.changed(of.regions[3])
    log.changed(other.regions[4])
    assert [one.table for one in changes(await mine).routes] == ["t"]
    assert [one.table for one in changes(await everything).routes] == ["t", "u"]
    assert changes(await mine).change == changes(await everything).change == 2


@in_exact_time
async def test_routes_of_a_table_that_is_being_created_are_no_news() -> None:
    log = RouteLog()
    log.changed(table("t", TableState.CREATING).regions[0])
    assert log.change == 0
    log.changed(table("t", TableState.DELETING).regions[0])
    assert log.change == 1


@pytest.mark.parametrize("seed", range(6))
@in_exact_time
async def test_no_follower_misses_a_change(seed: int) -> None:
    """Followers that are prompt, slow, and come late, while owners change: in the end all have the latest routes."""
    rng, log, of = Random(seed), RouteLog(), table("t")
    over = False

    async def client() -> dict[int, int]:
        known, change = {one.id: one.token for one in of.regions}, log.change
        while not over or change < log.change:
            found = changes(await follow(log, change))
            known |= {one.region: one.token for one in found.routes}
            change = found.change
            await asyncio.sleep(rng.choice((0, 0, 0.01, 0.3)))
        return known

    clients = []
    for token in range(100, 400):
        if rng.random() < 0.3:
            clients.append(asyncio.create_task(client()))
        some = rng.choice(of.regions)
        some.token = token
        log.changed(some)
        await asyncio.sleep(rng.choice((0, 0, 0.005, 0.1)))
    over = True
    for known in await asyncio.gather(*clients):
        assert known == {one.id: one.token for one in of.regions}


# -- what a response may take


def long(count: int) -> Table:
    """Returns a table with the longest keys, on a server with the longest names."""
    found = Table("t" * 200, TableKind.USER, TableState.ENABLED, {}, [])
    server = Server("\u8a9e" * 200, 1, "\u8a9e" * 200, "", ServerState.ONLINE, {})
    found.regions.extend(region(found, number, b"k" * 1_000 + b"%09d" % number) for number in range(count))
    for one in found.regions:
        one.server = server
    return found


@in_exact_time
async def test_changes_with_the_longest_keys_come_in_several_responses() -> None:
    log, of = RouteLog(), long(ROUTES_MAX)
    waiting = asyncio.create_task(follow(log))
    await asyncio.sleep(0)
    for one in of.regions:
        log.changed(one)
    got: list[int] = []
    frame = await waiting
    while True:
        assert len(frame) <= ROUTES_BYTES_MAX
        found = changes(frame)
        got += [one.region for one in found.routes]
        if found.change == log.change:
            break
        frame = await follow(log, found.change)
    assert got == [one.id for one in of.regions]


@in_exact_time
async def test_a_list_with_the_longest_keys_comes_in_pages_that_fit() -> None:
    log, of = RouteLog(), long(ROUTES_MAX)
    got: list[int] = []
    while len(got) < ROUTES_MAX:
        frame = log.page(1, of.regions[len(got)].start, of.regions, len(got), ROUTES_MAX)
        assert len(frame) <= ROUTES_BYTES_MAX < FRAME_BYTES_MAX
        page = [one.region for one in routes(frame)]
        assert page
        got += page
    assert got == [one.id for one in of.regions]


@in_exact_time
async def test_many_clients_that_list_a_table_get_the_same_bytes_for_a_while_and_all_later_news() -> None:
    log, of = RouteLog(), table("t")
    frames = [log.page(1, b"", of.regions, 0, 5) for _ in range(100)]
    assert all(frame is frames[0] for frame in frames)
    of.regions[2].state = RegionState.CLOSED
    log.changed(of.regions[2])
    same = decode_response(log.page(1, b"", of.regions, 0, 5)[LENGTH.size :])
    assert isinstance(same, Routes)
    news = changes(await follow(log, same.change))
    assert [(one.region, one.server) for one in news.routes] == [(2, "")]
    await asyncio.sleep(PAGE_S)
    assert [one.server for one in routes(log.page(1, b"", of.regions, 0, 5))] == ["s1", "s1", "", "s1", "s1"]


@in_exact_time
async def test_pages_of_different_tables_places_and_sizes_are_different() -> None:
    log, of, other = RouteLog(), table("t"), table("u")
    for number, one in enumerate(other.regions):
        one.id = 100 + number
    assert [one.table for one in routes(log.page(1, b"", of.regions, 0, 2))] == ["t", "t"]
    assert [one.table for one in routes(log.page(1, b"", other.regions, 0, 2))] == ["u", "u"]
    assert [one.region for one in routes(log.page(1, b"", of.regions, 3, 2))] == [3, 4]
    assert [one.region for one in routes(log.page(1, b"", of.regions, 3, 3))] == [3, 4, 5]
    assert routes(log.page(1, b"z", of.regions, 10, 3)) == []
