"""Plans and restarts that wait in one term for ``min.insync.replicas``: one query, after which all of them go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.kafka.kinds import broker_queries as module
from controller.kafka.kinds.broker_queries import MinIsrGuard
from controller.kafka.path.controller import Controller
from controller.kafka.path.gate import TermEnded
from state_machines.model.cluster import Cluster
from state_machines.model.facts import Fact
from state_machines.model.min_isr import UNKNOWN, MinIsr

FOUND = MinIsr(2, {"t": 3})


class Term:
    """A controller whose brokers respond once ``respond`` is called, with a value, or not at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster()
        self.dial: object | None = object()
        self.store = SimpleNamespace()
        self.tasks: list[asyncio.Task[None]] = []
        self.woken: list[int] = []
        self.answers: asyncio.Future[MinIsr] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(module, "read_min_isr", self.read)

    async def read(self, *_: object) -> MinIsr:
        return await self.answers

    async def until_read(self, read: Callable[[], Awaitable[MinIsr]]) -> MinIsr:
        return await read()

    def enter(self, fact: Fact) -> None:
        fact.enter(self.cluster)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def knows(self, guard: MinIsrGuard, pid: int) -> bool:
        return guard.is_known(cast("Controller", self), pid, self.woken.append)

    async def respond(self, found: MinIsr | Exception) -> None:
        if isinstance(found, MinIsr):
            self.answers.set_result(found)
        else:
            self.answers.set_exception(found)
        await asyncio.gather(*self.tasks)


@pytest.mark.parametrize("found", [FOUND, UNKNOWN, TermEnded("a test")])
async def test_all_that_wait_are_woken_once_and_go_on_whatever_the_brokers_send(
    monkeypatch: pytest.MonkeyPatch, found: MinIsr | Exception
) -> None:
    term, guard = Term(monkeypatch), MinIsrGuard()
    assert [term.knows(guard, pid) for pid in (7, 8, 7)] == [False] * 3
    assert len(term.tasks) == 1, "one query for all of them"
    await term.respond(found)
    assert sorted(term.woken) == [7, 8]
    assert term.cluster.min_isr == (found if isinstance(found, MinIsr) else UNKNOWN)
    assert [term.knows(guard, pid) for pid in (7, 8, 9)] == [True] * 3
    assert len(term.tasks) == 1, "no second query in the term"


async def test_a_value_that_the_term_has_learnt_meanwhile_is_newer_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    term, guard = Term(monkeypatch), MinIsrGuard()
    assert not term.knows(guard, 7)
    term.cluster.min_isr = newer = MinIsr(1, {})
    await term.respond(FOUND)
    assert (term.cluster.min_isr, term.woken) == (newer, [7])


async def test_a_daemon_that_queries_no_broker_and_one_that_knows_the_value_wait_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    term, guard = Term(monkeypatch), MinIsrGuard()
    term.dial = None
    assert term.knows(guard, 7)
    term.dial, term.cluster.min_isr = object(), FOUND
    assert term.knows(guard, 7)
    assert (term.tasks, term.woken) == ([], [])
