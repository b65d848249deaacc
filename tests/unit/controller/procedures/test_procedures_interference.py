"""Abort and bypass at every turn of every family; many procedures at once; a store of two daemons."""

from __future__ import annotations

from itertools import count
from typing import Final

import pytest
from msgspec.structs import replace

from controller.procedures import requests
from controller.procedures.kinds import Kind
from controller.procedures.requests import Refused
from controller.procedures.writes import RECORDS_MAX
from metadata_store.records import codec
from metadata_store.records.port import Fenced
from state_machines.procedures import recovery
from state_machines.procedures.record import VERSION, Record
from state_machines.procedures.states import State
from tests.kills.kinds import arrives, last, raises, spreads, step, topic
from tests.kills.test_kills import KINDS
from tests.unit.controller.procedures.test_procedures_engine import NOBODY, Host, ended, submitted

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
        with pytest.raises(Refused):
            await older.run(older.engine.abort(pid))
    assert {pid: host.disk.bodies[pid] for pid in kept} == kept
    for module in (codec, recovery):
        monkeypatch.setattr(module, "VERSION", VERSION + 1)
    newer = await host.daemon()
    assert not newer.engine.unusable
    assert (await ended(newer, new)).state is State.SUCCESS
    assert (await ended(newer, family)).state is State.SUCCESS
