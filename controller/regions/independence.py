"""Takes the word of servers that regions have data of their own, and need that of others no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from controller.regions.environment import RegionsEnv
from metadata_store.catalog.rows import Drop, HeirRow, Write
from regent_agent.protocol import Owned
from state_machines.regions.model import Server
from state_machines.regions.states import RegionState

TOGETHER: Final = 100
"""Regions that one write enters."""


async def take(
    env: RegionsEnv, write: Callable[[Sequence[Write]], Awaitable[None]], server: Server, regions: Sequence[Owned]
) -> list[int]:
    """Enters which regions are independent, durably; returns those that are to be named again.

    The word of a server that does not own a region, or about an open before the present one, counts nothing.
    """
    model = env.model
    again, mine = list[int](), list[int]()
    for one in regions:
        region = model.regions.get(one.region)
        if region is None or region.server is not server or one.region not in model.sources:
            continue
        if region.state is RegionState.OPENING and region.opening == one.token:
            again.append(one.region)  # its open is not durable yet, and may come to nothing
        elif region.token == one.token:
            mine.append(one.region)
    for at in range(0, len(mine), TOGETHER):
        some = mine[at : at + TOGETHER]
        await write(tuple(Drop(HeirRow, (region,)) for region in some))
        for id_ in some:
            if model.sources.pop(id_, None) is not None and (region := model.regions.get(id_)) is not None:
                env.journal.independent(region, server)
    return again
