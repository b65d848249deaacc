"""A throttle that is set, confirmed and lifted, or aborted, with the daemon killed before and after each write."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from controller.kafka.procedures import throttle as kind
from controller.kafka.procedures.throttle import NAME, ThrottleOrder, encode_order
from metadata_store import paths
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kills.tally import RecordProperty, tally
from tests.kills.terms import Play, equals_the_clean_run, played, twice
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.plans import RATES, config
from tests.kit.kafka.reassignments import propagated
from tests.kit.kafka.world import KafkaWorld

OPS = Caller(principal="User:ops", nonce="one")
ORDER = ThrottleOrder((1, 2, 9), 5_000, ("t",))
FORMER = {"follower.replication.throttled.rate": "77", "max.connections": "5"}
SENTENCE = "brokers [1, 2, 9] at 5000 bytes/s; all replicas of topics ['t']; 2 of 3 brokers confirmed it"


class End(NamedTuple):
    """What is left: state and result, configurations of the brokers and the topic, brokers that confirmed it."""

    state: State
    result: str
    configs: list[dict[str, str]]


async def begin(w: KafkaWorld) -> None:
    """Broker 9 is down, and hosts a replica; broker 1 has a throttle of somebody else."""
    await w.topic("t", (1, 2), (2, 9), leaders=True)
    await w.operator.create(paths.config("brokers", "1"), b'{"version":1,"config":%s}' % encoded(FORMER))
    w.knows = {1: {}, 2: {}}
    await w.begin_term()
    await propagated(w)
    w.forget()


def encoded(entries: dict[str, str]) -> bytes:
    return ("{" + ",".join(f'"{name}":"{value}"' for name, value in entries.items()) + "}").encode()


def ending(*, abort: bool) -> Play:
    """A client sets the throttle, waits until it is confirmed and in force, and ends it."""

    async def turned(w: KafkaWorld) -> Record | None:
        engine = w.term.procedures.engine
        pid = await engine.submit(NAME, encode_order(ORDER), OPS)
        await w.settle()
        record = engine.records[pid]
        if record.step == kind.IN_FORCE and not record.state.is_final and not record.aborted:
            assert [config(w, "brokers", b).get(RATES[0]) for b in "129"] == ["5000"] * 3
            await (engine.abort(pid) if abort else engine.command(pid, kind.LIFT))
        await asyncio.sleep(2)
        await w.settle()
        record = engine.records[pid]
        return record if record.state.is_final else None

    return Play((1, 2, 3), begin, turned)


async def left(w: KafkaWorld, record: Record) -> End:
    names = [("brokers", "1"), ("brokers", "2"), ("brokers", "9"), ("topics", "t")]
    return End(record.state, record.result.decode(), [config(w, *name) for name in names])


LIFTED = End(State.SUCCESS, f"{SENTENCE}; it was lifted", [FORMER, {}, {}, {}])
ABORTED = End(State.ROLLEDBACK, "", [FORMER, {}, {}, {}])


@pytest.mark.parametrize(("abort", "clean"), [(False, LIFTED), (True, ABORTED)], ids=["lifted", "aborted"])
@in_exact_time
async def test_a_throttle_whose_daemon_is_killed_at_any_write_restores_what_stood_there(
    abort: bool, clean: End, record_property: RecordProperty
) -> None:
    deaths = await equals_the_clean_run(ending(abort=abort), left, clean, writes_min=8)
    tally(record_property, "throttle", "zookeeper", deaths)


@pytest.mark.parametrize(("abort", "clean"), [(False, LIFTED), (True, ABORTED)], ids=["lifted", "aborted"])
@in_exact_time
async def test_a_throttle_whose_steps_each_run_twice_ends_as_the_clean_run(
    abort: bool, clean: End, record_property: RecordProperty
) -> None:
    tally(record_property, "throttle", "zookeeper", 0, doubled=1)
    with twice(kind.THROTTLE, without=(1,)):
        found, _ = await played(ending(abort=abort), left)
    assert found == clean
