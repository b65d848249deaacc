"""A region is forgotten beside batches that open it, kills at each write, and requests to end the procedure."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest
from msgspec.structs import replace

from controller.http.documents import ViewRefused
from controller.http.procedures import Procedure
from controller.regions.operator.region_changes import RegionChange, RegionChanges
from controller.regions.procedures import crash, forgetting, many
from controller.regions.procedures.messages import MANY, Many
from controller.regions.procedures.repair import REPAIR, Repair
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import HeirRow, ParentRow, Source
from regent_agent.protocol import Owned
from state_machines.procedures.outcome import Failed, Yield
from state_machines.procedures.record import child
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.repairs import LONG, changed, counts_of, forgets, joins, result_of, view_on
from tests.kit.regions.world import Server, at_rest, procedure, running, until, virtual
from tests.simulation.regions.test_by_ids import asks
from tests.simulation.regions.test_forget import EXTRA, KEYS, adding

S = RegionState
FORGET = REPAIR.encode(Repair(EXTRA, "t", what="region"))
MANY_TURNS = 12
"""Turns of the loop by which one request comes after another one."""


def is_gone(term: RegionsTerm, disk: RegionDisk, *servers: Server) -> bool:
    """Checks that nothing has the region any more, and that no procedure or region is left behind."""
    model = term.env.model
    has = [EXTRA in one.has for one in servers] + [EXTRA in one.regions for one in model.servers.values()]
    live = [one for one in term.engine.live() if one.kind in ("assign", "close", forgetting.NAME, many.ASSIGN_MANY)]
    return not (any(has) or live or EXTRA in disk.regions or EXTRA in model.regions or model.transit)


def has(pid: int, region: Region) -> bool:
    return region.pid == pid


def all_listed(term: RegionsTerm) -> bool:
    return not term.env.claimants.processes


@pytest.mark.parametrize("turns", range(MANY_TURNS))
@pytest.mark.parametrize("first", ["forget", "assign"])
def test_a_region_that_is_assigned_and_forgotten_at_one_moment_is_gone_in_the_end(first: str, turns: int) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with changed(disk, adding(KEYS[1], KEYS[2])) as (term, owned):
            server = Server(term, "a")
            task = await joins(term, server, owned)
            await until(lambda: not term.env.claimants.processes)
            term.env.model.damages.overlapping.clear()  # so that the surface takes both
            requests: list[Callable[[], Awaitable[Any]]] = [
                lambda: forgets(term, EXTRA),
                lambda: asks(term, "assign", [EXTRA]),
            ]
            begun = []
            for one in requests if first == "forget" else reversed(requests):
                begun.append(asyncio.ensure_future(one()))
                for _ in range(turns):
                    await asyncio.sleep(0)
            found: Sequence[Procedure] = await asyncio.gather(*begun)
            for one in found:
                record = await result_of(term, one)
                assert record.state is State.SUCCESS, record.error
            await at_rest(term)
            assert is_gone(term, disk, server)
            task.cancel()

    story()


@pytest.mark.parametrize("first", [forgetting.NAME, many.ASSIGN_MANY])
def test_a_crash_opens_no_region_beside_its_removal(first: str) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()

        def change(disk: RegionDisk, ids: list[int]) -> None:
            adding(KEYS[1], KEYS[2], int(S.OPEN))(disk, ids)
            own = disk.regions[ids[1]]
            disk.regions[EXTRA] = disk.regions[EXTRA]._replace(
                server=own.server, incarnation=own.incarnation, token=own.token
            )

        async with changed(disk, change) as (term, owned):
            one = owned[1]
            task = await joins(term, Server(term, "a"), [*owned, Owned(EXTRA, one.token)])
            await until(lambda: not term.env.claimants.processes)
            other = Server(term, "b")
            serves = await joins(term, other, [])
            task.cancel()
            server = term.env.model.servers["a", 1]
            assert EXTRA in server.regions
            crash.released(term.env, server)
            assert server.state is ServerState.FENCED
            term.env.crashing.add(server.key)
            messages = {forgetting.NAME: FORGET, many.ASSIGN_MANY: MANY.encode(Many("t", "a crash", ids=(EXTRA,)))}
            kinds = sorted(messages, key=lambda kind: kind != first)
            pids = await asyncio.gather(*(procedure(term, kind, messages[kind]) for kind in kinds))
            assert [(await term.engine.result(pid)).state for pid in pids] == [State.SUCCESS] * 2
            await asyncio.sleep(30)  # an open may be on its way
            assert is_gone(term, disk, other)
            serves.cancel()

    story()


@virtual
async def test_a_region_that_another_procedure_has_taken_is_awaited_for_a_time_alone() -> None:
    disk = RegionDisk()
    async with changed(disk, adding(KEYS[1], KEYS[2])) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        await until(lambda: not term.env.claimants.processes)
        region = term.env.model.regions[EXTRA]
        wall_ms = term.env.wall_ms()
        forget = replace(child(forgetting.NAME, FORGET), pid=10**6, submitted_ms=wall_ms)
        late = replace(forget, submitted_ms=wall_ms - forgetting.TAKEN_MS_MAX - 1)
        other = 10**6 + 1
        assert term.env.model.take(region, other)
        for step in (forgetting.free, forgetting.remove):
            assert isinstance(await step(term.env, forget), Yield)
            for one in (late, replace(forget, locked=True)):
                failed = await step(term.env, one)
                assert isinstance(failed, Failed)
                assert f"procedure {other} has region t#{EXTRA}: wait for its end, or" in failed.error
        term.env.model.detach(region, other)
        assert (await result_of(term, await forgets(term, EXTRA))).state is State.SUCCESS
        task.cancel()


@virtual
async def test_a_procedure_that_is_ended_lets_the_region_go() -> None:
    for act in ("abort", "bypass"):
        disk = RegionDisk()
        async with changed(disk, adding(KEYS[1], KEYS[2])) as (term, owned):
            begun = await forgets(term, EXTRA)
            region = term.env.model.regions[EXTRA]
            await until(partial(has, begun.pid, region))  # it waits for the lists of processes
            await (term.engine.abort if act == "abort" else term.engine.bypass)(begun.pid)
            await result_of(term, begun)
            assert (region.pid, EXTRA in term.env.model.transit, region.state) == (0, False, S.CLOSED)
            task = await joins(term, Server(term, "a"), owned)
            await until(partial(all_listed, term))
            assert (await result_of(term, await forgets(term, EXTRA))).state is State.SUCCESS
            task.cancel()


class Copying(MemoryRegionStore):
    """A store that keeps a copy of the disk as it was after each write."""

    copies: list[RegionDisk]

    async def write(self, *args: Any, **kwargs: Any) -> None:
        await super().write(*args, **kwargs)
        self.copies.append(cast("RegionDisk", copy.deepcopy(self._disk)))


def test_a_kill_after_any_write_leaves_no_region_to_a_procedure_that_is_over() -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        copies: list[RegionDisk] = []
        async with changed(disk, adding(KEYS[1], KEYS[2])) as (_, owned):
            pass

        def copying(disk: RegionDisk) -> MemoryRegionStore:
            store = Copying(disk)
            store.copies = copies
            return store

        async with running(disk, LONG, store=copying) as term:
            task = await joins(term, Server(term, "a"), owned)
            await until(lambda: not term.env.claimants.processes)
            await term.engine.result(await procedure(term, "assign_many", MANY.encode(Many("t", "", ids=(EXTRA,)))))
            at = len(copies)
            assert (await result_of(term, await forgets(term, EXTRA))).state is State.SUCCESS
            task.cancel()
        assert len(copies) - at >= 4, "the request, the close, its end, the removal"
        for one in copies[at:]:
            async with running(one, LONG) as term:
                live = {record.pid for record in term.engine.live()}
                assert all(region.pid in {0, *live} for region in term.env.model.regions.values())
                server = Server(term, "a")
                row = one.regions.get(EXTRA)
                held = [*owned, Owned(EXTRA, row.token)] if row is not None and row.server else owned
                task = await joins(term, server, held)
                await until(partial(is_gone, term, one, server))
                assert await counts_of(term) == {}
                task.cancel()

    story()


@virtual
async def test_a_region_is_not_assigned_while_another_one_with_its_keys_is_served() -> None:
    disk = RegionDisk()
    async with changed(disk, adding(KEYS[1], KEYS[2])) as (term, owned):
        task = await joins(term, Server(term, "a"), owned)
        await until(lambda: not term.env.claimants.processes)
        changes, own = RegionChanges(view_on(term)), owned[1].region
        with pytest.raises(
            ViewRefused, match=f"region t#{EXTRA} shares keys with region t#{own}, which a,1 has"
        ) as refused:
            await changes.change_region("assign", EXTRA, RegionChange(), "ops")
        assert f"'regent regions forget {EXTRA}' removes" in refused.value.remedy
        record = await result_of(term, await asks(term, "assign", [EXTRA]))
        assert record.result == f"0 assigned, 1 left out: #{EXTRA} shares keys with one at a server".encode()
        task.cancel()


@virtual
async def test_a_dry_run_names_the_former_regions_whose_data_is_discarded() -> None:
    disk = RegionDisk()

    def change(disk: RegionDisk, ids: list[int]) -> None:
        adding(KEYS[1], KEYS[2])(disk, ids)
        for parent in (5, 6, 7):
            row = ParentRow(parent, "t", KEYS[1], KEYS[2], int(S.SPLIT), (EXTRA,), 1, 1)
            disk.small[ParentRow, (parent,)] = row
        disk.small[HeirRow, (EXTRA,)] = HeirRow(EXTRA, tuple(Source(one, b"", b"", 1, 1) for one in (5, 6)))
        disk.small[HeirRow, (ids[0],)] = HeirRow(ids[0], tuple(Source(one, b"", b"", 1, 1) for one in (6, 7)))

    async with changed(disk, change) as (term, _):
        planned = await forgets(term, EXTRA, dry_run=True, reason="")
        assert planned.detail == (
            f"region t#{EXTRA}: its row, others have its keys; what was written to it is not served any more; "
            "no region needs the data of #5 then, and it is discarded"
        )


def test_a_planted_bug_is_caught_that_forgets_a_region_without_taking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "_with_another", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_crash_opens_no_region_beside_its_removal(many.ASSIGN_MANY)
