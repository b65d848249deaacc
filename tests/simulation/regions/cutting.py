"""Cuts all servers off from the daemons at the end of a run, for a lease: all of them keep their regions.

A balance that the daemon began by itself may move some before that or behind it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.simulation.regions.quiescence import unsettled

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

BACK_S_MAX: Final = 10.0
"""Longest time from the end of a cut until all serve again."""


async def cut_off(world: SimulatedRegions) -> None:
    """Has all links fail for a lease: each server is silent, and none has crashed."""
    await asyncio.sleep(world.options.lease_ms / 1000)  # until then some polls may be late by what went before
    if await _back(world):
        return  # a term ended late, as a server showed a minute after another one what it has seen
    world.note("-- cut")
    world.counts["cut off"] += 1
    before, moved = _owners(world), world.judge.balances.moved
    moved.clear()
    ends = [(server, daemon) for server in world.servers for daemon in world.daemons]
    world.network.broken.update(ends, [(daemon, server) for server, daemon in ends])
    await asyncio.sleep(world.options.lease_ms / 1000)
    world.network.broken.clear()
    why = await _back(world)
    after = {one: owner for one, owner in _owners(world).items() if owner.partition(",")[0] != moved.get(one)}
    if why or not after.items() <= before.items():
        world.violated("SilenceOfAll", f"{why or after} after all links were cut, {before} before")


async def _back(world: SimulatedRegions) -> str:
    """Waits until all is in order; returns what is not after a while."""
    ends_s = world.loop.now_s + BACK_S_MAX
    while (why := unsettled(world)) and world.loop.now_s < ends_s:  # noqa: ASYNC110  # as the runs wait for all
        await asyncio.sleep(0.5)
    return why


def _owners(world: SimulatedRegions) -> dict[int, str]:
    term = world.term
    return {} if term is None else {one.id: str(one.server) for one in term.env.model.regions.values()}
