"""Records that cannot be used are removed with their families, in parts, over crashes, and told as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.procedures.kinds import Kind
from controller.procedures.parking import REMOVED_MAX, TOGETHER, Parking, Removed
from controller.procedures.requests import ProcedureRefused, Remove, Unusable
from metadata_store.port import Kill
from state_machines.procedures.record import REMOVED, Ending, Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from testing.memory.region_store import Disk, MemoryRecords
from tests.contracts.records_damaged import NEWER
from tests.kills.harness import Daemon, Death, Deaths, KillingStore, arrives, last, spreads, step, topic
from tests.unit.controller.procedures.test_procedures_engine import OPS, Host, ended, submitted

REQUEST = Ending(REMOVED, "uid 7", "its disk was broken")
FAMILY = (
    Kind("root", (step(spreads("part", 3)), step(last)), topic),
    Kind("part", (step(arrives), step(last)), topic),
)
OTHER = Kind("other", (step(last),), topic)


async def family_of(host: Host, children: int) -> list[int]:
    """Returns the pids of a family whose children wait."""
    daemon = await host.daemon()
    pid = await submitted(daemon, "root", caller=OPS)
    await daemon.until(lambda: len(daemon.engine.records) == children + 1)
    return [pid, *range(pid + 1, pid + children + 1)]


@pytest.mark.seed("S2-49", "S3-45")
@pytest.mark.parametrize("damage", ["newer", "corrupt", "broken json", "kind is gone", "step is gone"])
async def test_whatever_the_fault_a_record_is_removed_and_its_call_may_come_again(damage: str) -> None:
    host = Host(Kind("root", (step(arrives), step(last)), topic))
    pid = await submitted(await host.daemon(), "root", caller=OPS)
    body, kinds = host.disk.bodies[pid], list(host.kinds)
    if damage == "newer":
        host.disk.bodies[pid] = (NEWER % pid).replace(b"later", OPS.nonce.encode())
    elif damage == "corrupt":
        host.disk.bodies[pid] = body.replace(b'"step":0', b'"step":1')
    elif damage == "broken json":
        host.disk.bodies[pid] = body.replace(b'"step":0', b'"step";0')
    elif damage == "kind is gone":
        kinds = [OTHER]
    else:
        host.disk.bodies[pid] = body.rpartition(b"\n")[0].replace(b'"step":0', b'"step":7')
    daemon = await host.daemon(kinds)
    for refused in (daemon.engine.bypass(pid), daemon.engine.abort(pid), daemon.engine.command(pid, b"x")):
        with pytest.raises(Unusable, match=f"pid {pid}: ") as error:
            await daemon.run(refused)
        assert error.value.pid == pid
    with pytest.raises(Unusable, match="this call has pid"):
        await submitted(daemon, kinds[0].name, caller=OPS)
    assert await daemon.run(daemon.engine.remove(pid, REQUEST)) == [pid]
    assert (host.disk.bodies, dict(daemon.engine.unusable), dict(daemon.engine.unusable_records)) == ({}, {}, {})
    assert await submitted(daemon, kinds[0].name, caller=OPS) > pid
    assert not (await host.daemon(kinds)).engine.unusable


async def test_what_can_be_used_or_is_not_known_is_not_removed() -> None:
    host = Host(*FAMILY)
    pids = await family_of(host, 3)
    daemon = await host.daemon()
    for pid in pids:
        with pytest.raises(ProcedureRefused, match=r"its record can be used .*: abort or bypass it"):
            await daemon.run(daemon.engine.remove(pid, REQUEST))
    with pytest.raises(ProcedureRefused, match="pid 999: it is not known"):
        await daemon.run(daemon.engine.remove(999, REQUEST))
    with pytest.raises(ProcedureRefused, match="delete its znode by hand"):
        await daemon.run(daemon.engine.remove(0, REQUEST))
    assert host.disk.bodies.keys() == set(pids)


@pytest.mark.parametrize("named", [0, 1, 3])
@pytest.mark.parametrize("damaged", [0, 2])
async def test_a_family_goes_together_and_its_ends_are_told_before_that_of_its_parent(damaged: int, named: int) -> None:
    host = Host(*FAMILY, OTHER)
    pids = await family_of(host, 3)
    host.disk.bodies[pids[damaged]] = b"{"
    told: list[Transition] = []
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, told.extend)
    await daemon.engine.load()
    assert sorted(daemon.engine.unusable) == pids
    other = await submitted(daemon, "other", b"elsewhere")
    del told[:]
    both = await daemon.run(asyncio.gather(*(daemon.engine.remove(pids[named], REQUEST) for _ in range(2))))
    assert both == [pids, pids]
    ends = [one for one in told if one.after.pid in pids]
    assert [one.after.pid for one in ends] == pids[::-1], "once for each, also where two remove it at once"
    for before, after in ends:
        assert before is not None
        assert (before.state.is_final, after.state, after.bypassed) == (False, State.SUCCESS, True)
        assert after.ending == replace(REQUEST, at_ms=after.updated_ms)
    assert host.disk.bodies.keys() == {other}
    assert not host.notes.there & {("part", b"t", 1)}, "no step of it ran"


async def test_a_failed_record_is_removed_as_rolled_back() -> None:
    host = Host(OTHER)
    host.disk.bodies[5] = b'{"pid":5,"kind":"gone","state":4,"step":0,"submitted_ms":1,"updated_ms":1,"done":[0]}'
    told: list[Transition] = []
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, told.extend)
    await daemon.engine.load()
    assert daemon.engine.unusable_records[5].kind == "gone"
    await daemon.run(daemon.engine.remove(5, REQUEST))
    assert [(one.before is not None and one.before.state, one.after.state) for one in told] == [
        (State.FAILED, State.ROLLEDBACK)
    ]


LARGE = 3 * TOGETHER + 7


class Sizes(MemoryRecords):
    """A store that notes how many records each write deletes."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.sizes: list[int] = []

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        gone = tuple(deletes)
        self.sizes.append(len(gone))
        await super().write(puts, gone, rows)


