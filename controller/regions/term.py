"""One term of the regions' domain: from the opened store to its end, on one loop, with one consumer of the engine."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from itertools import islice
from typing import Any, Final

from controller.journal.term_journal import TermJournal
from controller.procedures.engine import Engine
from controller.procedures.parking import Parking
from controller.procedures.requests import loop_ms
from controller.procedures.running import Entered
from controller.process.wording import named
from controller.regions import (
    admission,
    damaged,
    entering,
    fencing,
    in_transition,
    independence,
    levels,
    loading,
    restored,
)
from controller.regions.balancing import Balancing
from controller.regions.bypassed import picked_up, see_to
from controller.regions.clock import SteadyClock
from controller.regions.dispatcher import DispatchLimits
from controller.regions.environment import Options, RegionsEnv
from controller.regions.fencing import lease_and_fence_in
from controller.regions.growing import Growth
from controller.regions.growth_judge import Judge
from controller.regions.in_transition import Ages
from controller.regions.journal.journal import MOVERS, RegionsJournal
from controller.regions.manager import Manager
from controller.regions.metrics import RegionCounters
from controller.regions.procedures import crash, every, publish
from controller.regions.procedures.messages import CRASH, Crash
from controller.regions.service import RegionService
from controller.regions.transport import choosing
from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Nodes
from metadata_store.catalog.rows import Catalog
from metadata_store.records.claims import Holder
from metadata_store.records.port import NOTHING_SEEN, Above, RecordStore, StoreFailed
from state_machines.procedures.transition import Transition
from state_machines.regions.model import Regions
from state_machines.regions.placement import placement_of

log = logging.getLogger("regent.regions")

LEFT_TOGETHER: Final = 500
"""Regions that no procedure moves, and for which one begins with one check of leases."""
CHECKS_PER_LEASE: Final = 20
CHECKS_MISSED_MAX: Final = 5
"""Checks of leases that are missed where the process was frozen: polls may wait that it did not take."""
UNUSABLE_LOGGED_MAX: Final = 20
PROOFS_TOGETHER: Final = 100
"""Proofs of processes that are gone which one write removes."""


async def _no_others() -> Sequence[Holder]:
    return ()


class RegionsTerm:
    """Runs the domain on an open store, which this daemon has claimed with ``epoch``.

    ``entered`` is called with durable changes of procedures. ``journal``: of this term; without one the loop logs.
    ``parking``: outlives the term.
    ``leads``: checks whether no other daemon can have the store yet; ``look``: has the claim looked at; ``suspended``
    returns why nothing can be stored for now: see ``Opened``.
    ``above``: what servers have seen of a store that was restored from a copy. ``steady`` takes the place of
    ``wall_ms``, and goes on from the time that the store has.
    """

    def __init__(
        self,
        store: RecordStore,
        catalog: Catalog,
        epoch: int,
        options: Options,
        *,
        wall_ms: Callable[[], int],
        limits: DispatchLimits | None = None,
        placement: str = "retain",
        seed: int | None = None,
        entered: Entered | None = None,
        journal: TermJournal | None = None,
        counters: RegionCounters | None = None,
        leads: Callable[[], bool] = lambda: True,
        parking: Parking | None = None,
        look: Callable[[], asyncio.Event] | None = None,
        suspended: Callable[[], str] = lambda: "",
        above: Above = NOTHING_SEEN,
        steady: SteadyClock | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        clock = asyncio.get_running_loop().time
        self._steady = steady
        machine_ms, wall_ms = wall_ms, wall_ms if steady is None else steady.now_ms
        self.options = options
        self.complaint: Callable[[], str] = lambda: ""
        """Returns the faults of the store's permissions, with the remedy; empty without any."""
        self.daemons: Callable[[], Awaitable[Sequence[Holder]]] = _no_others
        """Returns the other daemons of the store that name themselves."""
        self._leads = leads
        self.journal = RegionsJournal(journal or TermJournal(epoch=epoch), every.NAMES, retains=placement == "retain")
        self._nodes, model = nodes, Regions()
        self.env = RegionsEnv(
            model,
            choosing.dispatcher_of(
                *(epoch, limits or DispatchLimits(), clock, self.journal.dispatched),
                *(model, nodes, options.node_timeout_ms / 1000),
            ),
            placement_of(placement, by_table=options.balancer_by_table),
            random.Random(seed).randrange,
            options,
            wall_ms,
            clock,
            catalog.rows_max,
            self.journal,
        )
        self.env.latest_ms = lambda: max(machine_ms(), wall_ms())
        self._entered = entered
        self._wanted = asyncio.Event()
        self.engine: Engine[RegionsEnv] = Engine(
            self.env,
            every.KINDS,
            store,
            wanted=self._wanted.set,
            now_ms=wall_ms,
            age_ms=loop_ms,
            ends=(StoreFailed,),
            entered=self._changed,
            parking=parking,
        )
        self.env.wake, self.env.number = self.engine.wake, self.engine.number
        self.env.reserve = self.engine.reserve
        self.env.is_given = self.engine.is_given
        self.env.bus.responses.wake = self.engine.wake
        self.env.waking.wanted = self._wanted.set
        self.ages = Ages(self.env, self.engine, options.transit_warning_ms)
        self.manager = Manager(self.env, self.engine, store, epoch)
        self.env.submitted = self.manager.submitted
        if isinstance(self.env.dispatcher, Noded):
            self.env.dispatcher.answered = self.manager.answered
        if nodes is not None:
            nodes.servers.gone, nodes.servers.back = self.manager.absent, self.manager.silence.absent.discard
        self.suspended = suspended
        counters = counters or RegionCounters()
        self.growth = Growth(
            self.env, self.engine, self.manager, Judge(self.env, self.engine, self.manager, suspended), counters.grown
        )
        self.balancing = Balancing(self.env, self.engine, self.manager, counters, suspended)
        self.service = RegionService(self.manager, counters, leads, look, suspended)
        self._catalog = catalog
        self._store = store
        self.copy = restored.Copy(store, above)
        self._present = fencing.LeaseAndFence(options.lease_ms, options.fence)
        self._tasks: list[asyncio.Task[None]] = []

    async def load(self) -> None:
        """Builds the model, and enters the procedures that go on; raises ``StoreFailed``."""
        with loading.no_collections():
            await self._load()

    async def _load(self) -> None:
        content = await self._catalog.read()
        begun = levels.begin(content, self._catalog.level, is_new=lease_and_fence_in(content.marks) is None)
        content = begun.content
        if self._steady is not None:
            self._steady.begin(content.marks)
            await self._store_time(self._steady)
        self.env.restored = await self.copy.begin(content.marks)
        before, more = damaged.lease_and_fence_of(content, self._present)
        content = content._replace(damaged=(*content.damaged, *more))
        self.env.former = self._present.united(before or self._present)
        if before is not None and before.fence != self._present.fence and content.servers:
            log.warning(
                'regions.fence is "%s" and was "%s", under running servers (%s): one that relies on the former fence '
                'may lose edits; set it back to "%s", stop all servers, and change it then',
                *(self._present.fence, before.fence, named(f"{one.name},{one.incarnation}" for one in content.servers)),
                before.fence,
            )
        writes = [*begun.writes, *([self.env.former.row] if self.env.former != before else [])]
        if writes:
            await self._store.write((), (), writes)
        await entering.enter(self.env.model, content, self.env.now_ms())
        self.env.parents_ms = dict.fromkeys(self.env.model.parents, self.env.now_ms())
        damaged.tell(self.env.model.damages)
        self.env.routes.unanswered = self.env.model.damages.overlapping
        self.env.copied_number = max(self.copy.above.number, restored.number_above(content.marks))
        await self.engine.load(self.env.copied_number)
        self.env.former_number = self.engine.last_number
        if isinstance(self.env.dispatcher, Noded):
            self.env.dispatcher.former_number = self.env.former_number
        self.env.contradictions.begin(self.env.former_number)
        await loading.resume(self.env, self.engine.live(), self.engine.park)
        await self._drop_proofs({} if damaged.Unknown.of(content.damaged) else self.env.model.proofs)
        self.env.torn = bool(self.engine.unusable) or any(one.bypassed for one in self.engine.records.values())
        loading.distrust(self.env, (*self.engine.unusable_records.values(), *self.engine.ended()))
        self.journal.begin(self.engine.live())
        self.env.model.observer = self.journal
        for pid, why in islice(self.engine.parked.items(), UNUSABLE_LOGGED_MAX):
            log.error("pid=%d is parked, and not run: %s; 'regent regions procedures bypass %d' ends it", pid, why, pid)
        for pid, why in islice(self.engine.unusable.items(), UNUSABLE_LOGGED_MAX):
            log.error(
                "pid=%d cannot go on: %s; 'regent regions procedures remove %d' removes its record", pid, why, pid
            )
        if self._nodes is not None:
            await self._nodes.begin()
        left = self.env.left
        left.extend(await loading.lost(self.env.model))
        if left and (why := self.env.claimants.why_held(left[0].region)):
            log.warning("%d regions have no owner and no procedure; they wait: %s", len(left), why)
        self._begin_times()
        model = self.env.model
        log.info(
            "regions: %d tables, %d regions, %d servers, %d procedures go on (epoch %d)",
            *(len(one) for one in (model.tables, model.regions, model.servers)),
            sum(1 for _ in self.engine.live()),
            self.manager.epoch,
        )

    async def _drop_proofs(self, without_row: Collection[tuple[str, int]]) -> None:
        """Removes proofs of processes that are no members."""
        over = list(admission.proofs_left_over(without_row, self.env.model.servers))
        for at in range(0, len(over), PROOFS_TOGETHER):
            await self._store.write((), (), over[at : at + PROOFS_TOGETHER])
        self.env.model.proofs.clear()

    def _begin_times(self) -> None:
        """Has leases begin now, and waits end: the load took its time, and the wall clock may have been set since."""
        ends_s = self.env.restored_ends_s = self.env.clock() + self.env.former.lease_ms / 1000
        for server in self.env.model.servers.values():
            server.deadline_s = ends_s
        for record in list(self.engine.live()):
            if record.deadline_ms:
                self.engine.wake(record.pid)

    async def run(self, lost: Coroutine[Any, Any, None] | None = None) -> None:
        """Runs procedures and checks leases until the store fails or ``lost`` raises, or until cancelled."""
        works = [
            self._turns(),
            self._leases(),
            self._settles(),
            self._looks(),
            self.ages.keep(),
            self.growth.keep(),
            self.balancing.keep(),
            self._startup(),
            *choosing.works_of(self.env.dispatcher, self._nodes),
            *(() if lost is None else (lost,)),
        ]
        self._tasks = [asyncio.ensure_future(one) for one in works]
        try:
            await asyncio.gather(*self._tasks, self.manager.broken)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.env.bus.close()
            self.env.planner.close()
            await self.env.fencing.stop()

    def close(self, why: Exception) -> None:
        """Refuses callers: the term is over."""
        self.engine.close(why)
        self.manager.comparison.close(why)
        self.env.results.close()
        independence.tell_unanswered(self.env)
        self.journal.end(str(why), self.engine.unanswered)

    def _changed(self, moved: Sequence[Transition]) -> None:
        see_to(self.env, moved)
        self.journal.changed(moved)
        self.env.causes.over(after.pid for _, after in moved if after.state.is_final)
        others = [one for one in moved if one.after.kind not in MOVERS]  # of many regions nearly all are such
        self.growth.changed(others)
        self.balancing.changed(others)
        for before, after in others:
            if after.kind == publish.NAME and after.state.is_final:
                self.env.bus.responses.forget(after.pid)
            if before is None and after.kind == crash.NAME and not after.state.is_final:
                self._crashed(CRASH.decode(after.data))
        self._pick_up()
        if self._entered is not None:
            self._entered(moved)

    def _crashed(self, task: Crash) -> None:
        """Enters a crash that has begun by a request: from then on the process gets nothing any more."""
        server = self.env.model.servers.get((task.server, task.incarnation))
        if server is not None:
            self.manager.crashed(server, task.why)

    async def _turns(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self.env.waking:
                self.engine.wake_all(self.env.waking.take())
                self._wanted.set()
            await self.engine.turn()
            await asyncio.sleep(0)

    async def _leases(self) -> None:
        """Checks leases again and again. A daemon that could not respond for a while gives each server a full one."""
        pause_s = self.options.lease_ms / 1000 / CHECKS_PER_LEASE
        seen_s = -math.inf  # nor did it respond before it began
        while True:
            if self._leads() and self.env.clock() - seen_s < CHECKS_MISSED_MAX * pause_s:
                self.manager.check_leases()
            else:
                self.manager.grant_leases()
            seen_s = self.env.clock()
            self._pick_up()
            self.manager.discards.begin()
            self.manager.comparison.reopen_contradicted()
            await asyncio.sleep(pause_s)

    async def _settles(self) -> None:
        """Stores what is settled by now, and the time. A store that is slow delays no check of leases."""
        while True:
            await self._settle_fence()
            await self._settle_copy()
            if self._steady is not None and self._steady.is_due():
                await self._store_time(self._steady)
            await asyncio.sleep(self.options.lease_ms / 1000 / CHECKS_PER_LEASE)

    def _pick_up(self) -> None:
        """Begins the procedures of some regions that no procedure moves."""
        left = self.env.left
        for _ in range(min(LEFT_TOGETHER - self.engine.requests, len(left))):
            one = left[0]
            found = picked_up(self.env, one)
            nonce = f"region {one.region.id} left by {one.pid} in term {self.manager.epoch}"
            if found is not None and not self.manager.start(*found, nonce):
                break
            left.popleft()

    async def _store_time(self, clock: SteadyClock) -> None:
        """Stores the time, which a daemon after this one goes on from."""
        await self._store.write((), (), (clock.row(),))

    async def _settle_fence(self) -> None:
        """Stores the present lease and fence alone, once no server is left that may serve under former ones.

        A store that was restored does not know all processes that may serve: for one lease they may.
        """
        if self.env.restored and not self.env.restored_places:
            return
        servers = self.env.model.servers.values()
        if self.env.former != self._present and all(one.confirmed for one in servers):
            await self._store.write((), (), (self._present.row,))
            self.env.former = self._present

    async def _settle_copy(self) -> None:
        """Forgets that the store was a copy once a lease is over, and no open and no procedure of the copy is left."""
        env = self.env
        if not self.copy.is_noted or not env.restored_places or env.outdated:
            return
        if not any(one.pid <= env.former_number for one in self.engine.live()):
            await self.copy.forget()

    async def _looks(self) -> None:
        """Logs regions that are in transition for too long, from time to time."""
        while True:
            await asyncio.sleep(self.options.transit_check_ms / 1000)
            await in_transition.tell_overdue(self.env, self.engine.records, self.options.transit_warning_ms)

    async def _startup(self) -> None:
        """Places regions once enough servers have come, or the wait is over.

        A store that was restored does not know all processes that may serve: they have one lease to say so, or to stop.
        """
        if self.env.restored:
            await asyncio.sleep(self.env.former.lease_ms / 1000)
            self.env.restored_places = True
            self.manager.place_if_enough()
        await asyncio.sleep(self.options.startup_wait_ms / 1000)
        if not self.env.places:
            log.warning(
                "regions: %d servers came in %d ms, %d are wanted (regions.servers_min): regions are placed anyway",
                len(list(self.env.model.online())),
                self.options.startup_wait_ms,
                self.options.servers_min,
            )
        self.manager.place()
