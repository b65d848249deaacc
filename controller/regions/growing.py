"""Splits regions that are too large or too busy by themselves, and merges small neighbours; paced, and logged.

A look goes over the loads of all regions, some hundred in a turn of the loop, and begins a few splits and merges.
Nothing begins while anything is wrong with servers or the table. Each procedure judges its regions again as it begins.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

import msgspec

from controller.procedures.engine import Engine
from controller.process.wording import in_bytes
from controller.regions.environment import RegionsEnv
from controller.regions.growth_judge import Judge, figures
from controller.regions.manager import ITSELF, Manager
from controller.regions.procedures import merge, split
from controller.regions.procedures.messages import SHAPE, Shape
from controller.regions.procedures.reshaping import MERGE, SPLIT
from state_machines.procedures.record import Caller
from state_machines.procedures.transition import Transition
from state_machines.regions.entities import Region, Table, start_of
from state_machines.regions.growth import Bar, Cause, Policy, Seen, bar_of, is_mergeable, split_bar, split_cause

log = logging.getLogger("regent.regions")

LOOK_S: Final = 10.0
"""Least pause between two looks."""
PAUSE_OF_LOOK: Final = 20
"""A look is followed by a pause of that many times its length."""
PIECE: Final = 500
"""Regions that are judged in one turn of the loop."""
KEPT: Final = 10
"""Times as many changes as may begin in a minute, which a look keeps before it drops the lightest."""
MINUTE_S: Final = 60.0
KINDS: Final = frozenset({SPLIT, MERGE})
FIRST: Final = {Cause.LOAD: 2, Cause.SIZE: 1, Cause.SMALL: 0}
"""Of two changes that are wanted, the one whose cause has the higher number begins first."""


class Wanted(NamedTuple):
    """A split of one region, or a merge of two, that may begin. ``weight``: of two the heavier one begins first."""

    weight: tuple[int, float]
    ids: tuple[int, ...]
    regions: tuple[Region, ...]
    cause: Cause
    why: str


class Growth:
    """Looks again and again, and begins changes. ``begun``: counts them by cause, over all terms of the process."""

    def __init__(
        self, env: RegionsEnv, engine: Engine[RegionsEnv], manager: Manager, judge: Judge, begun: Counter[str]
    ) -> None:
        self._env, self._engine, self._manager, self.judge, self._begun = env, engine, manager, judge, begun
        self._begun_s: deque[float] = deque()
        self._told = ""
        self.above: Counter[Bar] = Counter()
        """Regions that are to be split, and are not, by what keeps that from beginning, as of the latest look."""

    async def keep(self) -> None:
        """Looks again and again, for a small part of the loop's time."""
        while True:
            await asyncio.sleep(LOOK_S)
            began_s = self._env.clock()
            await self.look()
            await asyncio.sleep(PAUSE_OF_LOOK * (self._env.clock() - began_s))

    async def look(self) -> None:
        """Judges all regions once, and begins what is wanted and may begin."""
        found, splits, above = list[Wanted](), 0, Counter[Bar]()
        most = self._env.options.reshapes_per_minute_max
        if not len(self._env.loads):
            self.above = above
            return
        why = self.judge.of_domain()
        changing = {} if why else self.judge.changing()
        for number, table in enumerate(list(self._env.model.tables.values()), 1):
            if policy := self.judge.policy(table):
                bar = Bar.DOMAIN if why else Bar.TABLE if self.judge.of_table(table, changing) else None
                async for one in self._of_table(table, policy, bar, above):
                    splits += one.cause is not Cause.SMALL
                    found.append(one)
                    if len(found) > KEPT * most:
                        found = nlargest(most, found)
            if number % PIECE == 0:
                await asyncio.sleep(0)
        above[Bar.BUDGET] = splits - (await self._begin(nlargest(most, found)) if found else 0)
        self.above = +above
        self._tell(why if above[Bar.DOMAIN] else "")

    async def _of_table(
        self, table: Table, policy: Policy, bar: Bar | None, above: Counter[Bar]
    ) -> AsyncIterator[Wanted]:
        """Yields what is wanted of a table, some regions in a turn of the loop."""
        before: Region | None = None
        at = 0
        while some := self._piece(table, at):
            for one in self._of(before, some, policy, bar, above):
                yield one
            before, at = some[-1], bisect_right(table.regions, some[-1].start, key=start_of)
            await asyncio.sleep(0)

    def _piece(self, table: Table, at: int) -> Sequence[Region]:
        """Returns some regions of a table; none of one that is gone."""
        return table.regions[at : at + PIECE] if self._env.model.tables.get(table.name) is table else ()

    def _of(
        self, before: Region | None, some: Sequence[Region], policy: Policy, bar: Bar | None, above: Counter[Bar]
    ) -> Iterator[Wanted]:
        """Yields what is wanted of some regions, and counts the splits that may not begin. ``bar``: of the table."""
        loads, judge = self._env.loads, self.judge
        known = None if before is None else Seen(*figures(loads.of(before)))
        for region in some:
            load = loads.of(region)
            seen = Seen(*figures(load))
            if (cause := split_cause(seen, policy)) is not None:
                found = bar or split_bar(judge.seen(region, load), len(region.table.regions), policy)
                if found is not None:
                    above[found] += 1
                else:
                    yield _split(region, seen, cause)
            elif before is not None and known is not None and is_mergeable(known, seen, policy) and bar is None:
                pair = before, region
                if before.end == region.start and not any(bar_of(judge.seen(one, loads.of(one))) for one in pair):
                    yield _merge(before, region, (known.size_bytes or 0) + (seen.size_bytes or 0))
            before, known = region, seen

    # -- what begins

    async def _begin(self, found: Sequence[Wanted]) -> int:
        """Begins what is wanted, as far as that may be; returns how many splits have begun."""
        options, begun = self._env.options, 0
        live, taken = sum(one.kind in KINDS for one in self._engine.live()), set[int]()
        for one in found:
            while self._begun_s and self._begun_s[0] <= self._env.clock() - MINUTE_S:
                self._begun_s.popleft()
            room = live < options.reshapes_max and len(self._begun_s) < options.reshapes_per_minute_max
            if not taken.isdisjoint(one.ids):
                continue
            taken.update(one.ids)
            if room and not self.judge.of_domain() and await self._start(one):
                live += 1
                begun += one.cause is not Cause.SMALL
        return begun

    async def _start(self, wanted: Wanted) -> bool:
        """Submits the procedure of a change; False where that is not possible now."""
        env, regions = self._env, wanted.regions
        kind = SPLIT if len(regions) == 1 else MERGE
        nonce = self._nonce(kind, wanted)
        problem = split.split_problem(env, regions[0], b"") if kind == SPLIT else merge.merge_problem(env, regions)
        if problem is not None:
            self.judge.failed(wanted.ids, str(problem))
        if problem is not None or not nonce:
            return False
        if kind == SPLIT:
            data = await split.splitting(env, regions[0], b"", wanted.why)
        else:
            data = await merge.merging(env, regions, wanted.why)
        if not self._manager.start(kind, data, nonce, wanted.why):
            return False
        self._begun_s.append(env.clock())
        self._begun[wanted.cause.value] += 1
        log.info("%s of region %s begins by itself: %s", kind, " and ".join(map(str, regions)), wanted.why)
        return True

    def _nonce(self, kind: str, wanted: Wanted) -> str:
        """Returns a nonce that another term gives to the same change, too; empty where that goes on.

        A change that failed may begin anew once the regions have rested.
        """
        names = " and ".join(f"{one.id} with token {one.token}" for one in wanted.regions)
        found = f"{kind} of region {names}"
        while (pid := self._engine.pid_of(Caller(ITSELF, "", "", found))) is not None:
            record = self._engine.records.get(pid)
            if record is not None and not record.state.is_final:
                return ""
            found = f"{kind} of region {names} after {pid}"
        return found

    def changed(self, moved: Sequence[Transition]) -> None:
        """Takes durable changes of procedures: regions rest after the end of a split or a merge."""
        for _, after in moved:
            if after.kind in KINDS and after.state.is_final:
                try:
                    task: Shape = SHAPE.decode(after.data)
                except msgspec.DecodeError:  # its record could not be used, and was removed
                    continue
                regions = self._env.model.regions
                self.judge.made(one for one in task.heirs if one in regions)
                why = after.error or after.result.decode(errors="replace")
                self.judge.failed((one for one in task.parents if one in regions), why)

    def _tell(self, why: str) -> None:
        """Logs why nothing begins, once; and that it does again."""
        if why != self._told:
            if why:
                log.info("regions are not split or merged by themselves for now: %s", why)
            else:
                log.info("regions are split and merged by themselves again")
            self._told = why


def _split(region: Region, seen: Seen, cause: Cause) -> Wanted:
    size, requests = seen.size_bytes or 0, seen.requests_per_s or 0.0
    by_size = cause is Cause.SIZE
    why = f"it has {in_bytes(size)}" if by_size else f"it has {requests:.0f} requests a second"
    return Wanted((FIRST[cause], size if by_size else requests), (region.id,), (region,), cause, why)


def _merge(one: Region, other: Region, size_bytes: int) -> Wanted:
    why = f"they have {in_bytes(size_bytes)} together"
    return Wanted((FIRST[Cause.SMALL], -size_bytes), (one.id, other.id), (one, other), Cause.SMALL, why)
