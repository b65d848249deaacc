"""An election of many partitions, to its end and aborted, with the daemon killed before and after each write."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from unittest import mock

import pytest

from controller.kafka.procedures import elect as kind
from controller.kafka.procedures.environment import KafkaEnv
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.mass_election import MassElection
from state_machines.machines.selectors import PREFERRED_DOWN
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kills.terms import Play, equals_the_clean_run, played, twice
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.reassignments import propagated
from tests.kit.kafka.world import KafkaWorld

OPS = Caller(principal="User:ops", nonce="one")
PREFERRED = MassElection(ElectionType.PREFERRED, batch_max=2)
UNCLEAN = MassElection(ElectionType.UNCLEAN, (("u", 0), ("t", 0)))


class End(NamedTuple):
    """What is left: state and result, the leaders of t and of u."""

    state: State
    result: str
    leaders: list[int]


async def begin(w: KafkaWorld) -> None:
    """Broker 2 leads t, which prefers broker 1; broker 3, the only one in the ISR of u, is down."""
    await w.topic("t", *[(1, 2)] * 4, (2, 1), leaders=True)
    await w.topic("u", (3, 1), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    await w.boot(1)
    await w.settle()
    for number in range(5):
        await w.alter_partition(2, w.proposal("t", number, isr=(2, 1)))
    w.die(3)
    await w.settle()
    await propagated(w)
    w.forget()


def leaders(w: KafkaWorld) -> list[int]:
    return [state.leader for _, state in sorted(w.states.items())]


def election(wanted: MassElection, *, abort: bool = False) -> Play:
    """A client submits the election, aborts it after its first wave where that is wanted, and waits."""

    async def turned(w: KafkaWorld) -> Record | None:
        engine = w.term.procedures.engine
        pid = await engine.submit(kind.NAME, kind.encode_election(wanted), OPS)
        await w.settle()
        record = engine.records[pid]
        if abort and not record.state.is_final and not record.aborted and leaders(w).count(1) >= 2:
            await engine.abort(pid)
        await propagated(w)
        await asyncio.sleep(2)
        await w.settle()
        record = engine.records[pid]
        return record if record.state.is_final else None

    return Play((1, 2, 3), begin, turned)


async def left(w: KafkaWorld, record: Record) -> End:
    w.agreed()
    return End(record.state, record.result.decode(), leaders(w))


CLEAN = {
    "preferred": (
        PREFERRED,
        f"4 elected; 1 led by the preferred replica already; 1 refused (u-0): {PREFERRED_DOWN}",
        [1, 1, 1, 1, 2, -1],
    ),
    "unclean": (UNCLEAN, "1 elected; 1 led already; 1 may have lost records (u-0)", [2, 2, 2, 2, 2, 1]),
}


@pytest.mark.parametrize("what", CLEAN)
@in_exact_time
async def test_an_election_whose_daemon_is_killed_at_any_write_ends_as_the_clean_run(what: str) -> None:
    wanted, result, found = CLEAN[what]
    await equals_the_clean_run(election(wanted), left, End(State.SUCCESS, result, found), writes_min=5)


@in_exact_time
async def test_an_election_that_is_aborted_and_killed_at_any_write_keeps_the_leaders_of_its_waves() -> None:
    behind = mock.patch.object(kind, "brokers_are_behind", lambda env, _: elected(env) >= 2)
    with behind:
        clean = End(State.ROLLEDBACK, "", [1, 1, 2, 2, 2, -1])
        await equals_the_clean_run(election(PREFERRED, abort=True), left, clean, writes_min=4)


def elected(env: KafkaEnv) -> int:
    cluster = env.controller.cluster
    return sum(cluster.rows[i].leader == 1 for i in cluster.hosted(1))


@pytest.mark.parametrize("what", CLEAN)
@in_exact_time
async def test_an_election_whose_step_runs_twice_ends_as_the_clean_run(what: str) -> None:
    wanted, result, found = CLEAN[what]
    with twice(kind.ELECT):
        end, _ = await played(election(wanted), left)
    assert end == End(State.SUCCESS, result, found)
