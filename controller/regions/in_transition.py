"""Measures for how long regions are in transition, and logs those that hang, with what each waits for.

The age counts from the begin of their procedure, else from their last change. A crash may have a hundred thousand
regions in transition, so a turn of the loop looks at some thousands of them. It only tells (HBase ``RIT`` chore): no
region is assigned anew for it, because time says nothing about what a server did.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from controller.procedures.engine import Engine
from controller.regions.environment import RegionsEnv
from regent_agent.protocol import INHERIT
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState, ServerState

log = logging.getLogger("regent.regions")

SLICE: Final = 5_000
"""Regions that one turn of the loop looks at: some milliseconds."""
LATE_MAX: Final = 3
"""Regions in transition for too long that are named; the others are counted."""
COUNT_EVERY_S: Final = 5.0
"""Pause between two counts; where more regions than ``SLICE`` are in transition, the latest one is shown."""
Ranked: TypeAlias = tuple[int, int, Region]
"""A region with its negative age and its id, so that the oldest one is the least."""
SHOWN_MAX: Final = 20
"""Regions that have a line of their own in one look; the others are counted."""
S = RegionState


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


class Wait(NamedTuple):
    """What a region in transition waits for, and what an operator can do about it."""

    what: str
    remedy: str


def wait_of(region: Region, env: RegionsEnv) -> Wait:
    """Returns what a region in transition waits for."""
    server = region.server
    if region.pid in env.unplaced and region.id in env.model.sources and env.servers():
        what = f'a server with the feature "{INHERIT}" comes'
        return Wait(what, "its data begins in that of others: start a version of a server that has the feature")
    if region.pid in env.unplaced:
        return Wait("a server comes that may get regions", "start one: 'regent servers list' has those that are there")
    if region.pid in env.claimants.held:
        what = f"no server can have it: {env.claimants.why_held(region)}"
        return Wait(what, "where such a server is gone for good, 'regent servers expire NAME' has it fenced")
    if server is not None and server.state is ServerState.CRASHED:
        return Wait(f"{server} is fenced and its log split", "see the procedure 'crash' of that server")
    if region.pid and server is not None and region.state in (S.OPENING, S.CLOSING):
        done = "opened" if region.state is S.OPENING else "closed"
        remedy = f"see its log, and where it hangs end it, or 'regent servers expire {server.name}'"
        return Wait(f"{server} has {done} it", remedy)
    if region.pid and env.causes.of(region.pid):
        return Wait("an open of it succeeds", f"see 'regent regions explain {region.id}'")
    if region.pid:
        return Wait("its procedure goes on", f"see 'regent regions explain {region.id}'")
    return Wait("a procedure begins", f"have it assigned: 'regent regions assign {region.id}'")


async def tell_overdue(env: RegionsEnv, records: Mapping[int, Record], threshold_ms: int) -> int:
    """Logs the regions that are late, at most ``SHOWN_MAX`` of them by name; returns how many there are."""
    found, count = await oldest(env, records, SHOWN_MAX, threshold_ms)
    for region, age, record in found:
        ppid = f" ppid={record.parent}" if record is not None and record.parent else ""
        kind = f" {record.kind}" if record is not None else ""
        why = f" after {record.attempts} attempts in vain ({record.error})" if record and record.attempts else ""
        if cause := env.causes.of(region.pid):
            why += f"; in the last attempt {cause}"
        wait = wait_of(region, env)
        log.warning(
            "pid=%d%s%s: region=%s is %s for %.0f s, server=%s; it waits until %s%s: %s",
            *(region.pid, ppid, kind, region, region.state.name, age / 1000, region.server or "none"),
            *(wait.what, why, wait.remedy),
        )
    if count > SHOWN_MAX:
        log.warning(
            "%d more regions are in transition for over %.0f s: see 'regent regions transitions'",
            *(count - SHOWN_MAX, threshold_ms / 1000),
        )
    return count
