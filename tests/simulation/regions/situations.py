"""States of tables, regions, servers and procedures in which nothing goes on by itself, each as a short story.

A situation leaves ``case.pid``: the procedure that is stuck in it, if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from controller.http.procedures import Procedure
from controller.regions.environment import Options
from controller.regions.procedures.messages import MOVE, Move
from metadata_store.records import codec
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kit.regions.world import OPTIONS
from tests.simulation.regions.cases import Case
from tests.simulation.regions.operating import Refusal

FAILED_TWICE_S = 3.0
"""Time in which an attempt fails again and again."""

Story = Callable[[Case], Awaitable[None]]
SITUATIONS: dict[str, tuple[Options, Story]] = {}


def situation(**options: object) -> Callable[[Story], Story]:
    """Registers a story under its name."""

    def register(story: Story) -> Story:
        wanted = replace(OPTIONS, startup_wait_ms=0, **options)
        SITUATIONS[story.__name__.replace("_", " ")] = wanted, story
        return story

    return register


@situation()
async def an_enabled_table(case: Case) -> None:
    await case.begin("a", "b")
    await case.created()


@situation()
async def a_disabled_table(case: Case) -> None:
    await an_enabled_table(case)
    await case.done("tables disable t")


@situation()
async def a_creation_whose_opens_hang(case: Case) -> None:
    await case.begin("a", "b")
    case.faulty(open="hangs")
    await case.runs("tables create t")
    await case.reaches(case.hangs)


@situation()
async def a_creation_whose_opens_fail(case: Case) -> None:
    await case.begin("a", "b")
    case.faulty(open="fails")
    await case.runs("tables create t")
    await asyncio.sleep(FAILED_TWICE_S)


@situation()
async def a_creation_without_a_server(case: Case) -> None:
    await case.begin()
    await case.runs("tables create t")
    await case.reaches(lambda: case.term.env.unplaced)


@situation()
async def a_move_whose_close_hangs(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("a", close="hangs")
    await case.runs(f"regions move {case.region.id} b")
    await case.reaches(case.hangs)


@situation()
async def a_move_whose_open_hangs(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("b", open="hangs")
    await case.runs(f"regions move {case.region.id} b")
    await case.reaches(case.hangs)


@situation()
async def a_reopening_whose_opens_fail(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty(open="fails")
    await case.runs(f"regions reopen {case.region.id}")
    await asyncio.sleep(FAILED_TWICE_S)


@situation()
async def a_close_that_hangs(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("a", close="hangs")
    await case.runs(f"regions unassign {case.region.id}")
    await case.reaches(case.hangs)


@situation()
async def a_close_that_fails(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("a", close="fails")
    await case.runs(f"regions unassign {case.region.id}")
    await asyncio.sleep(FAILED_TWICE_S)


@situation()
async def an_unassigned_region(case: Case) -> None:
    await an_enabled_table(case)
    await case.done(f"regions unassign {case.region.id}")


@situation(open_attempts_max=1)
async def a_region_that_failed_to_open(case: Case) -> None:
    await case.begin("a", "b")
    case.faulty(open="fails")
    await case.created()


@situation()
async def a_disable_whose_close_hangs(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("a", close="hangs")
    await case.runs("tables disable t")
    await case.reaches(case.hangs)


@situation()
async def a_disable_behind_opens_that_fail(case: Case) -> None:
    await a_reopening_whose_opens_fail(case)
    case.faulty(close="hangs")
    await case.runs("tables disable t")
    await asyncio.sleep(1.0)


@situation()
async def an_enable_whose_opens_fail(case: Case) -> None:
    await a_disabled_table(case)
    case.faulty(open="fails")
    await case.runs("tables enable t")
    await asyncio.sleep(FAILED_TWICE_S)


@situation(fence="log")
async def a_crash_whose_log_cannot_be_fenced(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("b", fence="fails")
    case.actors["a"].stop()
    await case.stuck_in("fence_log")


@situation(fence="log")
async def a_crash_whose_log_cannot_be_split(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("b", split="fails")
    case.actors["a"].stop()
    await case.stuck_in("split_log")


@situation(fence="command", fence_command=("fence",))
async def a_crash_whose_fence_command_fails(case: Case) -> None:
    await an_enabled_table(case)
    case.command_fails = True
    case.actors["a"].stop()
    await case.stuck_in("crash")


@situation()
async def a_crash_whose_regions_cannot_be_opened(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("b", open="fails")
    case.actors["a"].stop()
    await case.stuck_in("assign")


@situation()
async def a_crash_that_a_hold_delays(case: Case) -> None:
    await an_enabled_table(case)
    await case.done("servers hold a")
    case.actors["a"].stop()
    await case.reaches(lambda: [one for one in case.live("crash") if one.step == 3])
    [case.pid] = [one.pid for one in case.live("crash")]


@situation()
async def a_drain_whose_close_hangs(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("a", close="hangs")
    await case.runs("servers drain a")
    await case.reaches(case.hangs)


@situation()
async def a_drain_without_another_server(case: Case) -> None:
    await an_enabled_table(case)
    await case.done("servers cordon b")
    case.faulty("a", close="hangs")
    found = await case.operator.does("servers drain a")
    assert isinstance(found, Refusal | Procedure)
    case.pid = 0 if isinstance(found, Refusal) else found.pid
    await asyncio.sleep(1.0)


@situation()
async def a_stray_that_hangs(case: Case) -> None:
    await an_enabled_table(case)
    case.faulty("a", close="hangs")
    case.actors["a"].process.has[9_999] = 9
    assert case.server is not None
    case.term.env.dispatcher.list_regions(case.server)
    await case.stuck_in("close_stray")


@situation(lease_ms=60_000)
async def a_region_held_for_a_silent_server(case: Case) -> None:
    await an_unassigned_region(case)
    case.actors["b"].process.end()
    case.actors["b"].restarts = False
    await case.fail_over()
    await asyncio.sleep(1.0)
    await case.runs(f"regions assign {case.region.id}")
    await asyncio.sleep(1.0)


@situation()
async def records_of_a_move_that_cannot_be_used(case: Case) -> None:
    await an_unassigned_region(case)
    region = case.region.id
    case.pid = case.disk.last_pid + 1
    case.disk.last_pid += 2
    body = MOVE.encode(Move(region, "t", "b"))
    for one in (
        Record(case.pid, "move", State.WAITING, 1, 1, 1, data=body, done=(0,), born=(case.pid + 1,)),
        Record(case.pid + 1, "newer", State.RUNNABLE, 0, 1, 1, parent=case.pid, ancestors=(case.pid,)),
    ):
        case.disk.bodies[one.pid] = codec.sealed(one)
    await case.fail_over()
    await asyncio.sleep(1.0)
