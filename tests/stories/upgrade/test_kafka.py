"""Procedures of Kafka's controller that an earlier revision began are carried on, from each write where it may die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
import pytest

from controller.kafka.procedures import drain as drains
from controller.kafka.procedures import elect as elects
from controller.kafka.procedures import reassign as plans
from controller.kafka.procedures import restart as restarts
from controller.kafka.procedures import throttle as throttles
from controller.kafka.term.procedures import KINDS
from controller.operator.pauses import PauseView
from controller.role import own_znodes as own
from metadata_store.nodes.cordon_node import Cordons, read_cordons
from state_machines.decisions import drain as decision
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kills import test_drain as drain
from tests.kills import test_elect as elect
from tests.kills import test_reassign_plan as reassign
from tests.kills import test_restart as restart
from tests.kills import test_throttle as throttle
from tests.kit.command import items
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka import recorded_calls as calls
from tests.kit.kafka.calls import carried
from tests.kit.kafka.plans import finished
from tests.kit.kafka.reassignments import propagated, remembered
from tests.kit.kafka.world import KafkaWorld, world
from tests.stories.upgrade.golden import SOME, Moment, check_journal, check_record, check_steps, recording, records_in
from tests.stories.upgrade.recording.moments import plain
from tests.stories.upgrade.znodes import owners, restore

RECORDED: Final = recording("kafka")
STANDING: Final = RECORDED.cases["standing"]
CASES: Final = {name: case for name, case in RECORDED.cases.items() if case is not STANDING}
RECORDS: Final = records_in(CASES.values(), own.PROCEDURES)
MESSAGES: Final[dict[str, Callable[[Record], bytes]]] = {
    plans.NAME: lambda record: plans.encode_plan(plans.plan_of(record)),
    drains.NAME: lambda record: drains.encode_drain(drains.drain_of(record)),
    elects.NAME: lambda record: elects.encode_election(elects.election_of(record)),
    restarts.NAME: lambda record: restarts.encode_restart(restarts.restart_of(record)),
    throttles.NAME: lambda record: throttles.encode_order(throttles.order_of(record.data)),
}
"""Reads and writes the message of each kind with steps."""
ROUNDS_MAX: Final = 40
BACK: Final = ", taken back"

Turn = Callable[[KafkaWorld], Awaitable[Any]]
"""Does what clients and brokers do; returns what is left once the procedure has ended, else None."""


def in_turns(
    turned: Callable[[KafkaWorld], Awaitable[Record | None]], left: Callable[[KafkaWorld, Record], Awaitable[Any]]
) -> Turn:
    """Repeats what clients and brokers do until the record has ended."""

    async def turn(w: KafkaWorld) -> Any:
        record = await turned(w)
        return None if record is None else await left(w, record)

    return turn


def turn_of(name: str) -> Turn:
    """Returns what goes on in a case, as the kill tests have it."""
    kind, _, what = name.removesuffix(BACK).partition(" ")
    abort = name.endswith(BACK)
    match kind:
        case "reassign":
            return in_turns(lambda w: reassign.turned(w, abort=abort), reassign.left)
        case "drain":
            wanted = drain.CLEAN[what.removeprefix("of ")][0]
            return in_turns(lambda w: drain.turned(w, wanted, abort=abort), drain.left)
        case "throttle":
            return in_turns(throttle.ending(abort=abort).turned, throttle.left)
        case "restart":
            return in_turns(restart.restarting(abort=abort).turned, restart.left)
        case "elect":
            return in_turns(elect.election(elect.CLEAN[what][0], abort=abort).turned, elect.left)
    return called(next(call for call in calls.CALLS if call.kind.value == what))


def called(call: calls.Call) -> Turn:
    """Returns a client that repeats its call."""

    async def turn(w: KafkaWorld) -> Any:
        await carried(w, call.body, attempt=1, **calls.ALICE)
        await w.propagated()
        return calls.effect(w), [[one.kind, int(one.state), one.result.decode()] for one in calls.stored(w).values()]

    return turn


def as_recorded(name: str) -> ExitStack:
    """Patches the sizes of waves, and what they wait for, as the recording did."""
    stack, abort = ExitStack(), name.endswith(BACK)
    stack.enter_context(mock.patch.object(decision, "WAVE_MAX", 1 if abort else 3))
    if abort and name.startswith("drain"):
        of_leaders = name.startswith("drain of leaders")
        waits = mock.patch.object(drains, "brokers_are_behind", lambda env, _: of_leaders and drain.moved(env) >= 2)
        stack.enter_context(waits)
    if abort and name.startswith("elect"):
        stack.enter_context(mock.patch.object(elects, "brokers_are_behind", lambda env, _: elect.elected(env) >= 2))
    return stack


class Wall:
    """The wall clock of a moment, which goes on with the loop's."""

    def __init__(self, wall_ms: int) -> None:
        self._since_ns = wall_ms * 1_000_000 - int(1e9 * asyncio.get_running_loop().time())

    def time_ns(self) -> int:
        return self._since_ns + int(1e9 * asyncio.get_running_loop().time())


