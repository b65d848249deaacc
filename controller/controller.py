"""Controller: one term's model, its commits and what the brokers are told.

The one path of a change is :meth:`Controller.carry_out`: decide, commit, apply, tell. Facts enter through
:meth:`Controller.observed`. Handlers in ``controller/handlers`` read the truth, observe, and carry out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

import anyio

from brokers.channels import Channels
from brokers.wire.versions import Ibp
from controller.counters import Counters
from controller.event_queue import EventQueue
from controller.recent import RecentChanges
from controller.report import Report
from controller.term import Term
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.kafka_store import Fence, KafkaStore, Malformed
from metadata_store.port import ZooKeeper
from state_machines.cluster import Cluster
from state_machines.decision import Change, Decision, ReplicaMove
from state_machines.draft import Decide, Draft
from state_machines.partition import Unclean, never_unclean
from state_machines.types import Broker, Leadership, TopicPartition

log = logging.getLogger("regent.controller")
state_change = logging.getLogger("regent.state-change")


GATE_POLL_S = 0.02


class Controller:
    """Everything that handlers need in one term. Single writer: only the queue's consumer calls into it."""

    def __init__(
        self,
        *,
        zk: ZooKeeper,
        store: KafkaStore,
        cluster: Cluster,
        channels: Channels,
        term: Term,
        queue: EventQueue,
        counters: Counters,
        conflict_rounds_max: int,
        daemons: frozenset[int],
        ibp: Ibp,
        unclean: Unclean = never_unclean,
        brokers_joined: Callable[[Collection[int]], None] = lambda _: None,
    ) -> None:
        self.zk = zk
        self.store = store
        self.cluster = cluster
        self.channels = channels
        self.term = term
        self.queue = queue
        self.counters = counters
        self.daemons = daemons
        self.ibp = ibp
        self.unclean = unclean
        self.brokers_joined = brokers_joined
        self.fence = Fence(term.fence_version, term.open)
        self.recent = RecentChanges()
        self.ready = asyncio.Event()
        self.ready.set()
        self._rounds_max = conflict_rounds_max

    # -- the one path

    async def carry_out(self, decide: Decide, why: str) -> Report:
        """Decides, commits, applies and tells until everything is settled; raises Fenced or TermEnded."""
        report = Report(why)
        only: Collection[int] | None = None
        for _ in range(self._rounds_max):
            only = await self._round(decide, only, report)
            if not only:
                break
        for entity in sorted(only or ()):
            await self._settle_singly(decide, entity, report)
        self._count(report)
        return report

    async def _settle_singly(self, decide: Decide, entity: int, report: Report) -> None:
        """One entity by itself; it stays contended without holding up, or resigning for, the rest."""
        for _ in range(self._rounds_max):
            if not await self._round(decide, [entity], report):
                return
        report.failed["contended: tried again at its next event"] += 1

    async def _round(self, decide: Decide, only: Collection[int] | None, report: Report) -> set[int]:
        """One decide, commit, apply, tell; returns what is unsettled, read again and told."""
        await self.connected()
        draft = Draft(self.cluster, only)
        decide(draft)
        decision = draft.finish()
        report.refuse(decision.refusals)
        unsettled = await self._commit(decision, report)
        if unsettled:
            await self.reread(sorted(unsettled))
        return unsettled

    async def _commit(self, decision: Decision, report: Report) -> set[int]:
        stops: dict[int, list[ReplicaMove]] = {}
        for move in decision.replica_moves:
            stops.setdefault(move.entity, []).append(move)
        written = {change.entity for change in decision.writes}
        unwritten = [move for i, moves in stops.items() if i not in written for move in moves]
        self._enter(decision.moves, unwritten, report)
        self.channels.metadata_changed(decision.metadata)
        pending = set(written)
        try:
            async for outcome in self.store.commit(decision.writes, self.cluster.name, self.fence):
                self.term.check()
                moves = [move for change in outcome.applied for move in stops.get(change.entity, ())]
                self._enter(outcome.applied, moves, report)
                self.counters.commits += 1
                self.counters.writes += len(outcome.applied)
                report.conflicts += len(outcome.conflicts)
                report.unknown += len(outcome.unknown)
                pending.difference_update(change.entity for change in outcome.applied)
                self._final(outcome.gone, outcome.refused, pending, report)
        except NotConnected:
            self.term.check()
        return pending

    def _final(
        self, gone: Sequence[int], refused: Sequence[tuple[int, object]], pending: set[int], report: Report
    ) -> None:
        """Outcomes that this decision cannot change: counted, tried again at the entity's next event."""
        pending.difference_update(gone)
        if gone:
            report.failed["its znode is gone: recreate the topic or wait for its deletion"] += len(gone)
        for entity, code in refused:
            pending.discard(entity)
            report.failed[f"ZooKeeper refused the write ({code}): check jute.maxbuffer and the znode's ACL"] += 1

    def _enter(self, changes: Sequence[Change], moves: Sequence[ReplicaMove], report: Report) -> None:
        """Apply, then tell. A dead term does neither."""
        self.term.check()
        self.cluster.apply(changes)
        self.cluster.apply_replicas(moves)
        report.applied(change for change in changes if change.writes)
        self.recent.add(changes)
        self.channels.tell(changes, moves)

    # -- facts

    def observed(self, changes: Iterable[Change | None]) -> list[Change]:
        """Tells what was read and differs from the model, ours or foreign."""
        self.term.check()
        told = [change for change in changes if change is not None]
        if told:
            self.recent.add(told)
            self.channels.tell(told, ())
        return told

    async def reread(self, rows: Sequence[int]) -> list[Change]:
        """Reads state znodes again (after ``sync`` on a connection that is up) and observes them."""
        found = await self.read_states([self.cluster.name(i) for i in rows])
        return self.observed(
            self.cluster.observe_leadership(i, leadership)
            for i, leadership in zip(rows, found, strict=True)
            if isinstance(leadership, Leadership)
        )

    async def read_brokers(self) -> dict[int, Broker]:
        """Registrations; malformed ones are reported by path and not live."""
        found = await self.store.load_brokers()
        self.term.check()
        for bad in found.malformed:
            self.malformed(bad)
        return found.brokers

    async def read_states(self, pairs: Sequence[TopicPartition]) -> list[Leadership | Malformed | None]:
        """State znodes of partitions, read after a ``sync``; malformed ones are reported by path."""
        found: list[Leadership | Malformed | None] = []
        while True:
            await self.connected()
            try:
                await self.zk.sync("/brokers/topics")
                found = await self.store.load_states(pairs)
                break
            except (NotConnected, OutcomeUnknown):
                self.term.check()
        self.term.check()
        for state in found:
            if isinstance(state, Malformed):
                self.malformed(state)
        return found

    def malformed(self, found: Malformed) -> None:
        """A znode that cannot be understood: reported once by its path, everything else goes on."""
        if self.counters.malformed.get(found.path) != found.why:
            log.error(
                "%s cannot be used: %s; mend or delete it, the rest of the cluster is served", found.path, found.why
            )
            self.counters.malformed[found.path] = found.why

    async def connected(self) -> None:
        """Waits until connection, claim and lease hold; raises TermEnded where the term is over."""
        while not (self.ready.is_set() and self.term.open()):
            self.term.check()
            with anyio.move_on_after(GATE_POLL_S):
                await self.ready.wait()
                await asyncio.sleep(GATE_POLL_S)

    def _count(self, report: Report) -> None:
        self.counters.conflicts += report.conflicts
        self.counters.unknown_outcomes += report.unknown
        self.counters.unclean_elections += report.unclean
        self.counters.refusals.update(report.refused)
        self.counters.failures.update(report.failed)
        if report.done or report.refused or report.failed:
            log.info("%s", report.sentence())
