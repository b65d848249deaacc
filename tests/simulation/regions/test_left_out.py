"""Parts of a crashed server's log that no server can split, and that an operator leaves out."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from controller.http.documents import Invalid, ViewRefused
from controller.regions.domain import RegionsDomain
from controller.regions.operator.explain import explained
from controller.regions.operator.procedures import ProcedureView
from controller.regions.procedures import crash
from controller.regions.procedures.messages import CRASH, LOG_TASK
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Operation, Result, Task
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region
from state_machines.regions.marks import LeftOut, LostPart, LostParts
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    ended,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

LOGGED = replace(OPTIONS, fence="log")


class Splitting(Server):
    """A server that can split all parts of a log but one. ``split``: those that it was to split."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.split: list[str] = []
        self.parts = ["good", "rotten"]
        self.bad = {"rotten"}

    def do(self, operation: Operation) -> Result:
        match operation:
            case Task(pid, "fence"):
                return Result(pid, protocol.DONE, parts=list(self.parts))
            case Task(pid, "split", part=part):
                self.split.append(part)
                if part in self.bad:
                    return Result(pid, protocol.FAILED, text="the file is gone")
        return super().do(operation)


def operator(term: RegionsTerm) -> ProcedureView:
    return ProcedureView(cast("RegionsDomain", SimpleNamespace(term=term, failed=False)))


def splitting(term: RegionsTerm) -> list[Record]:
    return [one for one in term.engine.live() if one.kind == "split_log"]


async def one_that_fails(term: RegionsTerm) -> Record:
    """Waits until a part is split in vain, and is the last one."""
    await until(lambda: len(splitting(term)) == 1 and b"the file is gone" in splitting(term)[0].data)
    return splitting(term)[0]


async def crashed(term: RegionsTerm) -> Region:
    """Creates a table, and crashes one of its servers; returns a region of that."""
    async with serving(Server(term, "a")):
        await ended(term, creates(term, regions=2))
    [region] = [one for one in regions_of(term) if str(one.server) == "a,1"]
    return region


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_crash_goes_on_without_a_part_that_an_operator_leaves_out(
    fails_over: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk, LOGGED) as term, serving(Splitting(term, "b")):
            region = await crashed(term)
            failing = await one_that_fails(term)
            told = explained(region, term.env, term.engine).server_because
            assert f"'regent regions procedures leave-out {failing.pid} --reason TEXT' does without the part" in told
            item = await operator(term).end("leave-out", failing.pid, "User:eve", "its disk is lost")
            task = CRASH.decode(term.engine.records[item.pid].data)
            assert task.lost == LostParts(
                (LeftOut((LostPart("rotten", failing.pid),), "User:eve", "its disk is lost"),), 1, (region.id,)
            )
            pid = item.pid
            if not fails_over:
                await _released(term, region.id, pid)
        if fails_over:
            async with running(disk, LOGGED) as term, serving(server := Splitting(term, "b")):
                await _released(term, region.id, pid)
                assert "rotten" not in server.split, "the parts are listed anew, and the same one is left out"

    caplog.set_level(logging.INFO, "regent")
    story()
    row = "crash: WAITING, a part of the log is left out by User:eve (part 'rotten', 1 regions: its disk is lost)"
    assert [one for one in caplog.messages if row in one]
    [line] = [one for one in caplog.messages if "is left out at the request of" in one]
    assert "'rotten'" in line
    assert "User:eve (its disk is lost)" in line
    assert "for its 1 regions" in line


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_part_that_is_to_be_left_out_once_more_is_left_out_already(fails_over: bool) -> None:
    """A response was lost, and the operator repeats the command: at once, after a failover, after the crash."""

    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk, LOGGED) as term, serving(Splitting(term, "b")):
            region = await crashed(term)
            failing = await one_that_fails(term)
            first = await operator(term).end("leave-out", failing.pid, "User:eve", "its disk is lost")
            again = await operator(term).end("leave-out", failing.pid, "User:eve", "its disk is lost")
            assert again.pid == first.pid
            if not fails_over:
                await _released(term, region.id, first.pid)
                again = await operator(term).end("leave-out", failing.pid, "User:eve", "its disk is lost")
                assert again.pid == first.pid
        if fails_over:
            async with running(disk, LOGGED) as term, serving(Splitting(term, "b")):
                await _released(term, region.id, first.pid)
                again = await operator(term).end("leave-out", failing.pid, "User:eve", "its disk is lost")
                assert again.pid == first.pid

    story()


@pytest.mark.parametrize("parts", [["slow", "rotten"], ["rotten", "slow"], ["rotten"]])
def test_a_failover_while_another_part_is_split_goes_round_no_part_that_is_left_out(parts: list[str]) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk, LOGGED) as term, serving(first := Splitting(term, "b")):
            first.parts, first.bad = parts, {"slow", "rotten"}
            region = await crashed(term)
            await until(lambda: all(b"the file is gone" in one.data for one in splitting(term)) and splitting(term))
            [rotten] = [one for one in splitting(term) if b"rotten" in one.data]
            pid = (await operator(term).end("leave-out", rotten.pid, "User:eve", "its disk is lost")).pid
        async with running(disk, LOGGED) as term, serving(server := Splitting(term, "b")):
            server.parts = parts
            await _released(term, region.id, pid)
            assert "rotten" not in server.split

    story()


