"""Makes plans of balances beside the engine: a snapshot of the model in pieces, then the plan of a balancer.

A plan is of no use in another process of the daemon: one that dies makes another plan.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from controller.regions.child_balancer import ChildBalancer, NoPlan
from controller.regions.loads import Load, RegionLoads
from controller.regions.server_lists import Claimants
from regent_agent.protocol import INHERIT
from state_machines.regions.balancing.cluster import (
    BYTES_MAX,
    FILES_MAX,
    REQUESTS_MAX,
    BalancePlan,
    Balancer,
    Cluster,
    clamped,
)
from state_machines.regions.balancing.simple import Simple, is_uneven
from state_machines.regions.balancing.stochastic import Stochastic
from state_machines.regions.entities import Region, Server, Table, start_of
from state_machines.regions.model import Regions
from state_machines.regions.placement import Cooldown
from state_machines.regions.states import WANTED, RegionState

log = logging.getLogger("regent.regions")

PIECE: Final = 500
"""Regions at which one turn of the loop looks."""
ALONE_MAX: Final = 10_000
"""Regions whose plan the loop makes itself where that is simple; a child makes all others.

By table, pairs of a table and a server count as regions do.
"""
NO_LOAD: Final = Load(0, 0, None, None, 0.0)
TAKEN: Final = frozenset({RegionState.OPEN, RegionState.OPENING})


class Made(Struct, frozen=True, gc=False):
    """A plan, and of how many regions and servers it is."""

    plan: BalancePlan
    regions: int
    servers: int


class Planner:
    """Makes one plan at a time, and at most one for each procedure. ``seed``: returns a number for balancers that draw.

    ``timeout_ms``: longest time of a plan that a child makes. ``slop``: see :func:`is_uneven`.
    """

    def __init__(
        self,
        model: Regions,
        loads: RegionLoads,
        claimants: Claimants,
        cooldown: Cooldown,
        now_ms: Callable[[], int],
        seed: Callable[[], int],
        balancer: Simple | Stochastic,
        timeout_ms: int,
        slop: float,
    ) -> None:
        self._slop = slop
        self._model, self._loads, self._claimants, self._cooldown = model, loads, claimants, cooldown
        self._now_ms, self._seed = now_ms, seed
        self._balancer: Balancer = balancer
        self._child = ChildBalancer(balancer, timeout_ms)
        self._works: dict[int, asyncio.Task[Made]] = {}
        self._kept: tuple[str, Made] | None = None
        self._alone = asyncio.Lock()

    def is_uneven(self) -> bool:
        """Checks whether a server misses its share of all regions by more than the slop."""
        servers = list(self._model.online())
        weights = [self._model.marks.weight(one.name) for one in servers]
        return is_uneven([len(one.regions) for one in servers], weights, self._slop) if servers else False

    def is_even(self) -> bool:
        """Checks whether no plan is due by the numbers of regions alone; False where only a plan can tell."""
        balancer = self._balancer
        return isinstance(balancer, Simple) and balancer.counts_alone and not self.is_uneven()

    def keep(self, made: Made, nonce: str) -> None:
        """Keeps a plan for the procedure with a nonce, and for no other: where that one fails, it is of no use."""
        self._kept = nonce, made

    def begin(self, pid: int, wake: Callable[[int], None], nonce: str) -> None:
        """Begins the plan of a procedure, once; ``wake`` is called with its pid at the end."""
        if pid not in self._works:
            kept, self._kept = self._kept, None
            making = _given(kept[1]) if kept is not None and kept[0] == nonce else self.make()
            work = self._works[pid] = asyncio.ensure_future(making)
            work.add_done_callback(lambda _: wake(pid))

    def made(self, pid: int) -> Made | str | None:
        """Returns the plan of a procedure, or why there is none; None while it is made."""
        work = self._works[pid]
        if not work.done():
            return None
        if work.cancelled():
            return "it was cancelled"
        error = work.exception()
        return work.result() if error is None else str(error)

    def has_begun(self, pid: int) -> bool:
        """Checks whether the plan of a procedure was begun."""
        return pid in self._works

    @property
    def is_busy(self) -> bool:
        """Returns whether a plan is being made: the next one would wait for its end."""
        return self._alone.locked()

    def forget(self, pid: int) -> None:
        """Forgets the plan of a procedure: it is stored, or of no use any more."""
        if (work := self._works.pop(pid, None)) is not None:
            work.cancel()

    def close(self) -> None:
        """Ends all work: the term is over."""
        for pid in list(self._works):
            self.forget(pid)

    async def make(self) -> Made:
        """Makes a plan of the present regions; raises :class:`NoPlan`, also for a fault of the balancer."""
        try:
            async with self._alone:
                return await self._make()
        except NoPlan:
            raise
        except Exception as error:
            log.exception("a balancer has a fault: no plan is made; report it with these lines")
            raise NoPlan(f"{type(error).__name__}: {error}") from error

    async def _make(self) -> Made:
        cluster = await self.snapshot()
        seed = self._seed()
        plan = self._balancer.plan(cluster, seed) if self._is_quick(cluster) else await self._child.plan(cluster, seed)
        return Made(plan, len(cluster.ids), sum(cluster.targets))

    def _is_quick(self, cluster: Cluster) -> bool:
        balancer, size = self._balancer, len(cluster.ids)
        if isinstance(balancer, Simple) and balancer.by_table:
            size += len(cluster.tables) * len(cluster.servers)
        return not isinstance(balancer, Stochastic) and size <= ALONE_MAX

    async def snapshot(self) -> Cluster:
        """Returns what balancers look at; a few hundred regions in a turn of the loop.

        What changes meanwhile may be in it or not: each move is judged again before it is made.
        """
        model = self._model
        servers, targets = list(model.servers.values()), {one.key for one in model.online()}
        position = {one.key: at for at, one in enumerate(servers)}
        tables = [one for one in model.tables.values() if one.state in WANTED]
        inheriting = all(INHERIT in one.features for one in servers if one.key in targets)
        found = Cluster(
            *(array("q"), array("q"), array("q"), bytearray(), array("d"), array("d"), array("q"), array("q")),
            servers=tuple(one.name for one in servers),
            targets=bytes(one.key in targets for one in servers),
            weights=tuple(map(model.marks.weight, (one.name for one in servers))),
            tables=tuple(one.name for one in tables),
        )
        for number, table in enumerate(tables):
            at = 0
            while some := self._piece(table, at):
                for region, server in _owned(some):
                    if (where := position.get(server.key)) is not None:
                        found.server.append(where)
                        found.table.append(number)
                        self._enter(found, region, inheriting=inheriting)
                at = bisect_right(table.regions, some[-1].start, key=start_of)
                await asyncio.sleep(0)
        return found

    def _piece(self, table: Table, at: int) -> Sequence[Region]:
        """Returns some regions of a table; none of one that is gone."""
        return table.regions[at : at + PIECE] if self._model.tables.get(table.name) is table else ()

    def _enter(self, found: Cluster, region: Region, *, inheriting: bool) -> None:
        load = self._loads.of(region) or NO_LOAD
        found.ids.append(region.id)
        found.held.append(self._is_held(region, inheriting=inheriting))
        found.reads.append(clamped(load.reads_per_s or 0.0, REQUESTS_MAX))
        found.writes.append(clamped(load.writes_per_s or 0.0, REQUESTS_MAX))
        found.size_bytes.append(int(clamped(load.size_bytes, BYTES_MAX)))
        found.files.append(int(clamped(load.files, FILES_MAX)))

    def _is_held(self, region: Region, *, inheriting: bool) -> bool:
        """Checks whether a region stays where it is; one with sources does unless all servers can open it."""
        if region.state is not RegionState.OPEN or region.pid or self._model.marks.pinned(region.id):
            return True
        if self._cooldown.left_ms(region.id, self._now_ms()) or self._claimants.is_held(region):
            return True
        return not inheriting and region.id in self._model.sources


async def _given(made: Made) -> Made:
    return made


def _owned(regions: Sequence[Region]) -> Iterator[tuple[Region, Server]]:
    """Yields the regions that a server has, or is about to have, with it."""
    return ((one, one.server) for one in regions if one.server is not None and one.state in TAKEN)