@asynccontextmanager
async def carried_on(moment: Moment, **settings: Any) -> AsyncIterator[KafkaWorld]:
    """Begins a term on what the killed daemon left, with the brokers that lived; judges both journals in the end."""
    alive = sorted(int(one.removeprefix("broker ")) for one in owners(moment.store) if one.startswith("broker "))
    async with world(*alive, **settings) as w:
        restore(w.server, moment.store, {f"broker {broker}": zk.session_id for broker, zk in w.brokers.items()})
        w.knows = {broker: {} for broker in moment.around["knows"]}
        with mock.patch("controller.process.clock.time_ns", Wall(moment.around["wall_ms"]).time_ns):
            await w.begin_term()
            assert not w.term.procedures.engine.unusable
            yield w
        check_journal(moment.journal, w.book.entries)


def test_each_step_of_each_kind_was_recorded_and_steps_keep_their_numbers() -> None:
    check_steps(RECORDED.kinds, KINDS)
    live = {(record.kind, record.step) for record, _ in RECORDS if not record.state.is_final}
    assert live == {(kind, number) for kind, steps in RECORDED.kinds.items() for number in range(len(steps))}
    assert {record.kind for record, _ in RECORDS} == RECORDED.kinds.keys()


def test_records_are_written_as_they_were() -> None:
    for record, data in RECORDS:
        check_record(record, data)
        if (message := MESSAGES.get(record.kind)) is not None:
            assert message(record) == record.data


@pytest.mark.parametrize("name", CASES)
@in_exact_time
async def test_a_procedure_that_an_earlier_revision_began_ends_as_its_own(name: str) -> None:
    await end_alike(name, CASES[name].moments[::SOME])


async def end_alike(name: str, moments: Iterable[Moment]) -> None:
    """Carries some moments of a case on, each to the end of the recorded run."""
    for moment in moments:
        turn = turn_of(name)
        with as_recorded(name):
            async with carried_on(moment, auto_leader_rebalance_enable=name.startswith(("reassign", "call"))) as w:
                left = None
                for _ in range(ROUNDS_MAX):
                    if (left := await turn(w)) is not None:
                        break
        assert reworded(plain(left)) == reworded(CASES[name].end), moment.when


def reworded(end: Any) -> Any:
    """Returns an end in the present words for a lifted throttle."""
    state, result, *others = end
    return [state, result.replace("is being lifted", "was lifted") if isinstance(result, str) else result, *others]


@in_exact_time
async def test_what_operators_left_standing_is_obeyed_and_can_be_ended() -> None:
    """A pause, a cordon, a plan that is paused and held, and a replica to be removed from a broker that was down."""
    async with carried_on(STANDING.moments[-1]) as w:
        engine, pid = w.term.procedures.engine, STANDING.end
        cordons = await read_cordons(w.operator)
        assert isinstance(cordons, Cordons)
        assert (set(w.term.cluster.cordoned), cordons.brokers[3].reason) == ({3}, "disk")
        assert w.term.controller.pauses.in_force is not None
        assert (await PauseView(lambda: w.term).shown()).reason == "a fair"
        assert plans.plan_of(engine.records[pid]).paused
        assert list(remembered(w)) == ["1-s"]
        await w.boot(1)
        await propagated(w)
        assert (w.wires.deleted(1), remembered(w)) == ([("s", 0)], {})
        await PauseView(lambda: w.term).resume()
        await engine.command(pid, msgspec.json.encode(plans.PlanCommand(paused=False)))
        assert (await finished(w, pid)).state is State.SUCCESS
        assert w.assignments()["t"] == {0: (2, 4), 1: (2, 4)}


def test_the_command_events_shows_each_row_of_an_earlier_revision(tmp_path: Path) -> None:
    journal = CASES["reassign"].moments[-1].journal
    (tmp_path / f"{1:010d}-{1:012d}.jsonl").write_text("".join(f"{line}\n" for line in journal))
    shown = items("events", "show", "--directory", tmp_path)
    assert [(row["ctl_epoch"], row["seq"], row["kind"]) for row in shown] == [
        (row["ctl_epoch"], row["seq"], row["kind"]) for row in map(json.loads, journal)
    ]
