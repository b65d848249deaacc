"""A rolling restart, to its end and aborted, with the daemon killed before and after each write."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from controller.kafka.procedures import restart as kind
from state_machines.decisions.restarts import RollingRestart
from state_machines.model.min_isr import MinIsr
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kills.terms import Play, equals_the_clean_run
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.plans import begun, in_sync
from tests.kit.kafka.reassignments import propagated
from tests.kit.kafka.world import KafkaWorld

OPS = Caller(principal="User:ops", nonce="one")


class End(NamedTuple):
    """What is left: state, result, and how many brokers have another epoch than at the begin."""

    state: State
    result: str
    restarted: int


def restarting(*, abort: bool = False) -> Play:
    """A person restarts each broker that the procedure names; aborts it after the first where that is wanted."""

    async def turned(w: KafkaWorld) -> Record | None:
        w.term.cluster.min_isr = MinIsr(2, {})
        engine = w.term.procedures.engine
        first = tuple((broker, w.broker_epoch(broker)) for broker in (1, 2, 3))
        pid = await engine.submit(kind.NAME, kind.encode_restart(RollingRestart(first)), OPS)
        await w.settle()
        await asyncio.sleep(3)
        await w.settle()
        record = engine.records[pid]
        if record.state.is_final:
            return record
        restart = kind.restart_of(record)
        epochs = dict(restart.since)
        done = [broker for broker in epochs if w.broker_epoch(broker) != epochs[broker]]
        if abort and done and not record.aborted:
            await engine.abort(pid)
            await w.settle()
            return None
        for broker in restart.batch:
            if w.broker_epoch(broker) == epochs[broker] and not record.aborted:
                await w.bounce(broker)
                await w.settle()
        await in_sync(w)
        await propagated(w)
        return None

    return Play((1, 2, 3), begun, turned)


async def left(w: KafkaWorld, record: Record) -> End:
    epochs = dict(kind.restart_of(record).since)
    restarted = sum(w.broker_epoch(broker) != epoch for broker, epoch in epochs.items())
    return End(record.state, record.result.decode(), restarted)


RESTARTED = End(State.SUCCESS, "all 3 brokers were restarted", 3)
ABORTED = End(State.ROLLEDBACK, "", 1)


@pytest.mark.parametrize(("abort", "clean"), [(False, RESTARTED), (True, ABORTED)], ids=["to its end", "aborted"])
@in_exact_time
async def test_a_restart_whose_daemon_is_killed_at_any_write_restarts_each_broker_once(abort: bool, clean: End) -> None:
    await equals_the_clean_run(restarting(abort=abort), left, clean, writes_min=3)
