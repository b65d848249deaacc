"""What becomes of the records of a store: sound, unreadable, aborted and bypassed at every turn."""

from __future__ import annotations

import asyncio
from itertools import count, pairwise
from typing import Final

import pytest
from msgspec.structs import replace

from controller.procedures import engine, requests
from controller.procedures.kinds import Kind
from controller.procedures.requests import ProcedureRefused
from controller.procedures.writes import RECORDS_MAX
from metadata_store.records import codec
from metadata_store.records.port import Fenced
from state_machines.procedures import recovery
from state_machines.procedures.record import VERSION, Caller, Record
from state_machines.procedures.recovery import Loaded, load
from state_machines.procedures.states import State
from testing.memory.region_store import MemoryRecords
from tests.kills.harness import Daemon, arrives, last, pauses, raises, spreads, step, topic
from tests.kills.test_kills import KINDS
from tests.unit.controller.procedures.test_procedures_engine import NOBODY, Host, ended, submitted


def record(pid: int, state: State = State.RUNNABLE, parent: int = 0, *above: int, **more: object) -> Record:
    ancestors = (parent, *above) if parent else ()
    return Record(pid, "known", state, 0, 0, 0, parent=parent, ancestors=ancestors, **more)  # type: ignore[arg-type]


def loaded(*records: Record) -> Loaded:
    return load(records, lambda record: None if record.kind == "known" else "its kind is not known")


@pytest.mark.seed("S2-49")
def test_an_empty_store_starts_clean() -> None:
    assert loaded() == Loaded({}, (), (), (), {})


def test_families_go_on_in_the_order_of_pids_and_failed_ones_first() -> None:
    found = loaded(
        record(9),
        record(4),
        record(5, State.SUCCESS),
        record(6, State.FAILED),
        record(7, State.FAILED, deadline_ms=50),
        record(2, State.WAITING_TIMEOUT, deadline_ms=70),
        record(3, State.WAITING_TIMEOUT),
    )
    assert found.ready == (6, 3, 4, 9), "a wait for an event alone is looked at again"
    assert found.later == (2, 7)
    assert not found.unusable


@pytest.mark.seed("S1-50", "S2-11")
def test_a_parent_that_was_not_woken_before_the_crash_is_woken_now() -> None:
    assert loaded(record(1, State.WAITING)).ready == (1,)
    assert loaded(record(1, State.WAITING), record(2, State.RUNNABLE, 1)).ready == (2,)


def test_descendants_of_a_failed_root_undo_their_steps_at_once() -> None:
    found = loaded(
        record(1, State.FAILED),
        record(2, State.WAITING, 1),
        record(3, State.WAITING_TIMEOUT, 2, 1, deadline_ms=90),
        record(4, State.RUNNABLE, 1),
    )
    assert (found.ready, found.later) == ((3, 4), ())


def test_what_an_operator_has_ended_waits_for_no_time() -> None:
    """Without a restart it ends at once, too."""
    found = loaded(
        record(1, State.WAITING_TIMEOUT, deadline_ms=90, bypassed=True),
        record(2, State.FAILED, deadline_ms=90, bypassed=True),
        record(3, State.WAITING_TIMEOUT, deadline_ms=90, aborted=True),
        record(4, State.WAITING, aborted=True),
        record(5, State.WAITING_TIMEOUT, 4, deadline_ms=90),
        record(6, State.WAITING_TIMEOUT, deadline_ms=90),
    )
    assert (found.ready, found.later) == ((2, 1, 3, 5), (6,))


def test_locks_are_restored_from_the_root_to_the_leaves() -> None:
    found = loaded(
        record(8, State.WAITING, locked=True),
        record(1, State.RUNNABLE, 3, 8, locked=True),
        record(3, State.WAITING, 8, locked=True),
        record(4, locked=True),
        record(5, State.SUCCESS, locked=True),
        record(6),
    )
    assert found.locked == (4, 8, 3, 1)


@pytest.mark.parametrize(
    ("records", "pid", "why"),
    [
        ([record(1, version=VERSION + 1)], 1, "format 2 is newer than this daemon's (1): upgrade the daemon"),
        ([record(2, State.RUNNABLE, 1)], 2, "its parent, pid 1, is missing"),
        ([record(1), record(2, State.RUNNABLE, 1, 7)], 2, "its ancestors (1, 7) are not those of its parent, pid 1"),
        ([record(1, State.SUCCESS), record(2, State.RUNNABLE, 1)], 2, "its parent, pid 1, has ended"),
        ([record(1), record(2, State.SUCCESS, 1)], 2, "a child that has ended is not kept"),
        (
            [Record(1, "gone", State.RUNNABLE, 0, 0, 0)],
            1,
            "its kind is not known",
        ),
        (
            [record(1, State.RUNNABLE, 2), record(2, State.RUNNABLE, 1)],
            1,
            "its ancestors (2,) are not those of its parent, pid 2",
        ),
        ([Record(1, "known", State.RUNNABLE, 0, 0, 0, ancestors=(5,))], 1, "it names ancestors and no parent"),
    ],
)
def test_a_record_that_cannot_be_used_takes_its_family_along_and_no_other(
    records: list[Record], pid: int, why: str
) -> None:
    found = loaded(*records, record(90), record(91, State.RUNNABLE, 90))
    assert found.unusable[pid].why == why
    assert found.records.keys() == {90, 91}
    for other in {one.pid for one in records} - {pid}:
        assert other in found.unusable


