"""Plays a procedure of a term to its end, with the daemon killed at one write of any kind, and a new one after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple, TypeVar
from unittest import mock

from brokers.listener.controller_listener import NotController
from controller.kafka.procedures.environment import KafkaEnv
from controller.kafka.term.procedures import KINDS
from controller.procedures.kinds import Effect, Execute, Kind
from controller.procedures.requests import ProcedureRefused
from metadata_store.port import Kill
from state_machines.procedures.outcome import Outcome
from state_machines.procedures.record import Record
from tests.kit.kafka.world import KafkaWorld, world

BEYOND: Final = 10_000
"""A write that no run reaches: nothing is killed."""
ROUNDS_MAX: Final = 40
SIDES: Final = ("before", "after")

End = TypeVar("End")


class Play(NamedTuple):
    """A scenario: prepares the cluster and begins a term, then repeats what a client does until a record has ended.

    ``turned``: the record once it has ended, else None. ``left``: what is left, for the comparison with the clean run.
    """

    brokers: Sequence[int]
    begin: Callable[[KafkaWorld], Awaitable[None]]
    turned: Callable[[KafkaWorld], Awaitable[Record | None]]


async def played(
    play: Play, left: Callable[[KafkaWorld, Record], Awaitable[End]], number: int = BEYOND, when: str = "before"
) -> tuple[End, int]:
    """Plays with a death at a write; returns what is left, and the number of writes of the first daemon."""
    async with world(*play.brokers, auto_leader_rebalance_enable=False) as w:
        await play.begin(w)
        first = w.active
        first.script.kill_at(number, when)
        for _ in range(ROUNDS_MAX):
            if first is w.active and (first.running is None or first.running.done() or w.term.gate.ended):
                await first.crash()
                await w.begin_term()
            try:
                record = await play.turned(w)
            except (Kill, NotController, ProcedureRefused):
                continue
            if record is not None:
                return await left(w, record), len(first.script.writes)
        raise AssertionError(f"killed {when} write {number}: the procedure does not end")


async def equals_the_clean_run(
    play: Play, left: Callable[[KafkaWorld, Record], Awaitable[End]], clean: End, writes_min: int
) -> int:
    """Checks the clean run's end, and that every run with a death at one of its writes ends the same.

    Returns the number of deaths.
    """
    found, writes = await played(play, left)
    assert found == clean
    assert writes >= writes_min
    for number in range(1, writes + 1):
        for when in SIDES:
            again, _ = await played(play, left, number, when)
            assert again == clean, f"killed {when} write {number}"
    return len(SIDES) * writes


def twice(kind: Kind[KafkaEnv], without: Collection[int] = ()) -> mock._patch[tuple[Kind[KafkaEnv], ...]]:
    """Patches the kinds of a term so that each step of one, and each undo, runs twice.

    ``without``: steps of a broadcast: the second run would wait for responses that the first has taken from memory.
    """
    steps = tuple(
        step
        if number in without
        else step._replace(execute=_doubled(step.execute), undo=_doubled(step.undo) if step.undo else None)
        for number, step in enumerate(kind.steps)
    )
    kinds = tuple(one if one.name != kind.name else kind._replace(steps=steps) for one in KINDS)
    return mock.patch("controller.kafka.term.procedures.KINDS", kinds)


def _doubled(step: Execute[KafkaEnv]) -> Execute[KafkaEnv]:
    """Executes a step twice with the same record, as after a crash before its write."""

    async def executed(env: KafkaEnv, record: Record) -> Outcome | Effect:
        await step(env, record)
        return await step(env, record)

    return executed