async def large() -> Host:
    """Returns a disk with a family of which one child is damaged."""
    host = Host(*FAMILY)
    root = Record(1, "root", State.WAITING, 1, 1, 1, data=b"t", done=(0,), born=tuple(range(2, LARGE + 1)))
    parts = [Record(n, "part", State.RUNNABLE, 0, 1, 1, parent=1, ancestors=(1,), data=b"t") for n in root.born]
    await MemoryRecords(host.disk).write([root, *parts])
    host.disk.bodies[LARGE] = b"{"
    return host


async def test_a_large_family_goes_in_parts() -> None:
    host = await large()
    store = Sizes(host.disk)
    daemon = Daemon(host.notes, host.kinds, store, host.clock)
    await daemon.engine.load()
    assert len(await daemon.run(daemon.engine.remove(7, REQUEST))) == LARGE
    assert not host.disk.bodies
    assert max(store.sizes) == TOGETHER


async def test_a_removal_that_came_before_the_term_removes_the_whole_of_a_large_family() -> None:
    host, parking = await large(), Parking()
    early = parking.ask(Remove(1, REQUEST))
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, parking=parking)
    await daemon.engine.load()
    assert await daemon.run(early) == 1
    assert not host.disk.bodies
    assert daemon.engine.removed(1) == list(range(1, LARGE + 1))


@pytest.mark.parametrize("turns", [1, 2, LARGE // TOGETHER + 1, 3 * LARGE // TOGETHER])
@pytest.mark.parametrize("named", [1, 7, LARGE - 1])
async def test_a_second_removal_of_a_family_has_the_success_of_the_first_one(named: int, turns: int) -> None:
    """It comes at the same time, in the midst of the first one, or after it."""
    host = await large()
    daemon = await host.daemon()
    first = asyncio.ensure_future(daemon.engine.remove(1, REQUEST))
    for _ in range(turns):
        await asyncio.sleep(0)
        await daemon.engine.turn()
    assert await daemon.run(daemon.engine.remove(named, REQUEST)) == list(range(1, LARGE + 1))
    assert await daemon.run(first) == list(range(1, LARGE + 1))
    assert not host.disk.bodies


async def test_a_removal_is_remembered_over_terms_of_a_daemon_and_within_a_bound() -> None:
    host, parking = Host(OTHER), Parking()
    with mock.patch("controller.procedures.parking.REMOVED_MAX", 3):
        for pid in range(1, 6):
            host.disk.bodies[pid] = b"{"
        daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, parking=parking)
        await daemon.engine.load()
        for pid in range(1, 6):
            assert await daemon.run(daemon.engine.remove(pid, REQUEST)) == [pid]
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, parking=parking)
    await daemon.engine.load()
    assert await daemon.run(daemon.engine.remove(5, REQUEST)) == [5]
    with pytest.raises(ProcedureRefused, match="pid 1: it is not known"):
        await daemon.run(daemon.engine.remove(1, REQUEST))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, 5))
