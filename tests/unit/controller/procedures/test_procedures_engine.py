"""The engine of procedures beyond single steps: callers, locks, waits, faults of kinds, bounds and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from unittest import mock

import pytest

from controller.procedures import engine as engine_module
from controller.procedures import requests, turns
from controller.procedures import writes as pids_module
from controller.procedures.engine import DATA_BYTES_MAX
from controller.procedures.intake import REQUESTS_MAX, Intake
from controller.procedures.kinds import Effect, Kind, Step
from controller.procedures.requests import ProcedureRefused
from controller.procedures.stepping import RAISES_MAX
from controller.procedures.writes import CHANGE_BYTES_MAX, RECORDS_MAX
from metadata_store.records.port import Fenced
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import CLUSTER, Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Caller, Record, child
from state_machines.procedures.states import State
from testing.memory.region_store import Disk, MemoryRecords
from tests.kills.harness import (
    Clock,
    Daemon,
    Notes,
    arrives,
    fails,
    last,
    noting,
    onwards,
    part,
    pauses,
    raises,
    spreads,
    step,
    topic,
)
from tests.kit.deadlines import in_exact_time

OPS = Caller(principal="User:ops", nonce="one")
NOBODY = Caller()


class Host:
    """One disk, the notes of its steps, and the daemons that run on it one after the other."""

    def __init__(self, *kinds: Kind[Notes]) -> None:
        self.kinds = kinds
        self.disk = Disk()
        self.clock = Clock()
        self.notes = Notes()

    async def daemon(self, kinds: Sequence[Kind[Notes]] | None = None) -> Daemon[Notes]:
        found = Daemon(self.notes, self.kinds if kinds is None else kinds, MemoryRecords(self.disk), self.clock)
        await found.engine.load()
        return found


def state(daemon: Daemon[Notes], pid: int) -> State:
    return daemon.engine.records[pid].state


async def ended(daemon: Daemon[Notes], pid: int) -> Record:
    return await daemon.run(daemon.engine.result(pid))


async def submitted(daemon: Daemon[Notes], kind: str, data: bytes = b"t", caller: Caller = NOBODY) -> int:
    return await daemon.run(daemon.engine.submit(kind, data, caller))


# -- callers


@pytest.mark.seed("S2-4")
async def test_a_nonce_starts_one_procedure_also_at_once_and_after_a_failover() -> None:
    host = Host(Kind("root", (step(last),), topic))
    daemon = await host.daemon()
    submit = daemon.engine.submit
    both = await daemon.run(asyncio.gather(submit("root", b"t", OPS), submit("root", b"t", OPS)))
    assert both[0] == both[1]
    await ended(daemon, both[0])
    successor = await host.daemon()
    assert await submitted(successor, "root", caller=OPS) == both[0]
    assert (await ended(successor, both[0])).result == b"made t"
    assert host.notes.runs == {("root", b"t", 0): 1}


async def test_nonces_of_two_principals_never_meet_and_without_a_nonce_each_call_is_another_procedure() -> None:
    daemon = await Host(Kind("root", (step(last),), topic)).daemon()
    other = Caller(principal="User:other", nonce=OPS.nonce)
    pids = [await submitted(daemon, "root", caller=caller) for caller in (OPS, other, NOBODY, NOBODY)]
    assert len(set(pids)) == 4


@pytest.mark.seed("S2-12", "S2-13", "S2-21", "S2-10")
async def test_a_caller_gets_its_response_once_the_record_is_durable() -> None:
    host = Host(Kind("root", (step(arrives), step(last)), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    assert pid in host.disk.bodies


@pytest.mark.seed("S2-31", "S2-32")
async def test_a_result_goes_after_fifteen_minutes_and_after_five_where_it_was_fetched() -> None:
    host = Host(Kind("root", (step(last),), topic))
    daemon = await host.daemon()
    kept, fetched = await submitted(daemon, "root", b"a", OPS), await submitted(daemon, "root", b"b")
    await daemon.until(lambda: all(state(daemon, pid).is_final for pid in (kept, fetched)))
    assert (await ended(daemon, fetched)).result == b"made b"
    host.clock.ms += requests.FETCHED_KEPT_MS
    await daemon.until(lambda: fetched not in daemon.engine.records)
    assert list(host.disk.bodies) == [kept]
    host.clock.ms += requests.KEPT_MS - requests.FETCHED_KEPT_MS
    await daemon.until(lambda: not daemon.engine.records)
    assert not host.disk.bodies
    with pytest.raises(ProcedureRefused, match="it never was, or its result was removed"):
        await daemon.engine.result(kept)
    assert await submitted(daemon, "root", b"a", OPS) > fetched, "its nonce went with the result"


async def test_a_step_of_the_wall_clock_removes_no_result() -> None:
    host, age = Host(Kind("root", (step(last),), topic)), Clock()
    engine = engine_module.Engine(
        host.notes,
        host.kinds,
        MemoryRecords(host.disk),
        wanted=lambda: None,
        now_ms=host.clock.now_ms,
        age_ms=age.now_ms,
    )
    await engine.load()
    call = asyncio.ensure_future(engine.submit("root", b"t", OPS))
    await asyncio.sleep(0)
    await engine.turn()
    pid = await call
    await engine.turn()
    assert engine.records[pid].state.is_final
    host.clock.ms += 24 * requests.KEPT_MS
    await engine.turn()
    assert pid in engine.records
    age.ms += requests.KEPT_MS
    await engine.turn()
    assert pid not in engine.records


@pytest.mark.seed("S2-32")
async def test_the_oldest_results_go_first_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "RESULTS_MAX", 3)
    host = Host(Kind("root", (step(last),), topic))
    daemon = await host.daemon()
    pids = [await submitted(daemon, "root", b"%d" % n) for n in range(5)]
    await daemon.until(lambda: list(daemon.engine.records) == pids[2:])
    assert all(state(daemon, pid).is_final for pid in pids[2:])


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("gone", b"t", r"kind 'gone' is not known to this daemon \(root\)"),
        ("root", b"\xff", r"the message of root cannot be read \(UnicodeDecodeError"),
        ("root", b"x" * (DATA_BYTES_MAX + 1), f"its message has {DATA_BYTES_MAX + 1} bytes, at most {DATA_BYTES_MAX}"),
    ],
)
async def test_a_submission_that_cannot_run_is_refused_and_leaves_nothing(kind: str, data: bytes, why: str) -> None:
    host = Host(Kind("root", (step(last),), topic))
    daemon = await host.daemon()
    with pytest.raises(ProcedureRefused, match=why):
        await submitted(daemon, kind, data, OPS)
    assert not host.disk.bodies
    assert await submitted(daemon, "root", b"t", OPS), "the nonce is free"


async def test_requests_beyond_the_bound_are_refused_and_the_others_are_served() -> None:
    daemon = await Host(Kind("root", (step(last),), topic)).daemon()
    calls = [asyncio.ensure_future(daemon.engine.submit("root", b"t", NOBODY)) for _ in range(REQUESTS_MAX + 1)]
    await daemon.run(asyncio.wait(calls))
    assert sum(call.exception() is None for call in calls) == REQUESTS_MAX
    with pytest.raises(ProcedureRefused, match=f"{REQUESTS_MAX} requests wait: try again"):
        calls[-1].result()


async def test_an_engine_that_closes_refuses_those_that_wait_and_those_that_come() -> None:
    daemon = await Host(Kind("root", (step(arrives), step(last)), topic)).daemon()
    pid = await submitted(daemon, "root")
    waits = [asyncio.ensure_future(daemon.engine.result(pid)), asyncio.ensure_future(daemon.engine.abort(pid))]
    await asyncio.sleep(0)
    daemon.engine.close(RuntimeError("the term ended"))
    for call in (*waits, daemon.engine.submit("root", b"t", NOBODY), daemon.engine.result(pid)):
        with pytest.raises(RuntimeError, match="the term ended"):
            await call


async def test_a_child_has_no_result_of_its_own() -> None:
    kinds = Kind("root", (step(spreads("part", 1)), step(last)), topic), Kind("part", (step(arrives),), topic)
    daemon = await Host(*kinds).daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(daemon.engine.records) == 2)
    with pytest.raises(ProcedureRefused, match=f"pid {pid + 1} is a part of pid {pid}: wait for that one"):
        await daemon.engine.result(pid + 1)


# -- locks and turns


@pytest.mark.seed("S1-57")
async def test_two_procedures_of_one_topic_run_one_after_the_other_and_of_two_topics_side_by_side() -> None:
    trace: list[tuple[bytes, int]] = []

    def traced(notes: Notes, record: Record) -> Outcome:
        trace.append((record.data, record.pid))
        return onwards(notes, record) if record.step < 2 else last(notes, record)

    daemon = await Host(Kind("root", (step(traced),) * 3, topic, holds_locks=True)).daemon()
    calls = [daemon.engine.submit("root", data, NOBODY) for data in (b"t", b"t", b"u")]
    first, second, other = await daemon.run(asyncio.gather(*calls))
    await ended(daemon, second)
    assert [pid for data, pid in trace if data == b"t"] == [first] * 3 + [second] * 3
    assert other in [pid for _, pid in trace[:5]]


@pytest.mark.seed("S1-56")
async def test_a_lock_that_is_held_over_steps_is_held_over_a_restart() -> None:
    host = Host(
        Kind("root", (step(), step(arrives), step(last)), topic, holds_locks=True), Kind("other", (step(last),), topic)
    )
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: daemon.engine.records[pid].state is State.WAITING_TIMEOUT)
    successor = await host.daemon()
    other = await submitted(successor, "other")
    for _ in range(100):
        await successor.engine.turn()
    assert state(successor, other) is State.RUNNABLE
    host.notes.arrived = True
    successor.engine.wake(pid)
    await ended(successor, other)
    assert state(successor, pid) is State.SUCCESS


async def test_a_child_that_would_lock_what_its_parent_locked_before_it_fails_the_parent() -> None:
    def everything(_: Record) -> Demand:
        return Demand(CLUSTER, exclusive=True)

    host = Host(
        Kind("root", (step(), step(spreads("part", 1)), step(last)), topic, holds_locks=True),
        Kind("part", (step(last),), everything),
    )
    daemon = await host.daemon()
    record = await ended(daemon, await submitted(daemon, "root"))
    assert record.state is State.ROLLEDBACK
    assert "its child cannot run: pid 2 demands" in record.error
    assert not host.notes.there


async def test_a_turn_writes_a_bounded_number_of_records_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = await Host(Kind("root", (step(last),), part)).daemon()
    many = RECORDS_MAX + 50
    calls = [asyncio.ensure_future(daemon.engine.submit("root", b"%d" % n, NOBODY)) for n in range(many)]
    await asyncio.sleep(0)
    await daemon.engine.turn()
    assert len(daemon.engine.records) == RECORDS_MAX
    await daemon.run(asyncio.wait(calls))
    await daemon.until(lambda: all(record.state.is_final for record in daemon.engine.records.values()))
    assert len(daemon.engine.records) == many


async def test_a_turn_ends_in_time_although_steps_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S_MAX", 0)
    daemon = await Host(Kind("root", (step(), step(last)), part)).daemon()
    pids = [await submitted(daemon, "root", b"%d" % n) for n in range(3)]
    assert all(state(daemon, pid) is State.RUNNABLE for pid in pids), "no step began: the time was over"
    monkeypatch.undo()
    await ended(daemon, pids[-1])


# -- waits


@pytest.mark.seed("S1-30")
async def test_a_wake_up_before_the_wait_is_durable_is_not_lost() -> None:
    async def racing(notes: Notes, record: Record) -> Outcome:
        notes.runs[record.kind, record.data, record.step] += 1
        if not notes.arrived:
            notes.arrived = True
            daemon.engine.wake(record.pid)
            return Wait(0, record.data)
        return Done()

    host = Host(Kind("root", (Step("racing", racing),), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    assert (await ended(daemon, pid)).state is State.SUCCESS
    assert host.notes.runs["root", b"t", 0] == 2


async def test_a_step_that_failed_once_and_waits_for_an_event_then_does_not_run_on() -> None:
    """The time of its second attempt is stored, and past: a wait that is not stored has a time of its own."""

    async def failing(notes: Notes, record: Record) -> Outcome:
        notes.runs[record.kind, record.data, record.step] += 1
        if not record.attempts:
            return Retry("for now")
        return Done() if notes.arrived else Wait(0, record.data, durable=False)

    host = Host(Kind("root", (Step("failing", failing),), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: host.notes.runs["root", b"t", 0] == 2)
    for _ in range(5):
        host.clock.ms += 1_000
        await daemon.engine.turn()
    assert host.notes.runs["root", b"t", 0] == 2
    host.notes.arrived = True
    daemon.engine.wake(pid)
    assert (await ended(daemon, pid)).state is State.SUCCESS


async def test_wake_ups_of_what_ended_or_never_was_are_ignored() -> None:
    daemon = await Host(Kind("root", (step(last),), topic)).daemon()
    pid = await submitted(daemon, "root")
    await ended(daemon, pid)
    for one in (pid, pid + 100):
        daemon.engine.wake(one)
    for _ in range(3):
        await daemon.engine.turn()


@pytest.mark.seed("S2-37")
async def test_a_wait_lasts_until_its_time_also_over_a_restart() -> None:
    host = Host(Kind("root", (step(pauses), step(last)), topic))
    daemon = await host.daemon()
    began_ms = host.clock.ms
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: state(daemon, pid) is State.WAITING_TIMEOUT)
    successor = await host.daemon()
    await ended(successor, pid)
    assert 10_000 <= host.clock.ms - began_ms <= 11_500


async def test_a_wait_is_no_longer_over_a_restart_where_the_clock_was_set_back() -> None:
    host = Host(Kind("root", (step(pauses), step(last)), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: state(daemon, pid) is State.WAITING_TIMEOUT)
    host.clock.ms -= 900_000
    back_ms = host.clock.ms
    successor = await host.daemon()
    await ended(successor, pid)
    assert host.clock.ms - back_ms <= 11_500


def never(_: Notes, _record: Record) -> Outcome:
    return Retry("a broker is away")


@pytest.mark.seed("S2-30")
@pytest.mark.parametrize("waiting", [arrives, never])
async def test_a_procedure_that_expires_undoes_its_steps_whatever_it_waits_for(
    waiting: Callable[[Notes, Record], Outcome],
) -> None:
    host = Host(Kind("root", (step(), step(waiting), step(last)), topic))
    daemon = await host.daemon()
    expires_ms = host.clock.ms + 60_000
    pid = await daemon.run(daemon.engine.submit("root", b"t", NOBODY, expires_ms=expires_ms))
    record = await ended(daemon, pid)
    assert (record.state, record.error) == (State.ROLLEDBACK, "timed out")
    assert expires_ms <= host.clock.ms <= expires_ms + 1_500
    assert not host.notes.there


@pytest.mark.seed("S2-30")
async def test_children_expire_with_their_parent() -> None:
    host = Host(
        Kind("root", (step(spreads("part", 2)), step(last)), topic), Kind("part", (step(), step(arrives)), topic)
    )
    daemon = await host.daemon()
    pid = await daemon.run(daemon.engine.submit("root", b"t", NOBODY, expires_ms=host.clock.ms + 60_000))
    assert (await ended(daemon, pid)).error == "timed out"
    assert not host.notes.there


# -- abort and bypass


@pytest.mark.seed("S1-30")
async def test_an_abort_reaches_a_family_that_waits() -> None:
    host = Host(
        Kind("root", (step(), step(spreads("part", 3)), step(last)), topic),
        Kind("part", (step(), step(arrives), step(last)), topic),
    )
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(host.notes.there) == 8)
    began_ms = host.clock.ms
    assert await daemon.run(daemon.engine.abort(pid + 2))
    record = await ended(daemon, pid)
    assert (record.state, record.error) == (State.ROLLEDBACK, "aborted")
    assert not host.notes.there
    assert host.clock.ms - began_ms < 5_000, "nothing waited for a deadline"
    assert not await daemon.run(daemon.engine.abort(pid)), "it has ended"


@pytest.mark.parametrize("cause", ["an abort", "a part that fails"])
async def test_parts_of_parts_that_wait_for_an_event_learn_that_their_family_failed(cause: str) -> None:
    def uneven(_: Notes, record: Record) -> Outcome:
        broken = (child("broken", b"b"),) if cause == "a part that fails" else ()
        return Children((child("middle", b"m"), *broken), 1, record.data)

    host = Host(
        Kind("root", (step(uneven), step(last)), topic),
        Kind("middle", (step(spreads("lower", 2)), step(last)), topic),
        Kind("lower", (step(spreads("lowest", 2)), step(last)), topic),
        Kind("lowest", (step(), step(arrives), step(last)), topic),
        Kind("broken", (step(pauses), step(fails)), topic),
    )
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    waiting = [("lowest", b"m/%d/%d" % (one, two), 1) for one in range(2) for two in range(2)]
    await daemon.until(lambda: all(host.notes.runs[key] for key in waiting))
    if cause == "an abort":
        assert await daemon.run(daemon.engine.abort(pid))
    await daemon.until(lambda: state(daemon, pid) is State.ROLLEDBACK)
    assert not host.notes.there


async def test_a_bypassed_procedure_ends_and_its_parent_goes_on_as_if_it_had_succeeded() -> None:
    host = Host(
        Kind("root", (step(spreads("part", 1)), step(last)), topic), Kind("part", (step(arrives), step(last)), topic)
    )
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: pid + 1 in daemon.engine.records)
    assert not await daemon.run(daemon.engine.bypass(pid)), "it has a child"
    assert await daemon.run(daemon.engine.bypass(pid + 1))
    record = await ended(daemon, pid)
    assert (record.state, record.bypassed, record.result) == (State.SUCCESS, True, b"")


@pytest.mark.parametrize("operation", ["abort", "bypass"])
async def test_operations_on_an_unknown_pid_are_refused(operation: str) -> None:
    daemon = await Host(Kind("root", (step(last),), topic)).daemon()
    with pytest.raises(ProcedureRefused, match="pid 7: it is not known"):
        await daemon.run(getattr(daemon.engine, operation)(7))


# -- faults


@pytest.mark.parametrize("request_of", ["submit", "bypass"])
async def test_a_fault_of_a_request_ends_that_request_alone(request_of: str) -> None:
    daemon = await Host(Kind("root", (step(arrives), step(last)), topic)).daemon()
    pid = await submitted(daemon, "root")
    engine = daemon.engine
    with mock.patch.object(Intake, "_changed", side_effect=KeyError("a fault")), pytest.raises(KeyError):
        await daemon.run(engine.submit("root", b"u", NOBODY) if request_of == "submit" else engine.bypass(pid))
    assert await daemon.run(daemon.engine.bypass(pid))
    assert await submitted(daemon, "root", b"u") > pid


async def test_a_step_that_always_raises_fails_after_ten_attempts_and_blocks_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host(Kind("root", (step(), step(raises)), topic), Kind("other", (step(last),), topic))
    daemon = await host.daemon()
    pid, other = await submitted(daemon, "root"), await submitted(daemon, "other")
    assert (await ended(daemon, other)).state is State.SUCCESS
    record = await ended(daemon, pid)
    assert (record.state, record.error) == (State.ROLLEDBACK, "step step raised LookupError: t")
    assert host.notes.runs["root", b"t", 1] == RAISES_MAX
    assert len(caplog.records) == 1, "the traceback is logged once"


async def test_an_undo_that_raises_is_tried_for_ever() -> None:
    async def undo(notes: Notes, record: Record) -> Outcome:
        notes.runs["undo", b"", 0] += 1
        if notes.runs["undo", b"", 0] <= RAISES_MAX + 5:
            raise LookupError("away")
        return Done()

    host = Host(Kind("root", (Step("made", noting(onwards), undo), step(fails)), topic))
    daemon = await host.daemon()
    record = await ended(daemon, await submitted(daemon, "root"))
    assert (record.state, record.attempts) == (State.ROLLEDBACK, 0)
    assert host.notes.runs["undo", b"", 0] == RAISES_MAX + 6


@pytest.mark.parametrize("target", [-1, 2])
async def test_a_step_that_names_no_step_fails(target: int) -> None:
    daemon = await Host(Kind("root", (step(lambda _, r: Next(target, r.data)), step(last)), topic)).daemon()
    record = await ended(daemon, await submitted(daemon, "root"))
    assert record.error == f"step step names step {target}, root has 2"


async def test_a_lost_connection_repeats_a_step_and_the_end_of_a_term_passes() -> None:
    class Lost(Exception):
        pass

    class Ended(Exception):
        pass

    faults: list[Exception] = [Lost(), Ended()]

    async def faulty(notes: Notes, record: Record) -> Outcome:
        if faults:
            raise faults.pop(0)
        return Done()

    host = Host(Kind("root", (Step("faulty", faulty),), topic))
    wanted: list[None] = []
    engine = engine_module.Engine(
        host.notes,
        host.kinds,
        MemoryRecords(host.disk),
        wanted=lambda: wanted.append(None),
        now_ms=host.clock.now_ms,
        interruptions=(Lost,),
        ends=(Ended,),
    )
    await engine.load()
    call = asyncio.ensure_future(engine.submit("root", b"t", NOBODY))
    await asyncio.sleep(0)
    await engine.turn()
    await engine.turn()
    with pytest.raises(Ended):
        await engine.turn()
    successor = await host.daemon()
    assert (await ended(successor, await call)).state is State.SUCCESS


# -- effects


async def test_an_effect_is_written_with_its_record_and_repeated_where_another_writer_was_first() -> None:
    host = Host()
    tries: list[int] = []

    async def effective(notes: Notes, record: Record) -> Effect:
        async def write(change: Change) -> str | None:
            tries.append(change.puts[0].pid)
            if len(tries) < 3:
                return "another writer was first"
            await MemoryRecordsOf(host).write(change)
            return None

        return Effect(Next(1, record.data), write=write)

    host.kinds = (Kind("root", (Step("effective", effective), step(last)), topic),)
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: daemon.engine.records[pid].attempts == 2)
    assert daemon.engine.records[pid].error == "another writer was first"
    assert (await ended(daemon, pid)).done == (0, 1)
    assert tries == [pid] * 3


async def test_a_step_whose_records_are_too_large_for_a_transaction_fails() -> None:
    large = bytes(CHANGE_BYTES_MAX // 2 + 1)

    def spreads_much(_: Notes, record: Record) -> Outcome:
        return Children((child("part", large), child("part", large)), 2, record.data)

    def always(_: Record) -> Demand:
        return Demand(Resource(Scope.TOPIC, "t"), exclusive=True)

    host = Host(Kind("root", (step(), step(spreads_much), step(last)), topic), Kind("part", (step(last),), always))
    daemon = await host.daemon()
    record = await ended(daemon, await submitted(daemon, "root"))
    assert record.state is State.ROLLEDBACK
    assert f"its records have {2 * len(large)} bytes, one step may write {CHANGE_BYTES_MAX}" in record.error
    assert not host.notes.there


async def test_requests_that_come_while_pids_are_reserved_wait_for_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pids_module, "BLOCK", 1)
    host = Host(Kind("root", (step(last),), part))
    daemon = await host.daemon()
    calls: list[asyncio.Task[int]] = []
    reserve = MemoryRecords.reserve

    async def reserved(self: MemoryRecords, count: int) -> int:
        if len(calls) == 1:
            calls.extend(asyncio.ensure_future(daemon.engine.submit("root", b"%d" % n, NOBODY)) for n in range(5))
            await asyncio.sleep(0)
        return await reserve(self, count)

    monkeypatch.setattr(MemoryRecords, "reserve", reserved)
    calls.append(asyncio.ensure_future(daemon.engine.submit("root", b"first", NOBODY)))
    await daemon.run(asyncio.wait(calls))
    await daemon.run(asyncio.wait(calls))
    assert sorted(call.result() for call in calls) == list(range(1, 7))
    assert host.disk.last_pid == 6, "no pid was given that was not reserved"


async def test_a_turn_that_is_cancelled_refuses_the_callers_whose_changes_it_has_not_written() -> None:
    host = Host(Kind("root", (step(last),), topic))
    daemon = await host.daemon()
    stuck = asyncio.Event()

    async def write(self: MemoryRecords, puts: object, deletes: object = ()) -> None:
        await stuck.wait()

    with mock.patch.object(MemoryRecords, "write", write):
        call = asyncio.ensure_future(daemon.engine.submit("root", b"t", NOBODY))
        await asyncio.sleep(0)
        turn = asyncio.ensure_future(daemon.engine.turn())
        for _ in range(5):
            await asyncio.sleep(0)
        turn.cancel()
        with pytest.raises(ProcedureRefused, match="the daemon stops"):
            await call


@in_exact_time
async def test_results_go_although_nothing_else_happens() -> None:
    host = Host(Kind("root", (step(last),), topic))
    daemon = await host.daemon()
    await ended(daemon, await submitted(daemon, "root"))
    daemon.wanted = False
    await asyncio.sleep(requests.FETCHED_KEPT_MS / 1000 + 1)
    assert daemon.wanted


class MemoryRecordsOf:
    """Writes records of an effect as a multi of its own does."""

    def __init__(self, host: Host) -> None:
        self._disk = host.disk

    async def write(self, change: Change) -> None:
        opened = self._disk.opened
        await MemoryRecords(self._disk).write(change.puts, change.deletes)
        self._disk.opened = opened


# -- stores and restarts


async def test_a_store_that_fails_ends_the_turn_and_refuses_its_callers() -> None:
    host = Host(Kind("root", (step(last),), topic))
    daemon = await host.daemon()
    await submitted(daemon, "root")
    successor = await host.daemon()
    call = asyncio.ensure_future(daemon.engine.submit("root", b"t", NOBODY))
    await asyncio.sleep(0)
    with pytest.raises(Fenced):
        await daemon.engine.turn()
    with pytest.raises(Fenced):
        await call
    await successor.engine.turn()


@pytest.mark.seed("S2-49")
async def test_records_of_an_unknown_kind_or_step_are_named_and_stay_while_others_go_on() -> None:
    newer = Kind("newer", (step(arrives), step(arrives), step(last)), topic)
    host = Host(newer, Kind("root", (step(arrives), step(last)), part))
    daemon = await host.daemon()
    unknown, known = await submitted(daemon, "newer"), await submitted(daemon, "root")
    await daemon.until(lambda: state(daemon, unknown) is state(daemon, known) is State.WAITING_TIMEOUT)
    before = host.disk.bodies[unknown]
    older = await host.daemon(host.kinds[1:])
    assert older.engine.unusable == {unknown: "kind 'newer' is not known to this daemon (root): start one that has it"}
    with pytest.raises(ProcedureRefused, match=f"pid {unknown}: kind 'newer' is not known"):
        await older.run(older.engine.abort(unknown))
    host.notes.arrived = True
    older.engine.wake(known)
    await ended(older, known)
    assert host.disk.bodies[unknown] == before
    assert (await ended(await host.daemon(), unknown)).state is State.SUCCESS


async def test_damaged_records_are_named_with_their_families() -> None:
    host = Host(Kind("root", (step(spreads("part", 2)), step(last)), topic), Kind("part", (step(arrives),), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(daemon.engine.records) == 3)
    host.disk.bodies[pid] = b"{"
    assert sorted((await host.daemon()).engine.unusable) == [pid, pid + 1, pid + 2]


@pytest.mark.seed("S1-62")
async def test_a_hundred_thousand_procedures_are_queued_loaded_and_ended() -> None:
    host = Host(Kind("root", (step(last),), part))
    count = 100_000
    records = [Record(pid, "root", State.RUNNABLE, 0, 1, 1, data=b"%d" % pid) for pid in range(1, count + 1)]
    await MemoryRecords(host.disk).write(records)
    daemon = await host.daemon()
    await daemon.until(lambda: len(host.notes.runs) == count)
    assert max(host.notes.runs.values()) == 1
