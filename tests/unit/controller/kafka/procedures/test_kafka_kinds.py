"""Kinds of procedures of the Kafka domain: locks, members, damaged messages, the wait for min.insync.replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.kafka.path.controller import Controller
from controller.kafka.path.gate import TermEnded
from controller.kafka.procedures import drain, elect, reassign, restart, throttle
from controller.kafka.procedures import environment as module
from controller.kafka.procedures.environment import MinIsrGuard
from controller.kafka.term.procedures import NAMES
from controller.procedures.requests import ProcedureRefused
from state_machines.decisions.drain import Drain
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.mass_election import MassElection
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.decisions.restarts import RollingRestart
from state_machines.model.cluster import Cluster
from state_machines.model.facts import Fact
from state_machines.model.min_isr import UNKNOWN, MinIsr
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members

PLAN = ReassignPlan(
    (
        PlannedMove("b", 1, (1, 2, 3), (2, 3, 9)),
        PlannedMove("a", 0, (4, 5), (5, 4)),
        PlannedMove("b", 0, (7, 2), (2,)),
    )
)
MESSAGES = {
    reassign.NAME: reassign.encode_plan(PLAN),
    drain.NAME: drain.encode_drain(Drain((11, 2, 11, 3))),
    throttle.NAME: throttle.encode_order(throttle.ThrottleOrder((1, 2), 1_000)),
    elect.NAME: elect.encode_election(MassElection(ElectionType.PREFERRED)),
    restart.NAME: restart.encode_restart(RollingRestart(((1, 10), (2, 20)))),
}


def record(kind: str, data: bytes) -> Record:
    return Record(7, kind, State.RUNNABLE, 0, 0, 0, data=data)


@pytest.mark.parametrize(
    ("kind", "locks", "members"),
    [
        (reassign.NAME, ("server reassignments",), Members(("b", "a"), (1, 7, 9))),
        (drain.NAME, ("server broker 2", "server broker 3", "server broker 11"), Members(brokers=(11, 2, 11, 3))),
        (throttle.NAME, ("server throttles (shared)",), Members()),
        (elect.NAME, ("server elections",), Members()),
        (restart.NAME, ("server restarts",), Members()),
    ],
)
def test_a_kind_locks_all_that_two_of_it_must_not_share_and_names_all_that_it_is_about(
    kind: str, locks: tuple[str, ...], members: Members
) -> None:
    found = record(kind, MESSAGES[kind])
    assert NAMES.lock_names(found) == locks
    assert NAMES.members(found) == members


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_record_whose_message_cannot_be_read_is_unusable_while_it_is_live_and_a_result_afterwards(kind: str) -> None:
    damaged = record(kind, b"{")
    why = NAMES.unfit(damaged)
    assert why is not None
    assert why.startswith(f"the message of {kind} cannot be read (DecodeError: ")
    assert (NAMES.lock_names(damaged), NAMES.members(damaged)) == ((), Members())
    ended = Record(7, kind, State.SUCCESS, 0, 0, 0, data=b"{")
    assert NAMES.unfit(ended) is None
    assert NAMES.unfit(record(kind, MESSAGES[kind])) is None


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (drain.NAME, "pid 7: drain has no commands: abort it, or wait for its end"),
        (restart.NAME, "pid 7: restart has no commands: abort it, or wait for its end"),
        (elect.NAME, "pid 7: an election has one command, stop"),
        (throttle.NAME, "pid 7: a throttle has one command, lift"),
        (reassign.NAME, "the command cannot be read: "),
    ],
)
@pytest.mark.parametrize("command", [b"", b"sto", b"nothing of the kind"])
def test_a_command_that_a_kind_does_not_have_is_refused(kind: str, why: str, command: bytes) -> None:
    with pytest.raises(ProcedureRefused) as refused:
        NAMES[kind].changed(record(kind, MESSAGES[kind]), command)
    assert str(refused.value).startswith(why)


@pytest.mark.parametrize(
    ("kind", "steps", "undone", "no_return", "keeps_locks"),
    [
        (reassign.NAME, ["move replicas"], ["move replicas"], None, True),
        (drain.NAME, ["mark brokers", "move leaders", "move replicas"], ["mark brokers"], 2, True),
        (throttle.NAME, ["set rates", "confirm on brokers", "in force"], ["set rates"], None, False),
        (elect.NAME, ["elect leaders"], [], None, True),
        (restart.NAME, ["restart brokers"], [], None, True),
    ],
)
def test_a_kind_undoes_the_steps_that_left_something_behind_and_keeps_the_locks_that_it_needs_between_steps(
    kind: str, steps: list[str], undone: list[str], no_return: int | None, keeps_locks: bool
) -> None:
    found = NAMES[kind]
    assert [step.name for step in found.steps] == steps
    assert [step.name for step in found.steps if step.undo is not None] == undone
    assert (found.no_return, found.holds_locks) == (no_return, keeps_locks)


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