TURNS_MAX: Final = 60
QUEUED: Final = 100_000


async def interfered(name: str, turns: int, request: str) -> tuple[Host, Record, bool, bool]:
    """Runs a family for some turns, interferes, and runs it to its end; returns whether it had ended before."""
    host = Host(*KINDS[name])
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    left = count(turns, -1)
    await daemon.until(lambda: not next(left) or daemon.engine.records[pid].state.is_final)
    over = daemon.engine.records[pid].state.is_final
    target = max(daemon.engine.records) if request == "bypass" else pid
    accepted = False if over else await daemon.run(getattr(daemon.engine, request)(target))
    record = await ended(daemon, pid)
    assert list(daemon.engine.records) == [pid], "a record was left behind"
    assert not daemon.engine.locks(), "a lock was left behind"
    return host, record, accepted, over


@pytest.mark.seed("S2-5", "S2-16", "S2-18")
@pytest.mark.parametrize("name", KINDS)
async def test_an_abort_at_any_turn_leaves_all_or_nothing(name: str) -> None:
    clean, expected, _, _ = await interfered(name, TURNS_MAX, "abort")
    accepted_once = False
    for turns in range(1, TURNS_MAX):
        host, record, accepted, over = await interfered(name, turns, "abort")
        accepted_once |= accepted
        if record.state is State.ROLLEDBACK:  # children that had succeeded are their parent's to make good
            assert not any(kind == "root" for kind, _, _ in host.notes.there)
        else:
            assert (record.state, host.notes.there) == (expected.state, clean.notes.there)
        if over:
            break
    assert accepted_once is ("no return" not in name)


@pytest.mark.parametrize("name", KINDS)
async def test_a_bypass_at_any_turn_ends_the_family_and_frees_its_locks(name: str) -> None:
    for turns in range(1, TURNS_MAX):
        _, record, _, over = await interfered(name, turns, "bypass")
        assert record.state.is_final
        if over:
            break


async def test_a_procedure_that_always_raises_keeps_no_other_waiting() -> None:
    host = Host(Kind("bad", (step(raises),), topic), Kind("good", (step(last),), topic))
    daemon = await host.daemon()
    bad = [await submitted(daemon, "bad", b"a%d" % n) for n in range(50)]
    good = await submitted(daemon, "good", b"b")
    assert (await ended(daemon, good)).state is State.SUCCESS
    assert not any(daemon.engine.records[pid].state.is_final for pid in bad)
    assert all(daemon.engine.records[pid].error for pid in bad), "each says why"


async def test_a_hundred_thousand_procedures_end_with_few_results_and_no_lock() -> None:
    """They are queued in the store, as after a daemon that died; ten topics are theirs in turn."""
    host = Host(Kind("root", (step(last),), topic))
    for pid in range(1, QUEUED + 1):
        record = Record(pid, "root", State.RUNNABLE, 0, 1_000_000, 1_000_000, data=b"t%d" % (pid % 10))
        host.disk.bodies[pid] = codec.sealed(record)
    daemon = await host.daemon()
    assert len(daemon.engine.records) == QUEUED
    await daemon.until(lambda: daemon.turns > 1 and not daemon.wanted)
    assert sum(host.notes.runs.values()) == QUEUED
    assert not daemon.engine.locks()
    assert len(daemon.engine.records) <= requests.RESULTS_MAX + RECORDS_MAX
    assert host.disk.bodies.keys() == daemon.engine.records.keys()
    assert await submitted(daemon, "root", b"next", NOBODY) > QUEUED


@pytest.mark.seed("S2-1")
async def test_of_two_daemons_on_a_store_the_first_is_fenced_and_nothing_of_it_is_applied() -> None:
    host = Host(Kind("root", (step(), step(last)), topic))
    first = await host.daemon()
    pid = await submitted(first, "root")
    second = await host.daemon()
    before = dict(host.disk.bodies)
    with pytest.raises(Fenced):
        await first.engine.turn()
    assert host.disk.bodies == before
    assert (await ended(second, pid)).state is State.SUCCESS