async def test_after_a_crash_in_its_midst_the_same_request_removes_the_rest(write: int, after: bool) -> None:
    """Also where the record that it names is gone by then."""
    host = await large()
    deaths = Deaths([Death(write, after)])
    daemon = Daemon(host.notes, host.kinds, KillingStore(MemoryRecords(host.disk), deaths), host.clock)
    await daemon.engine.load()
    with pytest.raises(Kill):
        await daemon.run(daemon.engine.remove(1, REQUEST))
    again = await host.daemon()
    if host.disk.bodies.keys() != {LARGE}:  # what cannot be read names no family
        await again.run(again.engine.remove(1, REQUEST))
    assert host.disk.bodies.keys() <= {LARGE}


async def test_the_parts_of_a_removal_cost_the_same_in_each_turn() -> None:
    """The relatives of a record are looked for once, not for each part."""
    host = await large()
    daemon = await host.daemon()
    unusable = daemon.engine._intake.unusable
    looked: list[int] = []

    class Counted(dict[int, set[int]]):
        def get(self, key: int, default: Any = None) -> Any:
            looked.append(key)
            return super().get(key, default)

    unusable._near = Counted(unusable._near)
    await daemon.run(daemon.engine.remove(1, REQUEST))
    assert not host.disk.bodies
    assert len(looked) <= 2 * LARGE


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, 5))
async def test_after_a_crash_in_its_midst_nothing_of_a_family_goes_on_and_the_rest_is_removed(
    write: int, after: bool
) -> None:
    host = await large()
    deaths = Deaths([Death(write, after)])
    daemon = Daemon(host.notes, host.kinds, KillingStore(MemoryRecords(host.disk), deaths), host.clock)
    await daemon.engine.load()
    with pytest.raises(Kill):
        await daemon.run(daemon.engine.remove(1, REQUEST))
    again = await host.daemon()
    await again.engine.turn()
    assert sorted(again.engine.unusable) == sorted(host.disk.bodies), "no part of it can go on"
    while again.engine.unusable:
        await again.run(again.engine.remove(min(again.engine.unusable), REQUEST))
    assert (host.disk.bodies, host.notes.runs) == ({}, {})


async def test_a_removal_and_a_submission_of_one_turn_are_both_carried_out() -> None:
    host = Host(OTHER)
    host.disk.bodies[5] = b"{"
    daemon = await host.daemon()
    removed, pid = await daemon.run(
        asyncio.gather(daemon.engine.remove(5, REQUEST), daemon.engine.submit("other", b"t", OPS))
    )
    assert removed == [5]
    assert (await ended(daemon, pid)).state is State.SUCCESS


def test_the_oldest_families_are_forgotten_and_the_latest_one_is_whole() -> None:
    removed = Removed()
    large = list(range(1, REMOVED_MAX + 1))
    removed.note(large, large)
    assert removed.family(7) is large
    removed.note([REMOVED_MAX + 1], [REMOVED_MAX + 1])
    assert removed.family(1) == []
    assert removed.family(2) is large
    assert removed.family(REMOVED_MAX + 1) == [REMOVED_MAX + 1]


def test_a_family_larger_than_the_bound_is_remembered_alone() -> None:
    removed = Removed()
    removed.note([1], [1])
    larger = list(range(2, 2 * REMOVED_MAX))
    removed.note(larger, larger)
    assert removed.family(1) == []
    assert removed.family(larger[-1]) is larger
    removed.note([1_000_000], [1_000_000])
    assert removed.family(1_000_000) == [1_000_000]
