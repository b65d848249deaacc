"""Measures for how long regions are in transition: since their procedures began, else since their last change.

A crash may have a hundred thousand regions in transition. So a turn of the loop looks at some thousands of them.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from controller.procedures.engine import Engine
from controller.regions.environment import RegionsEnv
from state_machines.procedures.record import Record
from state_machines.regions.model import Region

SLICE: Final = 5_000
"""Regions that one turn of the loop looks at: some milliseconds."""
LATE_MAX: Final = 3
"""Regions in transition for too long that are named; the others are counted."""
COUNT_EVERY_S: Final = 5.0
"""Pause between two counts; where more regions than ``SLICE`` are in transition, the latest one is shown."""


Ranked: TypeAlias = tuple[int, int, Region]
"""A region with its negative age and its id, so that the oldest one is the least."""


class Aged(NamedTuple):
    """A region in transition, and for how long it is. ``record``: of its procedure, if it has one."""

    region: Region
    age_ms: int
    record: Record | None


class Transit(NamedTuple):
    """Regions in transition. ``overdue``: those that are in it for too long; ``oldest_ms``: age of the oldest."""

    regions: int
    overdue: int
    oldest_ms: int


class Ages:
    """Counts the regions in transition of a term. ``overdue_ms``: age above which a region is overdue."""

    def __init__(self, env: RegionsEnv, engine: Engine[RegionsEnv], overdue_ms: int) -> None:
        self._env, self._engine, self._overdue_ms = env, engine, overdue_ms
        self._kept = Transit(0, 0, 0)
        self._kept_late: list[Ranked] = []

    async def keep(self) -> None:
        """Counts again and again, for those that cannot wait for a count in slices."""
        while True:
            await self.count()
            await asyncio.sleep(COUNT_EVERY_S)

    async def count(self) -> None:
        """Counts in slices, and keeps the result."""
        regions = overdue = oldest_ms = 0
        late: list[Ranked] = []
        async for some in _slices(self._env):
            ages = _ages(self._env, self._engine.records, some)
            over = _over(ages, some, self._overdue_ms)
            regions, overdue = regions + len(ages), overdue + len(over)
            oldest_ms = max([oldest_ms, *ages])
            late = heapq.nsmallest(LATE_MAX, chain(late, over))
        self._kept, self._kept_late = Transit(regions, overdue, oldest_ms), late

    def present(self) -> Transit:
        """Returns the present count; of very many regions the latest one, with their present number."""
        transit = self._env.model.transit
        if len(transit) > SLICE:
            return self._kept._replace(regions=len(transit))
        return counted(self._env, self._engine.records, transit.values(), self._overdue_ms)

    def late(self) -> list[Aged]:
        """Returns the oldest of the regions that are overdue; of very many those of the latest count."""
        transit = self._env.model.transit
        found = self._kept_late
        if len(transit) <= SLICE:
            some = transit.values()
            found = _over(_ages(self._env, self._engine.records, some), some, self._overdue_ms)
        return _aged(self._env, self._engine.records, heapq.nsmallest(LATE_MAX, found))


def age_ms(region: Region, record: Record | None, env: RegionsEnv) -> int:
    """Returns how long a region waits: since its procedure began, over all its attempts; else since its last change."""
    return max(0, env.now_ms() - region.changed_ms if record is None else env.wall_ms() - record.submitted_ms)


def counted(env: RegionsEnv, records: Mapping[int, Record], some: Iterable[Region], overdue_ms: int) -> Transit:
    """Counts some regions by age."""
    ages = _ages(env, records, some)
    return Transit(len(ages), sum(age > overdue_ms for age in ages), max(0, max(ages, default=0)))


async def oldest(
    env: RegionsEnv, records: Mapping[int, Record], count_max: int, over_ms: float = -math.inf
) -> tuple[list[Aged], int]:
    """Returns the oldest regions in transition, the first one first, and how many are older than ``over_ms``."""
    found: list[Ranked] = []
    count = 0
    async for some in _slices(env):
        matches = _over(_ages(env, records, some), some, over_ms)
        count += len(matches)
        if matches:
            found = heapq.nsmallest(count_max, chain(found, matches))
    return _aged(env, records, found), count


def _over(ages: Iterable[int], some: Iterable[Region], over_ms: float) -> list[Ranked]:
    """Returns those of some regions that are older than ``over_ms``."""
    return [(-age, one.id, one) for age, one in zip(ages, some, strict=True) if age > over_ms]


def _aged(env: RegionsEnv, records: Mapping[int, Record], found: Iterable[Ranked]) -> list[Aged]:
    """Returns those that are in transition still, with their procedures."""
    transit = env.model.transit
    still = ((age, one) for age, id_, one in found if transit.get(id_) is one)
    return [Aged(one, max(0, -age), records.get(one.pid)) for age, one in still]


def _ages(env: RegionsEnv, records: Mapping[int, Record], some: Iterable[Region]) -> list[int]:
    """Returns the ages of regions; it reads each clock once."""
    now_ms, wall_ms, of = env.now_ms(), env.wall_ms(), records.get
    return [
        now_ms - one.changed_ms if (record := of(one.pid)) is None else wall_ms - record.submitted_ms for one in some
    ]


async def _slices(env: RegionsEnv) -> AsyncIterator[list[Region]]:
    """Yields the regions in transition, some thousands in a turn; those that have left it meanwhile are left out."""
    transit = env.model.transit
    left = iter(list(transit.values()))
    while some := list(islice(left, SLICE)):
        yield [one for one in some if transit.get(one.id) is one]
        await asyncio.sleep(0)
