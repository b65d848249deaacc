"""Takes the word of servers that regions need the data of others no more, and begins the discard of what none needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from controller.regions.environment import RegionsEnv
from controller.regions.procedures import discard
from metadata_store.catalog.rows import Drop, HeirRow, Write
from regent_agent.protocol import Owned
from state_machines.regions.entities import Region, Server
from state_machines.regions.states import RegionState

TOGETHER: Final = 100
"""Regions that one write enters, and discards that begin at a time."""
UNDER_WAY_MAX: Final = 1_000
"""Discards that go on at a time: each looks for its result once a second. The next ones begin as some end."""
EVERY_S: Final = 1.0


async def take(
    env: RegionsEnv, write: Callable[[Sequence[Write]], Awaitable[None]], server: Server, regions: Sequence[Owned]
) -> list[int]:
    """Enters which regions are independent, durably; returns those that are to be named again.

    The word of a server that does not own a region, or about an open before the present one, counts nothing. Each write
    takes time, in which regions are closed and opened: those of the next one are judged after it.
    """
    model, again = env.model, list[int]()
    for some in (regions[at : at + TOGETHER] for at in range(0, len(regions), TOGETHER)):
        mine = list[int]()
        for one in some:
            region = model.regions.get(one.region)
            if region is None or region.server is not server or one.region not in model.sources:
                continue
            if region.state is RegionState.OPENING:  # the message of this open names the sources again
                if region.opening == one.token:
                    again.append(one.region)  # its open is not durable yet, and may come to nothing
            elif region.token == one.token and not _may_be_over(env, region):
                mine.append(one.region)
        if mine:
            env.unanswered_words.update(dict.fromkeys(mine, server))
            await write(tuple(Drop(HeirRow, (region,)) for region in mine))
        for id_ in mine:
            env.unanswered_words.pop(id_, None)
            if model.sources.pop(id_, None) is not None and (region := model.regions.get(id_)) is not None:
                env.journal.independent(region, server)
    return again


def tell_unanswered(env: RegionsEnv) -> None:
    """Notes in the journal whose independence may be stored or not: the term ends before the store has responded."""
    for id_, server in env.unanswered_words.items():
        if (region := env.model.regions.get(id_)) is not None:
            env.journal.independent(region, server, answered=False)


def _may_be_over(env: RegionsEnv, region: Region) -> bool:
    """Checks whether a region may have been opened since the store was copied.

    Its owner does not list it, or a server lists it with a higher token. That open was told the sources again, so the
    data that the word is about may count nothing any more.
    """
    return region.doubtful or env.contradictions.token(region.id) > region.token


class Discards:
    """Looks once a second for regions that were split or merged, and whose data no region needs, also after a failover.

    ``start``: submits a procedure with a nonce; ``goes_on``: checks whether the one with a nonce is there.
    """

    def __init__(
        self, env: RegionsEnv, start: Callable[[str, bytes, str], bool], goes_on: Callable[[str], bool]
    ) -> None:
        self._env, self._start, self._goes_on = env, start, goes_on
        self._next_s = 0.0

    def begin(self) -> None:
        """Begins some discards; forgets the times of regions that went with their table."""
        env = self._env
        if not env.parents_ms or env.clock() < self._next_s:
            return
        self._next_s = env.clock() + EVERY_S
        for gone in env.parents_ms.keys() - env.model.parents.keys():
            del env.parents_ms[gone]
        begun = 0
        for parent in discard.due(env.model)[:UNDER_WAY_MAX]:
            if self._goes_on(nonce := f"discard of region {parent.id}"):
                continue
            if begun == TOGETHER or not self._start(*discard.discarding(parent), nonce):
                return
            begun += 1
