"""What the steps of region procedures work with: results that servers report, portions, choices and lost parts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest

from controller.journal.term_journal import TermJournal
from controller.regions import environment
from controller.regions.dispatcher import Dispatcher, DispatchLimits, Results
from controller.regions.environment import Options, RegionsEnv
from controller.regions.journal.journal import RegionsJournal
from controller.regions.procedures.every import NAMES
from regent_agent.protocol import CLOSED, DONE, OPENED, Result
from state_machines.regions.entities import Server
from state_machines.regions.marks import LeftOut, LostPart, LostParts
from state_machines.regions.model import Regions
from state_machines.regions.placement import placement_of
from state_machines.regions.states import ServerState
from state_machines.regions.transit import PAUSE_MS_MAX

LEASE_MS = 10_000


class EnvironmentWorld:
    """An environment whose clocks a test sets."""

    def __init__(self, **options: Any) -> None:
        self.now_s, self.wall_ms = 100.0, 5_000_000
        self.env = RegionsEnv(
            Regions(),
            Dispatcher(1, DispatchLimits(), lambda: self.now_s, lambda *_: None),
            placement_of("retain"),
            random.Random(1).randrange,
            Options(lease_ms=LEASE_MS, **options),
            lambda: self.wall_ms,
            lambda: self.now_s,
            3,
            RegionsJournal(TermJournal(epoch=1), NAMES, retains=True),
        )

    def server(self, name: str, polled_s: float = 0.0) -> Server:
        """Enters a server that polled so long ago."""
        found = Server(name, 1, "", "", ServerState.ONLINE, {})
        found.here, found.deadline_s = True, self.now_s - polled_s + LEASE_MS / 1000
        self.env.model.servers[found.key] = found
        return found


def kept(results: Results, *some: Result) -> asyncio.Future[None]:
    """Adds a report; returns its response."""
    found: Awaitable[None] | None = results.add(list(some))
    assert isinstance(found, asyncio.Future)
    return found


# -- results


async def test_a_report_has_its_response_once_all_of_its_results_are_durable() -> None:
    results = Results()
    assert results.add([]) is None
    both = kept(results, Result(1, OPENED), Result(2, CLOSED))
    again = kept(results, Result(1, OPENED))
    other = kept(results, Result(3, DONE))
    results.used(1)
    assert (both.done(), again.done(), other.done()) == (False, True, False)
    assert (results.get(1), results.get(2)) == (None, Result(2, CLOSED))
    results.used(1)
    assert not both.done(), "each result counts once"
    results.used(2)
    assert both.done()
    assert results.get(3) == Result(3, DONE)


async def test_of_two_results_of_one_operation_the_later_one_counts() -> None:
    results = Results()
    first, second = kept(results, Result(1, OPENED, 1)), kept(results, Result(1, OPENED, 9))
    assert results.get(1) == Result(1, OPENED, 9)
    results.used(1)
    assert first.done()
    assert second.done()


async def test_the_end_of_a_term_ends_the_wait_of_each_report() -> None:
    results = Results()
    waits = [kept(results, Result(1, OPENED), Result(2, OPENED)), kept(results, Result(1, OPENED))]
    over = kept(results, Result(3, DONE))
    results.used(3)
    results.close()
    assert [one.cancelled() for one in (*waits, over)] == [True, True, False]
    results.used(1)  # a step that was under way ends after the term


# -- portions of a write


def test_one_step_writes_as_many_keys_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "KEY_BYTES_MAX", 10)
    env = EnvironmentWorld().env
    two, five = (b"a", b"b"), (b"aa", b"bbb")
    cases = [
        ([], 0, 0),
        ([two] * 5, 0, 3),  # rows
        ([five] * 3, 0, 2),  # bytes of both keys
        ([two] * 3, 6, 2),  # bytes beside them
        ([(b"a" * 9, b"b" * 9), two], 0, 1),  # one always fits
        ([two], 99, 1),
    ]
    for keys, taken_bytes, count in cases:
        assert env.fit(iter(keys), taken_bytes) == keys[:count]


# -- choices that are not entered yet


def test_a_choice_counts_for_its_servers_until_it_is_entered_or_repeated() -> None:
    world = EnvironmentWorld()
    a, b = world.server("a"), world.server("b")
    world.env.expect(1, {a: 3, b: 2})
    world.env.expect(2, {b: 1})
    assert (a.expected, b.expected) == (3, 3)
    world.env.expect(1, {a: 1})
    assert (a.expected, b.expected) == (1, 1)
    for _ in range(2):
        world.env.expected(1)
        assert (a.expected, b.expected) == (0, 1)
    world.env.expected(2)
    assert (a.expected, b.expected) == (0, 0)


def test_regions_go_to_servers_that_polled_within_half_a_lease_while_there_are_any() -> None:
    world = EnvironmentWorld()
    prompt, just, late = (world.server(name, polled_s) for name, polled_s in (("a", 0.1), ("b", 4.9), ("c", 5.1)))
    assert world.env.prompt([prompt, just, late]) == [prompt, just]
    assert world.env.prompt([late]) == [late]
    assert world.env.servers() == [], "too few servers have come"
    world.env.places = True
    assert world.env.servers() == [prompt, just, late]
    late.here = False
    assert world.env.servers() == [prompt, just]


# -- waits


@pytest.mark.parametrize(
    ("ahead_ms", "left_ms"),
    [(-1, 0), (0, 0), (1, 1), (PAUSE_MS_MAX, PAUSE_MS_MAX), (PAUSE_MS_MAX + 1, 0)],
)
def test_a_wait_that_is_longer_than_any_pause_is_over(ahead_ms: int, left_ms: int) -> None:
    world = EnvironmentWorld()
    assert world.env.left_ms(world.wall_ms + ahead_ms) == left_ms


def test_procedures_that_wait_for_a_server_run_once_for_each_wait() -> None:
    world = EnvironmentWorld()
    world.env.unplaced.update((7, 3))
    world.env.wake_unplaced()
    assert world.env.waking.take() == [3, 7]
    world.env.wake_unplaced()
    assert world.env.waking.take() == []


async def test_a_procedure_that_is_about_to_wait_is_woken_after_this_turn() -> None:
    world, woken = EnvironmentWorld(), list[int]()
    world.env.wake = woken.append
    world.env.wake_soon(7)
    assert woken == [], "it does not wait yet"
    await asyncio.sleep(0)
    assert woken == [7]


# -- parts of logs


def test_parts_that_operators_have_left_out_stay_left_out_for_each_later_request() -> None:
    env, key = EnvironmentWorld().env, ("a", 1)
    first = LostParts((LeftOut((LostPart("p1", 1),), "eve", "lost"),), 7, (1, 2))
    second = LostParts((LeftOut((LostPart("p2", 2),), "eve", "burnt"),), 3, (3,))
    for lost in (LostParts(), first, LostParts(), second, LostParts()):
        env.keep_lost(key, lost)
    assert [one.parts[0].name for one in env.left_out[key].left_out] == ["p1", "p2"]
    env.keep_lost(("b", 1), LostParts())
    assert env.left_out.keys() == {key}
