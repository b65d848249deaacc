"""Operators who give commands as people do: by what the surface shows, and by what its refusals name.

Records are spoiled, too, as a disk or a newer daemon does; operators find what to do about that in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from controller.http.procedures import Procedure
from controller.regions.operator.counts import halted, stranded
from controller.regions.operator.regions import RegionQuery, region_page
from controller.regions.procedures import crash
from metadata_store.records.port import StoreFailed
from tests.simulation.regions.actions import region_at, verb
from tests.simulation.regions.invariants import readable
from tests.simulation.regions.operating import Operator, Refusal, acts

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import SimulatedRegions

PAGE: Final = 5_000
COMMANDS: Final = (
    "regions assign {region}",
    "regions unassign {region}",
    "regions move {region} {server}",
    "regions reopen {region}",
    "regions procedures bypass {pid}",
    "regions procedures abort {pid}",
    "regions procedures remove {pid}",
    "tables enable {table}",
    "tables disable {table}",
    "tables delete {table}",
    "servers drain {server}",
    "servers expire {server}",
)
"""Commands that an operator draws."""
TRIES: Final = 5
AGAIN_S: Final = 0.7
GOES_ON: Final = ("enable", "disable", "delete")
"""Commands that go on with a table that is on its way to another state."""


def operator_of(world: SimulatedRegions, server: str = "s1", table: str = "t1") -> Operator:
    return Operator(lambda: world.term, server, server, table, loses_edits=False)


def does(world: SimulatedRegions, work: Callable[[Operator], Awaitable[None]], operator: Operator) -> None:
    """Has an operator work at the active daemon; a term that ends meanwhile ends the work."""
    process = world.active
    if world.term is None or process is None or not process.alive:
        return

    async def done() -> None:
        try:
            await work(operator)
        except StoreFailed:
            world.counts["refused"] += 1

    process.start(done())


@verb
def operate(world: SimulatedRegions, number: str, name: str, table: str, server: str) -> None:
    """Gives a command; what refuses it has to name one that is accepted."""
    term, found = world.term, region_at(world, name)
    if term is None or found is None:
        return
    pids = sorted(one.pid for one in term.engine.live())
    pid = pids[int(name) % len(pids)] if pids else 1
    command = COMMANDS[int(number) % len(COMMANDS)]
    given = command.format(region=found[0], pid=pid, table=table, server=server)

    async def work(operator: Operator) -> None:
        told: list[str] = []
        for _ in range(TRIES):  # what is in the way may end meanwhile
            answer = await operator.does(given)
            if operator.term is not term or isinstance(answer, Procedure):
                return
            way = await operator.way_out(answer, found[0])
            if way.is_one:
                world.counts["ways out" if way.begun is not None else "nothing to do"] += 1
                return
            told.append(f"{answer.text}; tried {way.refused}")
            await asyncio.sleep(AGAIN_S)
        world.violated("WayOut", f"{given}: {told[-1]}")

    does(world, work, operator_of(world, server, table))


@verb
def spoil(world: SimulatedRegions, number: str, how: str) -> None:
    """Spoils a stored record, and kills the daemon: the next one cannot use it."""
    process = world.active
    records = [readable(pid, body) for pid, body in sorted(world.disk.bodies.items())]
    live = [one for one in records if one is not None and not one.state.is_final and one.kind != crash.NAME]
    if not live or process is None:
        return
    record = live[int(number) % len(live)]
    body = world.disk.bodies[record.pid]
    world.disk.bodies[record.pid] = (
        body[: len(body) // 2] if how == "torn" else body.replace(b'"kind":"', b'"kind":"new_')
    )
    if how != "torn":
        world.disk.bodies[record.pid] = world.disk.bodies[record.pid].rpartition(b"\n")[0]
    world.spoiled.add(record.root)
    world.counts["records spoiled"] += 1
    world.note(f"pid {record.pid} {record.kind} is spoiled ({how})")
    node = next(one for one in world.daemons.values() if one.process is process)
    node.kill()
    node.start_later(0.5)


# -- at rest


def settle(world: SimulatedRegions) -> None:
    """Goes on with what the surface shows to be left half-way, by the commands that it names."""
    if (term := world.term) is None:
        return
    does(world, lambda operator: _settled(world, term, operator), operator_of(world))


async def _settled(world: SimulatedRegions, term: RegionsTerm, operator: Operator) -> None:
    for pid in sorted(term.engine.unusable):
        refused = await operator.does(f"regions procedures bypass {pid}")
        if isinstance(refused, Refusal) and pid in term.engine.unusable:
            world.counts["records removed"] += 1
            for one in filter(acts, refused.commands):
                await operator.does(one)
    for name in halted(term.env.model, term.engine.records.values()):
        act = GOES_ON[world.chance.randrange(len(GOES_ON))]
        await operator.does(f"tables {act} {name}")
    shown = region_page(term.env, RegionQuery(PAGE, stranded=True)).items
    if stranded(term.env.model).total() != len(shown):
        world.violated("Shown", f"{stranded(term.env.model).total()} regions are stranded, {shown} are listed")
    for region in (*shown, *region_page(term.env, RegionQuery(PAGE, state="failed_open")).items):
        for one in filter(acts, operator.explains(region.id)):
            if isinstance(await operator.does(operator.filled(one)), Procedure):
                break