@pytest.mark.seed("S2-49")
async def test_a_daemon_that_is_rolled_back_leaves_newer_records_and_the_next_upgrade_goes_on_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records of two versions lie beside each other: two roots, and a family whose child alone was written anew."""
    host = Host(
        Kind("root", (step(arrives), step(last)), topic),
        Kind("family", (step(spreads("part", 1)), step(last)), topic),
        Kind("part", (step(arrives), step(last)), topic),
    )
    daemon = await host.daemon()
    old, new = await submitted(daemon, "root", b"old"), await submitted(daemon, "root", b"new")
    family = await submitted(daemon, "family", b"f")
    await daemon.until(lambda: len(daemon.engine.records) == 4)
    child = max(daemon.engine.records)
    for pid in (new, child):
        host.disk.bodies[pid] = codec.sealed(replace(daemon.engine.records[pid], version=VERSION + 1))
    kept = {pid: host.disk.bodies[pid] for pid in (new, family, child)}
    host.notes.arrived = True
    older = await host.daemon()
    assert older.engine.unusable.keys() == kept.keys()
    assert (await ended(older, old)).state is State.SUCCESS
    for pid in kept:
        with pytest.raises(ProcedureRefused):
            await older.run(older.engine.abort(pid))
    assert {pid: host.disk.bodies[pid] for pid in kept} == kept
    for module in (codec, recovery):
        monkeypatch.setattr(module, "VERSION", VERSION + 1)
    newer = await host.daemon()
    assert not newer.engine.unusable
    assert (await ended(newer, new)).state is State.SUCCESS
    assert (await ended(newer, family)).state is State.SUCCESS


def mixed() -> list[Record]:
    """Families that go on, wait, hold locks, or cannot be used, with the caller at the root alone."""
    caller = Caller("User:ops", nonce="one")
    return [
        record(1, State.WAITING, caller=caller, locked=True),
        record(2, State.RUNNABLE, 1, locked=True),
        record(3, State.WAITING_TIMEOUT, 1, deadline_ms=90),
        record(4, State.SUCCESS),
        record(5, State.RUNNABLE, 6),
        record(7, State.FAILED),
        record(8, State.RUNNABLE, 7),
        Record(9, "gone", State.RUNNABLE, 0, 0, 0),
        record(10, State.RUNNABLE, 9),
    ]


@pytest.mark.parametrize("together", [1, 2, 3, 10])
def test_records_are_judged_alike_in_portions_of_any_size(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = loaded(*mixed())
    assert (expected.ready, expected.later, expected.locked) == ((8, 2), (3,), (1, 2))
    assert expected.unusable.keys() == {5, 9, 10}
    assert expected.records[2].caller == Caller("User:ops")
    monkeypatch.setattr(recovery, "RECORDS_TOGETHER", together)
    assert loaded(*mixed()) == expected


def test_large_messages_are_judged_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks of a plan are in its message, which takes milliseconds to decode."""
    monkeypatch.setattr(recovery, "MESSAGE_BYTES_TOGETHER", 250)
    judged = [0]

    def unfit(record: Record) -> None:
        judged[-1] += 1

    records = [Record(pid, "plan", State.RUNNABLE, 0, 1, 1, data=bytes(100)) for pid in range(1, 8)]
    judged += (0 for _ in recovery.judging(records, unfit, {}))
    assert [count for count in judged if count] == [2, 2, 2, 1]


async def test_many_records_are_restored_in_portions_and_one_that_is_woken_meanwhile_waits_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "RECORDS_TOGETHER", 4)
    monkeypatch.setattr(engine, "TURN_MS_MAX", 0)
    host = Host(Kind("root", (step(pauses), step(last)), topic))
    now_ms, late = host.clock.ms, {"deadline_ms": 1 << 60}
    for pid in range(1, 41):
        state, more = (State.WAITING_TIMEOUT, late) if pid > 20 else (State.RUNNABLE, {"locked": True})
        one = Record(pid, "root", state, 0, now_ms, now_ms, data=b"%d" % pid, **more)
        host.disk.bodies[pid] = codec.sealed(one)
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock)
    loading = asyncio.ensure_future(daemon.engine.load())
    seen = [0]
    while not loading.done():
        await asyncio.sleep(0)
        if seen[-1] < 40 == len(daemon.engine.records):
            daemon.engine.wake(40)
        seen.append(len(daemon.engine.records))
    assert max(after - before for before, after in pairwise(seen)) == 4
    passes = {"judged": 30, "entered": 10, "locked": 5, "applied": 10, "waits": 5, "queued": 5}
    assert len(seen) >= sum(passes.values()), "one of them did all in one turn"
    await daemon.until(lambda: daemon.engine.records[40].state is State.SUCCESS)
    assert not any(daemon.engine.records[pid].state.is_final for pid in range(21, 40))
