"""Measures a failover while all regions are being opened, with answers by znodes (A1z failover)."""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.regions.by_znodes import SHAPE
from benchmarks.regions.plan import ROUNDS, Shape, disk, lag, row
from benchmarks.regions.world import TABLE, MeasuredRegions, until
from benchmarks.regions.zookeeper_world import Store, store
from benchmarks.results import Row
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.procedures.record import Caller
from state_machines.regions.states import RegionState
from state_machines.regions.unassigned import NodeState
from testing.embedded.process import free_port

OPENING: Final = NodeState.OPENING
HELD_MS: Final = 600_000
"""Time in which znodes that wait on purpose are not taken from their servers."""
LEASE_MS: Final = 30_000
"""All servers share a process, which begins with ten thousand opens at once."""


class Taken(NamedTuple):
    """A failover: seconds until the first open was sent or its result stored, and until all regions were open."""

    first_s: float
    all_s: float
    lag_ms: float


async def taken_over(shape: Shape = SHAPE, rounds: int = ROUNDS) -> list[Row]:
    """A1z failover: a daemon ends while all regions are being opened, and another one takes over."""
    taken: dict[bool, list[Taken]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        async with store(Path(name) / "zookeeper") as found:
            for number in range(rounds):
                for done in (False, True):
                    taken[done].append(await _taken(found, Path(name) / f"{number}-{done}", shape, done=done))
    return failover_rows(shape, taken)


async def _taken(found: Store, folder: Path, shape: Shape, *, done: bool) -> Taken:
    """Plays a round. ``done``: servers open the regions while there is no daemon, else after the first open is sent."""
    chroot, port = await found.chroot(), free_port()

    def daemon() -> AbstractAsyncContextManager[MeasuredRegions]:
        return found.daemon(
            folder,
            chroot,
            noded=True,
            servers_min=shape.servers,
            port=port,
            lease_ms=LEASE_MS,
            node_timeout_ms=HELD_MS,
        )

    async with AsyncExitStack() as stack:
        async with daemon() as before:
            servers = await stack.enter_async_context(found.servers(port, shape.servers, chroot, noded=True, held=True))
            await before.until(shape.servers)
            task = TABLE_TASK.encode(TableTask(TABLE, uniform=shape.regions))
            await before.term.engine.submit("create_table", task, Caller("benchmark"))
            await until(lambda: sum(one is not None and one.state is OPENING for one in found.nodes()) == shape.regions)
        if done:
            servers.tell(shape.regions)
            await servers.said()
        began_s = time.perf_counter()
        async with daemon() as after:
            table = after.term.env.model.tables[TABLE]
            await until(lambda: table.count(RegionState.OPEN) if done else after.term.env.dispatcher.sent)
            first_s = time.perf_counter() - began_s
            if not done:
                servers.tell(0)
            await until(lambda: table.count(RegionState.OPEN) == shape.regions)
            taken = Taken(first_s, time.perf_counter() - began_s, after.lag.take_ms())
    say(
        f"A1z {shape} failover{', opened meanwhile' if done else ''}: {taken.first_s:.2f} s, "
        f"all after {taken.all_s:.2f} s, lag {taken.lag_ms:.0f} ms"
    )
    return taken


def failover_rows(shape: Shape, taken: dict[bool, list[Taken]]) -> list[Row]:
    """Returns the rows of failovers. ``taken``: by whether the regions were opened meanwhile."""
    made: list[Row] = []
    for done, case, what in (
        (False, "A1z failover", "failover with as many opens under way until the first is sent again"),
        (True, "A1z failover done", "failover with as many opens done meanwhile until the first is stored"),
    ):
        found = row(case, shape, what, "s", [one.first_s for one in taken[done]])
        found.phases = {
            "regent": {"ms until all regions are open": statistics.median(one.all_s for one in taken[done]) * 1e3}
        }
        made += [found, lag(case, shape, [one.lag_ms for one in taken[done]])]
    return made
