"""Procedures that operators have ended: each part of the daemon forgets them, and what they were about goes on."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.regions.bypassed import picked_up, see_to
from controller.regions.endings import Endings, Left
from controller.regions.environment import Results
from controller.regions.given_up import GivenUp
from controller.regions.kinds import assign, close, servers
from controller.regions.kinds.messages import CRASH, TRANSIT, Crash, Transit
from controller.regions.unheard import Unheard
from controller.regions.waking import Waking
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.model import Region, Regions, Server, Table
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
        unplaced={7, 8}, unheard=Unheard(), dispatcher=mock.Mock(), expected=mock.Mock(), draining={},
        wake_unplaced=mock.Mock(), now_ms=lambda: 5,
    )  # fmt: skip
    env.unheard.held = {7, 8}
    return env, region


def ended(kind: str = assign.NAME) -> list[Transition]:
    before = Record(7, kind, State.WAITING_TIMEOUT, 1, 1, 1, data=TRANSIT.encode(Transit(1, "t", server="s1")))
    return [Transition(before, replace(before, state=State.SUCCESS, bypassed=True, ending=BYPASS))]


def test_each_part_forgets_a_procedure_that_was_ended_as_it_is() -> None:
    """An open that waits for the next poll of its server is not sent any more: the region goes another way."""
    env, region = env_of()
    see_to(env, ended())
    assert (env.unplaced, env.unheard.held, region.pid) == ({8}, {8}, 0)
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
