"""A region that was moved rests: drains and operators leave it, crashes, leaving servers and --force do not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.exit_codes import Exit
from controller.regions.environment import Options
from controller.regions.procedures import servers
from controller.regions.procedures.messages import CRASH, Crash
from regent_agent import protocol
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.placement import Cooldown
from tests.kit.command import items, regent, unwrapped
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import settings_of, world_in_thread
from tests.kit.regions.term import OPERATOR, Stage, stage

LONG = Options(lease_ms=1_000, startup_wait_ms=0, move_cooldown_ms=3_600_000)


def test_a_region_rests_for_its_time_and_is_forgotten_then() -> None:
    found = Cooldown(100)
    found.moved(1, 0)
    found.moved(2, 50)
    assert [found.left_ms(one, 60) for one in (1, 2, 3)] == [40, 90, 0]
    found.moved(1, 99)
    assert (found.left_ms(1, 120), len(found)) == (79, 2)
    found.moved(3, 1_000)
    assert len(found) == 1
    assert (found.left_ms(3, 1_100), found.left_ms(1, 1_000)) == (0, 0)


def test_without_a_time_nothing_is_kept() -> None:
    found = Cooldown(0)
    found.moved(1, 5)
    assert (found.left_ms(1, 5), len(found)) == (0, 0)


async def moved(found: Stage) -> list[Region]:
    """Has two regions at s1, one of which was moved there; s2 has none."""
    await found.join("s1")
    await found.join("s2")
    await found.create("t", 2)
    regions = found.term.env.model.tables["t"].regions
    [other] = [one for one in regions if one.server is not None and one.server.name == "s2"]
    assert (await found.move("t", other.id, "s1")).state is State.SUCCESS
    return [other, *(one for one in regions if one is not other)]


def names(regions: list[Region]) -> list[str]:
    return [one.server.name if one.server is not None else "" for one in regions]


async def drained(found: Stage, *, force: bool) -> int:
    task = CRASH.encode(Crash("s1", 1, force=force))
    return await found.term.engine.submit(servers.DRAIN, task, OPERATOR)


async def test_a_drain_leaves_it_until_it_has_rested(tmp_path: Path) -> None:
    options = Options(lease_ms=1_000, startup_wait_ms=0, move_cooldown_ms=4_000)
    async with stage(tmp_path, options=options) as found:
        regions, clock = await moved(found), found.term.env.clock
        since_s = clock() - (4_000 - found.term.env.cooldown.left_ms(regions[0].id, found.term.env.now_ms())) / 1000
        pid = await drained(found, force=False)
        await found.until(lambda: names(regions) == ["s1", "s2"])
        record: Record = await found.term.engine.result(pid)
        assert record.state is State.SUCCESS
        assert names(regions) == ["s2", "s2"]
        assert clock() - since_s >= 4


async def test_a_forced_drain_a_crash_and_a_server_that_leaves_do_not_wait(tmp_path: Path) -> None:
    for number, act in enumerate(("drain", "crash", "leave")):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with stage(folder, options=LONG) as found:
            regions = await moved(found)
            if act == "drain":
                await drained(found, force=True)
            elif act == "crash":
                found.members[0].kill()
            else:
                await found.term.service.handle(protocol.Leave("s1", 1, found.term.manager.epoch))
            await found.until(lambda regions=regions: names(regions) == ["s2", "s2"])  # type: ignore[misc]


async def test_a_server_that_leaves_does_not_wait_for_a_drain_that_lets_regions_rest(tmp_path: Path) -> None:
    async with stage(tmp_path, options=LONG) as found:
        regions = await moved(found)
        pid = await drained(found, force=False)
        await found.until(lambda: names(regions) == ["s1", "s2"])
        await found.term.service.handle(protocol.Leave("s1", 1, found.term.manager.epoch))
        await found.until(lambda: names(regions) == ["s2", "s2"])
        assert (await found.term.engine.result(pid)).state is State.SUCCESS


async def test_the_next_daemon_knows_that_a_forced_drain_waits_for_another_one(tmp_path: Path) -> None:
    async with stage(tmp_path, options=LONG) as found:
        await moved(found)
        for force in (False, True):
            await drained(found, force=force)
    async with stage(tmp_path, options=LONG) as later:
        assert later.term.env.model.servers["s1", 1].forced


async def test_a_close_and_a_reopen_do_not_wait_and_a_reopen_is_no_move(tmp_path: Path) -> None:
    async with stage(tmp_path, options=LONG) as found:
        regions = await moved(found)
        assert (await found.close("t", regions[0].id)).state is State.SUCCESS
        assert (await found.assign("t", regions[0].id)).state is State.SUCCESS
        assert len(found.term.env.cooldown) == 1


def test_an_operators_second_move_is_refused_without_force(tmp_path: Path) -> None:
    with world_in_thread(settings_of(tmp_path, move_cooldown_ms=3_600_000)) as blocking:
        at = ("--server", blocking.socket)
        items("tables", "create", "t", "--wait", *at)
        [region] = items("regions", "list", *at)
        here = region["server"]
        there = "s2" if here == "s1" else "s1"
        items("regions", "move", region["id"], there, "--wait", *at)
        refused = unwrapped(regent("regions", "move", region["id"], here, *at, code=Exit.REFUSED).stderr)
        assert "was moved a moment ago: it rests for" in refused
        assert "(regions.move_cooldown_ms), move it then, or with --force" in refused
        assert "until then only --force moves it again" in regent("regions", "explain", region["id"], *at).stdout
        items("regions", "reopen", region["id"], "--wait", *at)
        [drain] = items("servers", "drain", there, *at)
        [shown] = items("regions", "procedures", "show", drain["pid"], *at)
        assert "1 of them rest after a move (regions.move_cooldown_ms)" in shown["progress"]
        items("regions", "move", region["id"], here, "--force", "--wait", *at)
        assert items("regions", "list", *at)[0]["server"] == here


def state_of(pid: int, *at: object) -> str:
    [shown] = items("regions", "procedures", "show", pid, *at)
    return str(shown["state"])


def test_a_forced_drain_does_not_wait_for_one_that_lets_regions_rest(tmp_path: Path) -> None:
    with world_in_thread(settings_of(tmp_path, move_cooldown_ms=3_600_000)) as blocking:
        at = ("--server", blocking.socket)
        items("tables", "create", "t", "--wait", *at)
        [region] = items("regions", "list", *at)
        here = region["server"]
        there = "s2" if here == "s1" else "s1"
        items("regions", "move", region["id"], there, "--wait", *at)
        [drain] = items("servers", "drain", there, *at)
        items("servers", "drain", there, "--force", "--dry-run", *at)
        asyncio.run(eventually(lambda: state_of(drain["pid"], *at) == "waiting_timeout"))
        items("servers", "drain", there, "--force", "--wait", "--timeout", "20", *at)
        assert state_of(drain["pid"], *at) == "success"
        assert items("regions", "list", *at)[0]["server"] == here
