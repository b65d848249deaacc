"""Procedures and changes that have ended: each part of the daemon forgets them, at the cost of their own tables."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.regions import bypassed, endings
from controller.regions.bypassed import picked_up, see_to
from controller.regions.dispatcher import Results
from controller.regions.endings import Ending as EndingsEnding
from controller.regions.endings import Endings, GivenUp, Left
from controller.regions.environment import WOKEN_TOGETHER, Waking
from controller.regions.procedures import assign, close, servers, tables
from controller.regions.procedures.messages import CRASH, TABLE_TASK, TRANSIT, Crash, TableTask, Transit
from controller.regions.server_lists import Claimants
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.record import Ending as End
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState

BYPASS = Ending("bypass", "uid 7", "it hangs")


def env_of(state: RegionState = RegionState.OPENING) -> tuple[Any, Region]:
    """Returns an environment with one region, which a server may have, and to which the procedure 7 is attached."""
    model = Regions()
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    server = Server("s1", 1, "s1:1", "", ServerState.ONLINE, {}, here=True)
    region = Region(1, table, b"", b"", state, server)
    server.regions[1] = region
    model.add_table(table)
    model.add_regions(table, [region])
    model.servers[server.key] = server
    model.attach(region, 7)
    env: Any = SimpleNamespace(
        model=model, endings=Endings(), waking=Waking(), left=deque(), given_up=GivenUp(), results=Results(),
        unplaced={7, 8}, claimants=Claimants(), dispatcher=mock.Mock(), expected=mock.Mock(), draining={},
        wake_unplaced=mock.Mock(), now_ms=lambda: 5,
    )  # fmt: skip
    env.claimants.held = {7, 8}
    return env, region


def ended(kind: str = assign.NAME) -> list[Transition]:
    before = Record(7, kind, State.WAITING_TIMEOUT, 1, 1, 1, data=TRANSIT.encode(Transit(1, "t", server="s1")))
    return [Transition(before, replace(before, state=State.SUCCESS, bypassed=True, ending=BYPASS))]


def test_each_part_forgets_a_procedure_that_was_ended_as_it_is() -> None:
    """An open that waits for the next poll of its server is not sent any more: the region goes another way."""
    env, region = env_of()
    see_to(env, ended())
    assert (env.unplaced, env.claimants.held, region.pid) == ({8}, {8}, 0)
    env.dispatcher.forget.assert_called_once_with(7)
    env.expected.assert_called_once_with(7)
    assert list(env.left) == [Left(region, 7, given_up=True)]


@pytest.mark.parametrize(
    ("kind", "state", "avoided"),
    [
        (assign.NAME, RegionState.OPENING, "s1"),
        (assign.NAME, RegionState.CLOSING, ""),
        (close.NAME, RegionState.OPENING, ""),
    ],
)
def test_a_server_is_avoided_where_its_open_was_given_up_alone(kind: str, state: RegionState, avoided: str) -> None:
    env, _ = env_of(state)
    see_to(env, ended(kind))
    assert env.given_up.of(1, 6) == avoided


def test_a_region_is_picked_up_once_and_where_it_is_still_the_same() -> None:
    env, region = env_of(RegionState.CLOSING)
    left = Left(region, 6)
    assert picked_up(env, left) is None, "the procedure 7 moves it"
    env.model.detach(region, 7)
    assert picked_up(env, left) is not None
    env.model.regions[1] = Region(1, region.table, b"", b"", RegionState.CLOSING)
    assert picked_up(env, left) is None, "its table was deleted, and made anew"


def test_a_server_gets_regions_again_once_its_last_drain_is_aborted() -> None:
    env, _ = env_of()
    [server] = env.model.servers.values()
    server.leaving = server.forced = True
    drains = [Record(pid, servers.DRAIN, State.WAITING, 0, 1, 1, data=CRASH.encode(Crash("s1", 1))) for pid in (5, 6)]
    see_to(env, [Transition(None, one) for one in drains])
    for one, leaves in zip(drains, (True, False), strict=True):
        see_to(env, [Transition(one, replace(one, aborted=True))])
        assert (server.leaving, server.forced) == (leaves, leaves)
    assert not env.draining
    env.wake_unplaced.assert_called_once_with()


CHANGES = 100
REGIONS = 3 * WOKEN_TOGETHER + 7


class Unscanned(dict[int, Region]):
    """Regions that are looked up, and never walked through."""

    def values(self) -> NoReturn:
        """Fails: a change of one table, or one region, does not look at all others."""
        raise AssertionError("all regions in transit are walked through")

    __iter__ = items = values


def world_of(regions: int, names: tuple[str, ...] = ("t", "u")) -> Any:
    """Returns an environment whose tables have so many regions on their way, each with a procedure."""
    model = Regions()
    env: Any = SimpleNamespace(model=model, endings=Endings(), waking=Waking(), left=[])
    number = 0
    for name in names:
        table = Table(name, TableKind.USER, TableState.ENABLED, {}, [])
        model.add_table(table)
        some = [Region(number + at, table, b"%09d" % at, b"", RegionState.OFFLINE) for at in range(1, regions + 1)]
        model.add_regions(table, some)
        for one in some:
            model.attach(one, 100_000 + one.id)
        number += regions
    model.transit = Unscanned(model.transit)
    return env


def begins(pid: int, name: str) -> Transition:
    return Transition(
        None, Record(pid, tables.DISABLE.name, State.RUNNABLE, 0, 1, 1, data=TABLE_TASK.encode(TableTask(name)))
    )


def woken(env: Any) -> list[int]:
    """Returns the pids that are woken, and checks that each turn of the loop wakes few."""
    found: list[int] = []
    while env.waking:
        some = env.waking.take()
        assert 0 < len(some) <= WOKEN_TOGETHER
        found += some
    return found


def test_a_hundred_changes_of_a_table_wake_its_assigns_once_and_in_portions() -> None:
    env = world_of(REGIONS)
    wanted: list[int] = []
    env.waking.wanted = lambda: wanted.append(1)
    see_to(env, [begins(pid, "t") for pid in range(1, CHANGES + 1)])
    assert wanted
    assert sorted(woken(env)) == [one.pid for one in env.model.tables["t"].regions]


def test_a_change_that_comes_while_its_table_is_woken_has_all_of_it_woken_again() -> None:
    env = world_of(REGIONS)
    see_to(env, [begins(1, "t")])
    first = env.waking.take()
    see_to(env, [begins(2, "t")])
    rest = woken(env)
    assert set(first) <= set(rest)
    assert len(rest) == 2 * REGIONS - len(first)


def test_each_region_asks_for_the_changes_of_its_table_at_the_same_cost() -> None:
    """However many tables are changed, and however often."""
    names = tuple(f"t{n}" for n in range(CHANGES))
    env = world_of(1, names)
    pid = 0
    for name in names:
        for _ in range(CHANGES):
            pid += 1
            see_to(env, [begins(pid, name)])
    judged = mock.Mock(return_value="it is enabled already")
    with mock.patch.object(endings, "change_problem", judged):
        for name in names:
            assert env.endings.of(env.model.tables[name]) is None
    assert judged.call_count == CHANGES
    assert env.endings.of(env.model.tables["t7"]).table == "t7"


def test_a_table_stays_closed_until_the_last_of_its_changes_has_ended() -> None:
    table = Table("t", TableKind.USER, TableState.DISABLING, {}, [])
    region = Region(1, table, b"", b"", RegionState.OFFLINE)
    found = Endings()
    ends = [
        EndingsEnding(1, "disable_table", "t", TableState.DISABLING),
        EndingsEnding(2, "delete_table", "t", TableState.DELETING),
    ]
    ends += [EndingsEnding(3, "create_table", "t", None), EndingsEnding(4, "disable_table", "t", TableState.DISABLING)]
    for one in ends:
        assert (found.begin(one), found.begin(one)) == (True, False)
    found.cut(region)
    for pid in (1, 4):
        assert found.over(pid) == []
    assert (of := found.of(table)) is not None
    assert of.pid == 3, "a deletion does not begin from this state"
    assert (found.over(3), found.of(table), bool(found)) == ([], None, True)
    assert (found.over(2), found.over(2), bool(found)) == ([region], [], False)


def test_a_procedure_that_is_ended_as_it_is_finds_its_region_without_a_look_at_all_others() -> None:
    env = world_of(REGIONS)
    [region] = env.model.tables["t"].regions[:1]
    data = TRANSIT.encode(Transit(region.id, "t"))
    record = Record(region.pid, assign.NAME, State.SUCCESS, 0, 1, 1, data=data, bypassed=True, ending=End("bypass"))
    assert bypassed._regions_of(env, record) == [region]
    assert bypassed._regions_of(env, replace(record, pid=7)) == [], "another one has it by now"
    env.model.detach(region, region.pid)
    assert bypassed._regions_of(env, record) == [region]


def test_a_table_knows_its_own_regions_in_transition() -> None:
    env = world_of(3)
    model, table = env.model, env.model.tables["t"]
    first, second, third = table.regions
    model.detach(first, first.pid)
    model.move(second, RegionState.OPENING, None, 1)
    model.detach(second, second.pid)
    assert table.transit == {second.id: second, third.id: third}
    assert table.transit.keys() | model.tables["u"].transit.keys() == model.transit.keys()
    model.drop_last(table, 1)
    assert table.transit == {second.id: second}
