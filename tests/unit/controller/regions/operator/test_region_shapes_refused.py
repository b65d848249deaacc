"""Splits and merges that are refused: at the request and again at their first step, with what helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import pytest

from controller.http.documents import NotFound, ViewError, ViewRefused
from controller.regions.domain import RegionsDomain
from controller.regions.operator.region_changes import RegionChange, RegionChanges
from controller.regions.operator.shapes import MergeRequest, ShapeView, SplitRequest
from controller.regions.term import RegionsTerm
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.layout import KEY_BYTES_MAX
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting, merges, one_inheriting, splits
from tests.kit.regions.world import (
    Server,
    at_rest,
    creates,
    ended,
    moves,
    regions_of,
    serving,
    transits,
    until,
    virtual,
)

S = RegionState


class Domain(NamedTuple):
    """What the view needs of a domain."""

    term: RegionsTerm


def domain(term: RegionsTerm) -> RegionsDomain:
    return cast("RegionsDomain", Domain(term))


def view(term: RegionsTerm) -> ShapeView:
    return ShapeView(domain(term))


async def refused_split(term: RegionsTerm, region: Region, key: str = "m") -> str:
    with pytest.raises(ViewError) as found:
        await view(term).split_region(region.id, SplitRequest(key=key), "uid 7")
    return f"{found.value.message}: {found.value.remedy}"


async def refused_merge(term: RegionsTerm, regions: Sequence[Region]) -> str:
    with pytest.raises(ViewRefused) as found:
        await view(term).merge_regions(MergeRequest(regions=[one.id for one in regions]), "uid 7")
    return f"{found.value.message}: {found.value.remedy}"


def pins(term: RegionsTerm, region: Region) -> None:
    term.env.model.marks.put(Mark(MarkKind.PIN, str(region.id), "a"))


def disables(term: RegionsTerm, region: Region) -> None:
    region.table.state = TableState.DISABLING


def disabled(term: RegionsTerm, region: Region) -> None:
    region.table.state = TableState.DISABLED


def moves_it(term: RegionsTerm, region: Region) -> None:
    term.env.model.attach(region, 77)


def claims(term: RegionsTerm, region: Region) -> None:
    term.env.claimants.listed(("b", 1), [region.id])


@pytest.mark.parametrize(
    ("happens", "why", "way"),
    [
        (pins, "is pinned to a", "regent regions unpin"),
        (disables, "table t is disabling, and must be enabled", "regent tables describe t"),
        (disabled, "table t is disabled, and must be enabled", "'regent tables enable t' opens its regions"),
        (moves_it, "is in transition, procedure 77 moves it", "'regent regions procedures wait 77' waits for its end"),
        (claims, "b,1 has it, and is to close it", "regent regions explain"),
    ],
)
def test_a_region_that_cannot_be_split_or_merged_now_is_refused_before_and_at_the_first_step(
    happens: Callable[[RegionsTerm, Region], None], why: str, way: str
) -> None:
    @virtual
    async def story() -> None:
        async with one_inheriting(RegionDisk(), 2) as (term, _, regions):
            happens(term, regions[0])
            for text in (await refused_split(term, regions[0], "0"), await refused_merge(term, regions)):
                assert why in text
                assert way in text
            if regions[0].pid:
                regions[0].pid = 0
                return
            for pid in (await splits(term, regions[0], b"0"), await merges(term, regions)):
                record = await term.engine.result(pid)
                assert record.state is State.ROLLEDBACK
                assert why in record.error
                assert way in record.error
            assert {one.pid for one in regions} == {0}
            assert {one.state for one in regions} == {S.OPEN}

    story()


@virtual
async def test_a_region_that_a_part_moves_is_refused_with_the_procedure_that_ends() -> None:
    async with one_inheriting(RegionDisk()) as (term, _, (region,)):
        pid = await splits(term, region, b"m")
        await until(lambda: region.pid not in (0, pid))
        waits = f"it is a part of procedure {pid} (split): 'regent regions procedures wait {pid}' waits for the end"
        assert f"procedure {region.pid} moves it: {waits}" in await refused_split(term, region)
        with pytest.raises(ViewRefused) as moved:
            await RegionChanges(domain(term)).change_region("unassign", region.id, RegionChange(), "uid 7")
        assert moved.value.remedy.startswith(waits)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("80000000", "is a bound of region"),
        ("9", "is outside of region"),
        ("0" * (KEY_BYTES_MAX + 1), f"{KEY_BYTES_MAX + 1} bytes, at most {KEY_BYTES_MAX}"),
        ("\\xZZ", "a backslash begins"),
    ],
)
def test_a_key_that_does_not_lie_within_the_region_is_refused(key: str, why: str) -> None:
    @virtual
    async def story() -> None:
        async with one_inheriting(RegionDisk(), 2) as (term, _, regions):
            text = await refused_split(term, regions[0], key)
            assert text.startswith("key: ")
            assert why in text
            if not key.startswith("\\"):
                assert why in (await term.engine.result(await splits(term, regions[0], key.encode()))).error

    story()


@virtual
async def test_regions_that_are_no_neighbours_are_not_merged() -> None:
    async with one_inheriting(RegionDisk(), 12) as (term, server, regions), serving(server):
        await ended(term, creates(term, "other"))
        (other,) = regions_of(term, "other")
        for some, why in (
            ([regions[0], regions[2]], "give neighbours"),
            ([regions[0], other], "are of different tables"),
            ([regions[0], regions[0]], "is given twice"),
        ):
            assert why in await refused_merge(term, some)
        for count in (1, 11):
            with pytest.raises(ValueError, match="regions"):
                MergeRequest(regions=[one.id for one in regions[:count]])
            record = await term.engine.result(await merges(term, regions[:count]))
            assert f"{count} given, expected 2 to 10 neighbours" in record.error


@virtual
async def test_a_region_that_is_closed_or_gone_is_not_split() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (region,)), serving(server):
        await ended(term, transits(term, "close", region))
        assert "is CLOSED, and must be OPEN: 'regent regions assign" in await refused_split(term, region)
        await ended(term, transits(term, "assign", region))
        await ended(term, splits(term, region, b"m"))
        first, second = regions_of(term)
        text = await refused_split(term, region)
        assert f"was split: #{first.id}, #{second.id} got its keys" in text
        assert "regent regions parents" in text
        assert f"region {first} is not yet independent of #{region.id}" in await refused_split(term, first, "a")
        assert f"region {first} is not yet independent of #{region.id}" in await refused_merge(term, [first, second])


@virtual
async def test_servers_that_cannot_open_heirs_are_named_and_any_of_them_keeps_regions_whole() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (region,)), serving(server, Server(term, "old")):
        text = await refused_split(term, region)
        assert text.startswith('servers old,1 lack the feature "inherit"')
        assert text in (await term.engine.result(await splits(term, region, b"m"))).error
        await at_rest(term)
        assert region.state is S.OPEN


@virtual
async def test_a_dry_run_changes_nothing_and_a_repeated_request_finds_its_split_though_the_region_is_gone() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (region,)), serving(server):
        last = term.engine.last_number
        planned = await view(term).split_region(region.id, SplitRequest(key="m", dry_run=True), "uid 7")
        assert (planned.state, planned.detail) == ("planned", f"region {region}: split at 'm'")
        assert term.engine.last_number == last
        wanted = SplitRequest(key="m", nonce="once")
        begun = await view(term).split_region(region.id, wanted, "uid 7")
        await term.engine.result(begun.pid)
        again = await view(term).split_region(region.id, wanted, "uid 7")
        assert (again.pid, again.state) == (begun.pid, "success")
        with pytest.raises(NotFound):
            await view(term).split_region(region.id, SplitRequest(key="m"), "uid 7")


@virtual
async def test_a_region_that_is_moved_meanwhile_is_split_after_that() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (region,)), serving(server, Inheriting(term, "b")):
        moved, pid = await moves(term, region, "b"), await splits(term, region, b"m")
        for one in (moved, pid):
            assert (await term.engine.result(one)).state is State.SUCCESS
        assert [one.start for one in regions_of(term)] == [b"", b"m"]