async def _released(term: RegionsTerm, region: int, pid: int) -> None:
    await until(lambda: term.engine.records[pid].state.is_final)
    assert term.engine.records[pid].result == b"without 1 parts of its log, 'rotten' by User:eve: its disk is lost"
    assert str(term.env.model.regions[region].server) == "b,1"
    assert (term.env.left_out, ("a", 1) in term.env.model.servers) == ({}, False)


@pytest.mark.parametrize("fails_over", ["", "before its crash begins anew", "after that"])
def test_a_part_stays_left_out_where_an_operator_ends_the_crash(fails_over: str) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk, LOGGED) as term, serving(server := Splitting(term, "b")):
            server.parts, server.bad = ["good", "rotten", "slow"], {"rotten", "slow"}
            region = await crashed(term)
            await until(
                lambda: len(splitting(term)) == 2 and all(b"file is gone" in one.data for one in splitting(term))
            )
            [rotten, slow] = [one.pid for one in splitting(term)]
            first = (await operator(term).end("leave-out", rotten, "User:eve", "its disk is lost")).pid
            await until(lambda: [one.pid for one in splitting(term)] == [slow])
            await operator(term).end("bypass", slow, "User:eve", "")
            if fails_over != "before its crash begins anew":
                await until(lambda: [one for one in splitting(term) if one.parent != first])
            if not fails_over:
                server.split, server.bad = [], set()
                await _gone(term, region)
                assert "rotten" not in server.split
        if fails_over:
            async with running(disk, LOGGED) as term, serving(server := Splitting(term, "b")):
                server.parts = ["good", "rotten", "slow"]
                await _gone(term, region)
                assert set(server.split) >= {"slow"}
                assert "rotten" not in server.split

    story()


async def _gone(term: RegionsTerm, region: Region) -> None:
    """Waits until a crash has ended that went without a part."""
    results = [b"without 1 parts of its log, 'rotten' by User:eve: its disk is lost"]
    await until(lambda: str(term.env.model.regions[region.id].server) == "b,1")
    await until(lambda: [one.result for one in term.engine.ended() if one.kind == crash.NAME and not one.bypassed])
    assert [one.result for one in term.engine.ended() if one.kind == crash.NAME and not one.bypassed] == results


def test_long_names_and_a_long_reason_do_not_fill_the_record_of_a_crash() -> None:
    count = 60
    parts = [f"{number:03}" + "x" * 9_997 for number in range(count)]

    @virtual
    async def story() -> None:
        async with running(RegionDisk(), LOGGED) as term, serving(server := Splitting(term, "b")):
            server.parts, server.bad = parts, set(parts)
            region = await crashed(term)
            left = set(parts)
            while left:
                await until(lambda: splitting(term))
                for one in splitting(term):
                    left.discard(LOG_TASK.decode(one.data).part)
                    await operator(term).end("leave-out", one.pid, "User:eve", "why " * 250)
                await asyncio.sleep(0.01)
            await until(lambda: region.server is not None and str(region.server) == "b,1")
            [done] = [one for one in term.engine.ended() if one.kind == crash.NAME]
            assert len(done.data) < 20_000
            assert done.result.startswith(b"without 60 parts of its log, '000xxx")

    story()


@virtual
async def test_one_part_too_many_is_refused_with_what_helps_and_the_crash_goes_on() -> None:
    async with running(RegionDisk(), LOGGED) as term, serving(server := Splitting(term, "b")):
        server.parts, server.bad = [f"{number:03}" + "x" * 190 for number in range(800)], set()
        region = await crashed(term)
        refused = ""
        server.bad = set(server.parts)
        while not refused:
            for one in await until(lambda: splitting(term)):
                try:
                    await operator(term).end("leave-out", one.pid, "User:eve", "lost")
                except ViewRefused as error:
                    refused = str(error)
                    break
            await asyncio.sleep(0.01)
        assert "at most 131072 are stored" in refused
        assert "with an empty log in its place" in refused
        server.bad = set()
        await until(lambda: region.server is not None and str(region.server) == "b,1")


@virtual
async def test_what_cannot_be_left_out_is_refused_with_what_can() -> None:
    async with running(RegionDisk(), LOGGED) as term, serving(Splitting(term, "b")):
        await crashed(term)
        await until(lambda: [one for one in term.engine.live() if one.kind == "fence_log"])
        [fencing] = [one for one in term.engine.live() if one.kind == "fence_log"]
        for pid in (fencing.pid, fencing.parent, 12345):
            with pytest.raises(ViewRefused) as refused:
                await operator(term).end("leave-out", pid, "User:eve", "why not")
            assert "--kind split_log" in refused.value.remedy
        failing = await one_that_fails(term)
        with pytest.raises(Invalid, match="reason"):
            await operator(term).end("leave-out", failing.pid, "User:eve", "  ")
        assert splitting(term) == [failing]


@virtual
async def test_a_part_is_left_out_while_no_server_is_there_that_could_split_it() -> None:
    async with running(RegionDisk(), LOGGED) as term:
        server = Splitting(term, "b")
        async with serving(server):
            await crashed(term)
            await one_that_fails(term)
        await until(lambda: splitting(term)[0].pid in term.env.unplaced)
        await operator(term).end("leave-out", splitting(term)[0].pid, "User:eve", "lost")
        await asyncio.sleep(0.1)
        assert [one for one in splitting(term) if b"rotten" in one.data] == []
        assert [one.kind for one in term.engine.live() if one.step >= crash.ASSIGN] != []
