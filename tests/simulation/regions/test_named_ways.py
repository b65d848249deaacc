"""An operator at 3 a.m.: what is stuck is counted as stuck, and explanations name the command that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from configs.loading import load
from controller.regions.domain import RegionsDomain
from controller.regions.in_transition import oldest
from controller.regions.operator.explain import explained
from controller.regions.operator.regions import RegionQuery
from controller.regions.operator.view import View, gauges_of
from state_machines.regions.states import RegionState
from tests.kit.regions.term import view_of
from tests.kit.regions.world import virtual
from tests.simulation.regions.cases import Case, commands_fenced_by
from tests.simulation.regions.operating import Refusal, acts
from tests.simulation.regions.situations import SITUATIONS

Story = Callable[[Case], Awaitable[None]]


def in_situation(name: str) -> Callable[[Story], Callable[[], None]]:
    """Plays a story in a situation, in virtual time."""

    def decorate(story: Story) -> Callable[[], None]:
        def play() -> None:
            @virtual
            async def told() -> None:
                options, begins = SITUATIONS[name]
                case = Case(options)
                with commands_fenced_by(case):
                    try:
                        await begins(case)
                        await story(case)
                    finally:
                        await case.end()

            told()

        play.__name__ = story.__name__
        return play

    return decorate


def reading(case: Case) -> View:
    domain = SimpleNamespace(
        term=case.term, mode=case.operator.mode, why="", older="", listener=SimpleNamespace(port=1, connections=0)
    )
    environ = {"REGENT_STATE__DIRECTORY": "/nowhere", "REGENT_REGIONS__PORT": "1", "REGENT_REGIONS__HOST": "127.0.0.1"}
    settings = load(environ=environ, kafka_optional=True).settings
    return view_of(cast("RegionsDomain", domain), settings)


def text_of(case: Case, region: int = 0) -> str:
    found = explained(
        case.region if not region else case.term.env.model.regions[region], case.term.env, case.term.engine
    )
    return "\n".join((found.state_because, found.server_because, found.procedure_because, *found.would_change))


async def a_crash_begins(case: Case) -> None:
    case.actors["a"].stop()
    await case.reaches(lambda: case.live("crash"))


# -- regions of a crashed process


@in_situation("a crash whose fence command fails")
async def test_regions_of_a_process_that_is_not_fenced_yet_do_not_count_as_open(case: Case) -> None:
    look = reading(case)
    found = look.status.status()
    assert (found.open_regions, found.waiting_regions) == (1, 1)
    [table] = look.tables.list_tables(10, None).items
    assert (table.open_regions, table.waiting_regions) == (1, 1)
    domain = cast("RegionsDomain", SimpleNamespace(term=case.term, listener=SimpleNamespace(connections=0)))
    regions = gauges_of(domain).regions
    assert (regions["open"], regions["waiting"]) == (1, 1)
    query = RegionQuery(10, None, "t", None, None, False, False)
    items = {one.id: one for one in look.regions.list_regions(query).items}
    one = items[case.region.id]
    assert (one.state, one.waits_for) == ("WAITING", "the crash of server a,1")
    waiting = look.regions.list_regions(query._replace(state="waiting")).items
    assert [one.id for one in waiting] == [case.region.id]
    assert len(look.regions.list_regions(query._replace(state="open")).items) == 1
    assert any("a,1 crashed with 1 region: end a,1 by hand" in one for one in found.warnings)


@in_situation("a crash whose log cannot be split")
async def test_a_region_that_waits_for_a_log_is_explained_with_the_command_that_leaves_the_part_out(case: Case) -> None:
    await asyncio.sleep(3)
    text = text_of(case)
    assert "waits for the crash of server a,1" in text
    assert "regions move" not in text
    work = case.live("split_log")[0]
    assert f"'regent regions procedures leave-out {work.pid}" in text
    found = await case.operator.does(f"regions move {case.region.id} b")
    assert isinstance(found, Refusal)
    assert f"leave-out {work.pid}" in found.text


@in_situation("a crash whose fence command fails")
async def test_a_region_that_waits_for_a_fence_is_explained_with_what_fences(case: Case) -> None:
    await asyncio.sleep(3)
    text = text_of(case)
    assert "regions move" not in text
    assert "regions.fence_command" in text
    assert "no route to the switch" in text


# -- opens and closes that hang


@in_situation("a creation whose opens hang")
async def test_an_open_that_hangs_is_explained_with_the_commands_that_end_it_and_their_costs(case: Case) -> None:
    text = text_of(case)
    assert f"'regent regions procedures bypass {case.region.pid}'" in text
    assert "'regent servers expire a'" in text
    assert "has to end" in text
    assert "'regent tables delete t'" in text


@in_situation("a move whose close hangs")
async def test_a_close_that_hangs_is_explained_with_the_command_that_ends_it(case: Case) -> None:
    text = text_of(case)
    assert "'regent servers expire a'" in text
    assert f"'regent regions procedures bypass {case.region.pid}'" in text


@in_situation("a disable whose close hangs")
async def test_a_region_of_a_table_that_is_disabled_at_present_names_no_command_that_goes_on_already(
    case: Case,
) -> None:
    text = text_of(case)
    assert "'regent tables disable t" not in text
    assert "repeat this" not in text
    assert "its table becomes disabled: it can be enabled then, which opens it" in text


# -- opens that fail


@pytest.mark.parametrize("name", ["a creation whose opens fail", "an enable whose opens fail"])
def test_an_open_that_fails_again_and_again_does_not_contradict_itself_and_names_a_way(name: str) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        await case.reaches(lambda: case.region.state is RegionState.OPENING and case.region.server is None)
        text = text_of(case)
        assert "may have it already" not in text
        assert "'regent tables disable t'" in text
        assert ("'regent tables delete t'" in text) == name.startswith("a creation")

    story()


@in_situation("a reopening whose opens fail")
async def test_the_age_of_a_transition_counts_from_its_first_attempt(case: Case) -> None:
    await asyncio.sleep(100)
    region, records = case.region, case.term.engine.records
    [aged] = [one for one in (await oldest(case.term.env, records, 100, 60_000))[0] if one.region is region]
    assert 95_000 < aged.age_ms < 110_000
    assert "in transition for 10" in text_of(case).splitlines()[0]


# -- regions and servers at rest


@in_situation("a creation whose opens fail")
async def test_a_region_that_no_server_ever_had_is_not_said_to_be_given_up_by_one(case: Case) -> None:
    region = case.region
    await case.operator.does(f"regions procedures bypass {region.pid}")
    await case.reaches(lambda: region.state is RegionState.CLOSED)
    state = text_of(case).splitlines()[0]
    assert state.startswith("it was given up, or closed without the word of a server that had it open")


@in_situation("a drain whose close hangs")
async def test_a_server_that_was_drained_says_everywhere_what_lets_it_get_regions(case: Case) -> None:
    look = reading(case)
    assert look.servers.describe_server("a").note == f"procedure {case.pid} (drain_server) moves its regions away"
    case.actors["a"].heal()
    await case.term.engine.result(case.pid)
    for text in (look.servers.describe_server("a").note, *look.status.status().warnings):
        assert "drained" in text
    assert "'regent servers uncordon a'" in look.servers.describe_server("a").note
    assert "'regent servers uncordon NAME'" in " ".join(look.status.status().warnings)
    await case.done("servers uncordon a")
    assert not look.status.status().warnings
    assert not look.servers.describe_server("a").note


@in_situation("a drain whose close hangs")
async def test_a_move_to_a_server_that_is_drained_names_the_end_of_the_drain_and_later_that_of_the_mark(
    case: Case,
) -> None:
    there = next(one for one in case.term.env.model.regions.values() if str(one.server) != str(case.region.server))
    command = f"regions move {there.id} a"
    refused = await case.operator.does(command)
    assert isinstance(refused, Refusal)
    assert [one for one in refused.commands if acts(one)] == [f"regions procedures abort {case.pid}"]
    case.actors["a"].heal()
    await case.term.engine.result(case.pid)
    refused = await case.operator.does(command)
    assert isinstance(refused, Refusal)
    assert [one for one in refused.commands if acts(one)] == ["servers uncordon a"]
    await case.done("servers uncordon a")
    await case.done(command)


@in_situation("an enabled table")
async def test_an_open_region_of_a_drained_server_names_what_lets_that_get_regions(case: Case) -> None:
    await case.done("servers drain a")
    await case.done("servers uncordon a")
    region = case.region.id
    await case.done(f"regions move {region} a")
    assert "uncordon" not in text_of(case, region)
    await case.done("servers cordon a")
    assert "it is cordoned: 'regent servers uncordon a'" in text_of(case, region)
