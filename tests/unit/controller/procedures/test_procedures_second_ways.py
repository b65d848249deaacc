"""The second of two ways: the second child, lock or entity; and waits for locks that end at once."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from controller.procedures.kinds import Kind, Step
from state_machines.procedures.locks import CLUSTER, Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Outcome, Retry
from state_machines.procedures.record import Record, child
from state_machines.procedures.scheduler import Scheduler
from state_machines.procedures.states import State
from testing.memory.region_store import MemoryRecords
from tests.contracts.records import record
from tests.kills.harness import Notes, arrives, last, noting, part, pauses, spreads, step, topic
from tests.unit.controller.procedures.test_procedures_engine import NOBODY, Host, ended, state, submitted

T, U, V = (Resource(Scope.TOPIC, name) for name in "tuv")
SERVER, TABLE = Resource(Scope.SERVER, "s"), Resource(Scope.TABLE, "x", "a")


# -- children and their locks

FAMILIES = {
    "exclusive, after a shared one": (Demand(T, False), Demand(T, False), Demand(T, True)),
    "a part, after a whole one": (Demand(T, False, (), (Demand(U, False),)), Demand(T, False), Demand(T, False, (1,))),
    "another part": (Demand(T, False, (1,)), Demand(T, False, (1,)), Demand(T, False, (2,))),
    "a further entity": (Demand(U, False), Demand(V, False), Demand(V, False, (), (Demand(T, False),))),
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_second_child_that_could_end_in_a_deadlock_fails_the_step_although_the_first_is_sound(
    family: str,
) -> None:
    held, sound, bad = FAMILIES[family]
    demands = {b"held": held, b"sound": sound, b"bad": bad}

    def both(_: Notes, one: Record) -> Outcome:
        return Children((child("part", b"sound"), child("part", b"bad")), 1, one.data)

    kinds = (
        Kind("root", (step(both), step(last)), lambda one: demands[one.data], holds_locks=True),
        Kind("part", (step(last),), lambda one: demands[one.data]),
    )
    daemon = await Host(*kinds).daemon()
    found = await ended(daemon, await submitted(daemon, "root", b"held"))
    assert found.state is State.ROLLEDBACK
    assert "its child cannot run: pid 3 demands" in found.error


@pytest.mark.parametrize(
    ("grandparent", "expected"), [(U, State.ROLLEDBACK), (V, State.ROLLEDBACK), (T, State.SUCCESS)]
)
async def test_a_child_comes_after_the_locks_that_are_held_above_it_and_not_after_those_of_one_step(
    grandparent: Resource, expected: State
) -> None:
    """The parent has its lock for its step alone; the grandparent has its own until all have ended."""
    kinds = (
        Kind("root", (step(spreads("middle", 1)), step(last)), lambda _: Demand(grandparent, False), holds_locks=True),
        Kind("middle", (step(spreads("part", 1)), step(last)), lambda _: Demand(V, True)),
        Kind("part", (step(last),), lambda _: Demand(U, True)),
    )
    if grandparent is V:
        kinds = (*kinds[:1], kinds[1]._replace(demand=lambda _: Demand(Resource(Scope.TOPIC, "w"), True)), kinds[2])
    daemon = await Host(*kinds).daemon()
    assert (await ended(daemon, await submitted(daemon, "root"))).state is expected


async def test_of_two_families_that_hold_one_lock_the_second_is_named_as_a_whole_and_the_others_go_on() -> None:
    host = Host(
        Kind("root", (step(spreads("part", 1)), step(last)), topic, holds_locks=True),
        Kind("part", (step(arrives), step(last)), topic),
    )
    parts = [(1, 2, b"t"), (3, 4, b"t"), (5, 6, b"u")]
    stored: list[Record] = []
    for root, lower, name in parts:
        parent = replace(record(root, step=1, data=name), kind="root", state=State.WAITING, done=(0,), locked=True)
        stored.append(replace(parent, born=(lower,)))
        below = replace(record(lower, step=0, data=name + b"/0"), kind="part", state=State.RUNNABLE)
        stored.append(replace(below, parent=root, ancestors=(root,)))
    await MemoryRecords(host.disk).write(stored)
    kept = {pid: host.disk.bodies[pid] for pid in (3, 4)}
    host.notes.arrived = True
    daemon = await host.daemon()
    assert sorted(daemon.engine.unusable) == [3, 4]
    assert "pid 3 held a lock on topic t that another record holds, too" in daemon.engine.unusable[4]
    await daemon.until(lambda: all(state(daemon, pid) is State.SUCCESS for pid in (1, 5)))
    assert {pid: host.disk.bodies[pid] for pid in (3, 4)} == kept
    assert await daemon.run(daemon.engine.remove(3)) == [3, 4]


async def test_a_new_child_waits_for_a_lock_that_another_family_has_still() -> None:
    """The other one has failed beside it, and its undo was not stored: both are sound, and both go on."""
    host = Host(
        Kind("root", (step(spreads("part", 1)), step(last)), lambda _: Demand(T, False), holds_locks=True),
        Kind("part", (step(last),), lambda _: Demand(T, False, (8,))),
        Kind("failing", (step(last),), lambda _: Demand(T, False, (8,)), holds_locks=True),
    )
    root = replace(record(1, step=1), kind="root", state=State.WAITING, done=(0,), locked=True, born=(2,))
    born = replace(record(2, step=0), kind="part", state=State.RUNNABLE, done=(), locked=True)
    below = replace(born, parent=1, ancestors=(1,))
    failed = replace(record(3, step=0), kind="failing", state=State.FAILED, done=(0,), locked=True)
    await MemoryRecords(host.disk).write([root, below, failed])
    daemon = await host.daemon()
    assert daemon.engine.unusable == {}
    await daemon.until(lambda: state(daemon, 1) is State.SUCCESS)
    assert state(daemon, 3) is State.ROLLEDBACK


@pytest.mark.parametrize("parts", [(8,), (7, 8)], ids=["one part", "two parts"])
def test_a_part_stays_with_the_parent_that_locked_it_where_its_child_ends(parts: tuple[int, ...]) -> None:
    s = Scheduler()
    parent, part = s.entry(1, Demand(T, False, parts)), s.enter(2, Demand(T, False, parts), (1,))
    s.add_back(parent)
    assert s.poll() is parent
    s.add_back(part)
    assert s.poll() is part
    s.release(part)
    s.drop(part)
    other = s.entry(3, Demand(T, False, (8,)))
    s.add_back(other)
    assert s.poll() is None, "the parent holds it"
    assert s.hold_parts((9, 1))
    s.release(parent)
    assert s.poll() is other


def test_a_lock_that_was_an_ancestors_and_then_its_own_is_free_after_it() -> None:
    s = Scheduler()
    parent, part = s.entry(1, Demand(T, True)), s.enter(2, Demand(T, True), (1,))
    s.add_back(parent)
    assert s.poll() is parent
    s.add_back(part)
    assert s.poll() is part
    s.release(part)
    s.release(parent)
    s.add_back(part)
    assert s.poll() is part
    s.release(part)
    other = s.entry(3, Demand(T, True))
    s.add_back(other)
    assert s.poll() is other


def test_a_namespace_waits_for_a_table_that_is_the_second_lock_of_a_procedure() -> None:
    s = Scheduler()
    move = s.entry(1, Demand(SERVER, False, (), (Demand(TABLE, False, (1,)),)))
    s.add_back(move)
    assert s.poll() is move
    assert s.hold_parts((1,))
    above = s.entry(2, Demand(Resource(Scope.NAMESPACE, "a"), True))
    s.add_back(above)
    assert s.poll() is None
    s.release(move)
    assert s.poll() is above


def test_woken_procedures_come_in_their_order_and_before_the_others_whether_they_hold_a_lock_or_not() -> None:
    s = Scheduler()
    kept = [s.entry(pid, Demand(U, False)) for pid in (1, 2, 3)]
    for one in kept:
        s.add_back(one)
    assert [s.poll() for _ in kept] == kept
    queued = [s.entry(pid, Demand(T, False)) for pid in (4, 5, 6)]
    s.add_back(queued[0])
    s.add_front(queued[1:])
    s.add_back(kept[0])
    s.add_front(kept[1:])
    assert [s.poll() for _ in range(6)] == [*kept[1:], kept[0], *queued[1:], queued[0]]


# -- times


async def test_a_child_has_a_time_of_its_own_to_end() -> None:
    def in_time(_: Notes, one: Record) -> Outcome:
        return Children((child("part", b"u", expires_ms=one.updated_ms + 5_000),), 1, one.data)

    host = Host(Kind("root", (step(in_time), step(last)), topic), Kind("part", (step(arrives), step(last)), topic))
    daemon = await host.daemon()
    found = await ended(daemon, await submitted(daemon, "root"))
    assert (found.state, found.error) == (State.ROLLEDBACK, "timed out")


async def test_a_wait_that_ends_before_the_time_is_over_ends_at_its_own() -> None:
    host = Host(Kind("root", (step(pauses), step(last)), topic))
    daemon = await host.daemon()
    began_ms = host.clock.ms
    pid = await daemon.run(daemon.engine.submit("root", b"t", NOBODY, expires_ms=began_ms + 500_000))
    assert (await ended(daemon, pid)).state is State.SUCCESS
    assert host.clock.ms - began_ms <= 12_000


async def test_the_undo_of_what_timed_out_pauses_between_its_tries() -> None:
    async def takes_back(notes: Notes, one: Record) -> Outcome:
        notes.runs["undo", b"", 0] += 1
        return Retry("a broker is away") if one.attempts < 4 else Done()

    host = Host(Kind("root", (Step("step", noting(arrives), takes_back), step(last)), topic))
    daemon = await host.daemon()
    began_ms = host.clock.ms
    pid = await daemon.run(daemon.engine.submit("root", b"t", NOBODY, expires_ms=began_ms + 2_000))
    assert (await ended(daemon, pid)).state is State.ROLLEDBACK
    assert host.notes.runs["undo", b"", 0] == 5
    assert host.clock.ms - began_ms >= 2_000 + 1_000 + 2_000 + 4_000 + 8_000


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
