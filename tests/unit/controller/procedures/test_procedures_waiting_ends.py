"""A procedure that waits for a lock ends at once where an operator bypasses it; others have their turns as before."""

from __future__ import annotations

import asyncio

import pytest

from controller.procedures.kinds import Kind
from state_machines.procedures.demand import CLUSTER, Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Outcome, Retry
from state_machines.procedures.record import Record, child
from state_machines.procedures.states import State
from tests.kills.kinds import Notes, arrives, last, part, step, topic
from tests.unit.controller.procedures.test_procedures_engine import Host, ended, submitted


def cluster(_: Record) -> Demand:
    return Demand(CLUSTER, exclusive=True)


def both(record: Record) -> Demand:
    """Demands a topic, and a second entity besides."""
    also = Demand(Resource(Scope.TOPIC, "other"), exclusive=True)
    return topic(record)._replace(also=(also,))


def spreads_one(_: Notes, record: Record) -> Outcome:
    return Children((child("part", record.data),), record.step + 1, record.data)


def tries(_: Notes, __: Record) -> Outcome:
    return Retry("a broker is away")


HOLDER = Kind("holder", (step(arrives), step(last)), topic, holds_locks=True)
OF_CLUSTER = Kind("cluster", (step(last),), cluster, holds_locks=True)
WAITERS = {
    "first in its queue": (Kind("waiter", (step(last),), topic, holds_locks=True), b"t"),
    "for a shared lock": (Kind("waiter", (step(last),), part, holds_locks=True), b"1"),
    "for a second entity": (Kind("waiter", (step(last),), both, holds_locks=True), b"free"),
    "for the cluster": (OF_CLUSTER._replace(name="waiter"), b"t"),
    "step by step": (Kind("waiter", (step(last),), topic), b"t"),
}
OTHER = Kind("other", (step(last),), topic)


def host_with(waiter: Kind[Notes]) -> Host:
    return Host(HOLDER, OF_CLUSTER, waiter, OTHER)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", WAITERS)
async def test_a_bypass_ends_what_waits_for_a_lock(how: str, restarts: bool) -> None:
    waiter, data = WAITERS[how]
    host = host_with(waiter)
    daemon = await host.daemon()
    holder = await submitted(daemon, "holder", b"other" if how == "for a second entity" else b"t")
    await daemon.until(lambda: daemon.engine.records[holder].locked)
    pids = [await submitted(daemon, "waiter", data) for _ in range(2)]
    await daemon.engine.turn()
    if restarts:
        daemon = await host.daemon()
        await daemon.engine.turn()
    assert await daemon.run(daemon.engine.bypass(pids[0]))
    await daemon.until(lambda: daemon.engine.records[pids[0]].state is State.SUCCESS)
    assert (daemon.engine.records[holder].state.is_final, host.notes.runs["waiter", data, 0]) == (False, 0)
    host.notes.arrived = True
    daemon.engine.wake(holder)
    for pid in (holder, pids[1], await submitted(daemon, "other"), await submitted(daemon, "cluster", b"u")):
        assert (await ended(daemon, pid)).state is State.SUCCESS
    assert host.notes.runs["waiter", data, 0] == 1, "the other one had its turn"
    assert not daemon.engine.locks()


async def test_who_waits_behind_a_wish_for_the_cluster_goes_on_once_that_is_ended() -> None:
    host = host_with(OTHER._replace(name="waiter"))
    daemon = await host.daemon()
    holder = await submitted(daemon, "holder")
    await daemon.until(lambda: daemon.engine.records[holder].locked)
    wish = await submitted(daemon, "cluster")
    behind = await submitted(daemon, "other", b"elsewhere")
    for _ in range(5):
        await daemon.engine.turn()
    assert not daemon.engine.records[behind].state.is_final, "the cluster's turn comes first"
    assert await daemon.run(daemon.engine.bypass(wish))
    assert (await ended(daemon, behind)).state is State.SUCCESS


@pytest.mark.parametrize("twice", [False, True])
async def test_a_child_that_waits_for_a_lock_ends_with_its_parent(twice: bool) -> None:
    """It is given out once, also where a second request comes before it has ended."""
    spreading = Kind(
        "spreading", (step(spreads_one), step(last)), lambda _: topic(Record(0, "", State.RUNNABLE, 0, 0, 0))
    )
    parts = Kind("part", (step(last),), topic, holds_locks=True)
    host = Host(HOLDER, spreading, parts)
    daemon = await host.daemon()
    holder = await submitted(daemon, "holder")
    await daemon.until(lambda: daemon.engine.records[holder].locked)
    parent = await submitted(daemon, "spreading")
    await daemon.until(lambda: daemon.engine.records[parent].state is State.WAITING)
    [born] = daemon.engine.records[parent].born
    if twice:
        first = asyncio.ensure_future(daemon.engine.bypass(born))
        await asyncio.sleep(0)
        await daemon.engine.turn()
        assert daemon.engine.records[born].bypassed, "it is about to be given out"
        assert not first.done() or first.result()
    assert await daemon.run(daemon.engine.bypass(born))
    record = await ended(daemon, parent)
    assert (record.state, record.bypassed) == (State.SUCCESS, True)
    assert not host.notes.runs["part", b"t", 0]


async def test_what_was_bypassed_while_it_waited_for_a_time_ends_with_the_next_daemon_at_once() -> None:
    waits = Kind("waits", (step(tries),), topic)
    host = Host(waits)
    daemon = await host.daemon()
    pid = await submitted(daemon, "waits")
    await daemon.until(lambda: daemon.engine.records[pid].attempts > 4)
    store = daemon.engine._store
    change = daemon.engine._procedures.bypassed(pid, host.clock.ms)
    assert change is not None
    await store.write(change.puts)
    daemon = await host.daemon()
    began_ms = host.clock.ms
    assert (await ended(daemon, pid)).bypassed
    assert host.clock.ms - began_ms < 1_000
