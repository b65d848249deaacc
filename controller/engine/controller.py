"""Controller: one term's model, its commits and what the brokers are told.

The one path of a change is :meth:`Controller.carry_out`: decide, commit, apply, tell. Facts enter through
:meth:`Controller.observed`. Handlers in ``controller/handlers`` read the truth, observe, and carry out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from itertools import islice
from typing import TypeVar

import anyio

from brokers.outbound.channels import Channels
from brokers.queries import Dial
from brokers.security.attested import Seals
from brokers.wire.versions import Ibp
from controller.access.authorizer import Authorizer
from controller.access.principals import Principals
from controller.access.quota_buckets import QuotaBuckets
from controller.engine.adoption import Adoption
from controller.engine.conflict_rounds import ConflictRounds
from controller.engine.default_configs import DefaultConfigs
from controller.engine.deletion_queue import DeletionQueue
from controller.engine.event_kinds import EventKind
from controller.engine.event_queue import EventQueue
from controller.engine.gate import Gate
from controller.engine.leader_balance import LeaderBalance
from controller.engine.lost_id_search import LostIds
from controller.engine.min_isr import UNKNOWN
from controller.engine.reassignment_queue import ReassignmentQueue
from controller.engine.recent_changes import RecentChanges
from controller.engine.unclean_elections import UncleanElectionPolicy
from controller.journal.reason import Reason
from controller.journal.report import Report
from controller.journal.term_journal import TermJournal
from controller.metrics.counters import Counters
from metadata_store.codecs.base import Malformed
from metadata_store.commits.state_commit import StateOutcome
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.fencing.outcome import Fence
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.endpoint_znode import AdminEndpoint
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.create_topics import TopicDefaults
from state_machines.machines.draft import Decide, Draft
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change, Decision, ReplicaMove
from state_machines.model.types import Broker, Leadership

log = logging.getLogger("regent.controller")
state_change = logging.getLogger("regent.state-change")

T = TypeVar("T")

GATE_POLL_S = 0.02
DOUBTED_MAX = 20_000
"""Rows of a decision that are read again because their ISR stands in the way: some 200 ms."""
CONTENDED = "contended: tried again at its next event"


async def _no_seals() -> Seals | None:
    return None


class Controller:
    """Everything that handlers need in one term. Single writer: only the queue's consumer calls into it.

    ``ready`` is set while the connection is up and the claim was compared on it. What brokers' settings decide is set
    by :mod:`controller.handlers.broker_settings`.
    """

    def __init__(
        self,
        *,
        zk: ZooKeeper,
        store: KafkaStore,
        cluster: Cluster,
        channels: Channels,
        gate: Gate,
        queue: EventQueue,
        counters: Counters,
        conflict_rounds_max: int,
        daemons: frozenset[int],
        ibp: Ibp,
        ready: asyncio.Event,
        adoption: Adoption,
        balance: LeaderBalance,
        deletion_queue: DeletionQueue | None = None,
        brokers_joined: Callable[[Collection[int]], None] = lambda _: None,
        journal: TermJournal | None = None,
        me: int = 0,
        authorizer: Authorizer | None = None,
        inherited: DefaultConfigs | None = None,
        seals: Callable[[], Awaitable[Seals | None]] = _no_seals,
        dial: Dial | None = None,
    ) -> None:
        self.zk = zk
        self.store = store
        self.cluster = cluster
        self.channels = channels
        self.gate = gate
        self.queue = queue
        self.counters = counters
        self.daemons = daemons
        self.endpoint: AdminEndpoint | None = None
        self.endpoint_gone_s: float | None = None
        self.ibp = ibp
        self.adoption = adoption
        self.unclean = UncleanElectionPolicy(store, cluster, default=False)
        self.balance = balance
        self.brokers_joined = brokers_joined
        self.new_topics = TopicDefaults(None, None)
        self.creation_policy: str | None = None
        self.remote_storage: bool | None = None
        self.me = me
        self.seals = seals
        self.authorizer = authorizer or Authorizer(Principals())
        self.quotas = QuotaBuckets()
        self.inherited = inherited or DefaultConfigs(cluster, None, ibp)
        self.token_check_s = 0.0
        self.fence = Fence(gate.fence_version, gate.open)
        self.recent = RecentChanges()
        self.min_isr = UNKNOWN
        """As operators are shown it: for log lines alone, nothing is decided by it."""
        self.reassignment_queue = ReassignmentQueue()
        self.deletion_queue = deletion_queue or DeletionQueue(cluster, queue)
        self.journal = journal or TermJournal()
        self.waiting_topics: set[str] = set()
        self.lost_ids = LostIds()
        self.dial = dial
        self.late: set[int] = set()
        """Rows that :func:`state_machines.decisions.failover.take_up` has yet to be carried out for."""
        self._beside: set[asyncio.Task[None]] = set()
        self.ready = ready
        self._conflict_rounds_max = conflict_rounds_max

    def spawn(self, work: Coroutine[None, None, None], at_end: Callable[[], None] | None = None) -> None:
        """Runs something beside the queue until the term ends. It never changes the model: its errors end no term.

        Where the term ends first it may not even begin; ``at_end`` is called in any case.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._spawned_ended)
        if at_end is not None:
            task.add_done_callback(lambda _: at_end())

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an error beside the queue: %s", error, exc_info=error)

    async def close(self) -> None:
        """Ends what runs beside the queue."""
        for task in self._beside:
            task.cancel()
        if self._beside:
            await asyncio.wait(self._beside)

    def conflict_rounds(self) -> ConflictRounds:
        """As often as the settings have it: writes share multis at first, then each has its own."""
        return ConflictRounds(self._conflict_rounds_max, alone=self._conflict_rounds_max)

    # -- the one path

    async def carry_out(self, decide: Decide, reason: Reason, why: str) -> Report:
        """Decides, commits, applies and tells until everything is settled; raises Fenced or TermEnded.

        After ``conflict_rounds_max`` rounds what is left is sent singly, so that a contended partition does not hold
        up those that shared a multi with it; after as many again it is given up, which never ends the term. Rounds
        that a lost connection cut short do not count: the lease bounds those.
        """
        report = Report(why, reason.value)
        only: Collection[int] | None = None
        rounds = self.conflict_rounds()
        for writes_max in rounds:
            before = report.conflicts, report.unknown, report.written
            only = await self._round(decide, only, report, writes_max)
            if not only:
                break
            if not _stuck(before, report):
                rounds.repeat()
        else:
            self._give_up(only or (), CONTENDED, report)
        self._count(report)
        return report

    async def _round(
        self, decide: Decide, only: Collection[int] | None, report: Report, writes_max: int
    ) -> Collection[int]:
        """One decide, commit, apply, tell; returns what is unsettled, read again and told."""
        decision = await self._drawn(decide, only)
        report.decided_us = self.journal.now_us()
        if doubted := self._doubted(decision, report):
            decision = decision.without(doubted)
        report.refuse(decision.refusals)
        unsettled = sorted(doubted.union(await self._commit(decision, report, writes_max)))
        if unsettled:
            report.read_back(await self.reread(unsettled), self.cluster.epoch)
        return unsettled

    async def _drawn(self, decide: Decide, only: Collection[int] | None) -> Decision:
        """Decided on the present model; once more where an election depends on what its topic allows."""
        self.unclean.forget()
        while True:
            await self.connected()
            draft = Draft(self.cluster, only)
            decide(draft)
            if not self.unclean.wanted:
                return draft.finish()
            await self.until_read(partial(self.unclean.read, self.malformed))

    def _doubted(self, decision: Decision, report: Report) -> frozenset[int]:
        """Rows that are read again, once, before nothing is done about them: their leaders may have written the ISR.

        Below IBP 2.7-IV2 leaders write it to ZooKeeper themselves, and say so seconds later. Everything else of the
        decision goes first.
        """
        if self.ibp.alter_partition or not decision.doubted:
            return frozenset()
        doubted = frozenset(islice(sorted(decision.doubted - report.doubted), DOUBTED_MAX))
        report.doubted |= doubted
        return doubted

    async def _commit(self, decision: Decision, report: Report, writes_max: int) -> set[int]:
        stops: dict[int, list[ReplicaMove]] = {}
        for move in decision.replica_moves:
            stops.setdefault(move.entity, []).append(move)
        written = {change.entity for change in decision.writes}
        unwritten = [move for i, moves in stops.items() if i not in written for move in moves]
        self._enter(decision.moves, unwritten, report)
        self.channels.metadata_changed(decision.metadata)
        pending = set(written)
        with self.channels.more_coming() if len(written) > writes_max else nullcontext():
            await self._write(decision.writes, stops, pending, report, writes_max)
        return pending

    async def _write(
        self,
        writes: Sequence[Change],
        stops: Mapping[int, Sequence[ReplicaMove]],
        pending: set[int],
        report: Report,
        writes_max: int,
    ) -> None:
        """Enters and settles each outcome; what is settled leaves ``pending``."""
        began_s = time.monotonic()
        commit = self.store.commit(writes, self.cluster.name, self.fence, writes_max=writes_max)
        try:
            async with aclosing(commit) as outcomes:
                async for outcome in outcomes:
                    self.gate.check()
                    moves = [move for change in outcome.applied for move in stops.get(change.entity, ())]
                    self._enter(outcome.applied, moves, report)
                    self._settle(outcome, pending, report)
        except NotConnected:
            self.gate.check()
        else:
            self.counters.commit_time.record(time.monotonic() - began_s)

    def _settle(self, outcome: StateOutcome, pending: set[int], report: Report) -> None:
        """Counts an outcome. What this decision cannot change is given up: tried again at the entity's next event."""
        self.counters.commits += 1
        self.counters.writes += len(outcome.applied)
        report.written += len(outcome.applied)
        report.conflicts += len(outcome.conflicts)
        report.unknown += len(outcome.unknown)
        pending.difference_update(change.entity for change in outcome.applied)
        pending.difference_update(outcome.gone, (entity for entity, _ in outcome.refused))
        self._give_up(outcome.gone, "its znode is gone: recreate the topic or wait for its deletion", report)
        for entity, code in outcome.refused:
            why = f"ZooKeeper refused the write ({code.name}): check jute.maxbuffer and the znode's ACL"
            self._give_up([entity], why, report)

    def _give_up(self, rows: Collection[int], why: str, report: Report) -> None:
        """What needs no write is entered and told all the same: a partition under a dead leader is Offline."""
        if rows:
            report.failed[why] += len(rows)
            before = [self.cluster.rows[i] for i in rows]
            self.cluster.observe_undecided(rows)
            self.journal.placed(self.cluster, before, rows)
            self.channels.metadata_changed(rows)

    def _enter(self, changes: Sequence[Change], moves: Sequence[ReplicaMove], report: Report) -> None:
        """Apply, then tell. A dead term does neither."""
        self.gate.check()
        before = self.journal.before(self.cluster, moves) if moves else []
        self.cluster.apply(changes)
        self.cluster.apply_replicas(moves)
        report.applied(change for change in changes if change.writes)
        self.recent.add(changes)
        self.journal.decided(self.cluster, changes, moves, before, report)
        self.channels.propagate(changes, moves)
        self._wake_reassignments(changes)

    def _wake_reassignments(self, changes: Sequence[Change]) -> None:
        """Whoever changed an ISR, a reassignment may have waited for it (S4-54)."""
        moving = self.cluster.reassigning
        found = [c.entity for c in changes if c.entity in moving and c.after.isr != c.before.isr] if moving else ()
        if found:
            self.reassignment_queue.due.update(found)
            self.queue.signal(EventKind.ADVANCE_REASSIGNMENTS)

    # -- facts

    def observed(self, changes: Iterable[Change | None]) -> list[Change]:
        """Tells what was read and differs from the model, ours or foreign; what has a history is taken up first."""
        self.gate.check()
        found = [change for change in changes if change is not None]
        if found:
            self.recent.add(found)
            self.journal.observed(self.cluster, found)
            self.take_up(change.entity for change in found if change.is_late)
            self.channels.propagate([change for change in found if not change.is_late], ())
            self._wake_reassignments(found)
        return found

    def learn_id(self, name: str, topic_id: bytes | None) -> None:
        """Takes the id in the znode of a topic that was served without one, or with one that was refused."""
        before = self.cluster.topic(name)
        if before is None or topic_id is None or topic_id == before.topic_id:
            return
        self.cluster.observe_topic_id(name, topic_id)
        if self.cluster.topic(name) is before or not self.ibp.topic_ids:
            return
        if name in self.lost_ids.topics:
            self.lost_ids.drop(name)
            self.queue.signal(EventKind.LOST_IDS)
        self.channels.hand_out([before.index])
        self.take_up(before.rows)

    def take_up(self, rows: Iterable[int]) -> None:
        """Rows that get another leader epoch before brokers hear of them, by an event of its own."""
        if rows := set(rows):
            self.late |= rows
            self.queue.signal(EventKind.LATE_PARTITIONS)

    async def reread(self, rows: Sequence[int]) -> list[Change]:
        """Reads state znodes again (after ``sync`` on a connection that is up) and observes them."""
        found = await self.read_states([self.cluster.name(i) for i in rows])
        return self.observed(
            self.cluster.observe_leadership(i, leadership)
            for i, leadership in zip(rows, found, strict=True)
            if isinstance(leadership, Leadership)
        )

    async def reread_isrs(self, rows: Sequence[int]) -> None:
        """The same before one is refused something, where leaders write ISRs themselves (below IBP 2.7-IV2)."""
        if rows and not self.ibp.alter_partition:
            await self.reread(rows)

    async def read_brokers(self) -> dict[int, Broker]:
        """Registrations; malformed ones are reported by path and not live."""
        found = await self.store.load_brokers()
        self.gate.check()
        for bad in found.malformed:
            self.malformed(bad)
        return found.brokers

    async def read_states(self, pairs: Sequence[tuple[str, int]]) -> list[Leadership | Malformed | None]:
        """State znodes of partitions, read after a ``sync``; malformed ones are reported by path and watched."""

        async def read() -> list[Leadership | Malformed | None]:
            since = self.zk.last_zxid
            await self.zk.sync("/brokers/topics")
            found = await self.store.load_states(pairs)
            bad = [state.path for state in found if isinstance(state, Malformed)]
            if bad:
                await self.zk.watch(data=bad, since_zxid=since)
            return found

        found = await self.until_read(read)
        for state in found:
            if isinstance(state, Malformed):
                self.malformed(state)
        return found

    def malformed(self, found: Malformed) -> None:
        """A znode that cannot be understood: reported once by its path, everything else goes on.

        It stays listed until a watch says that it changed, then it is read again.
        """
        if self.counters.malformed.get(found.path) != found.why:
            log.error(
                "%s cannot be used: %s; mend or delete it, the rest of the cluster is served", found.path, found.why
            )
            self.counters.malformed[found.path] = found.why

    def malformed_below(self, parent: str) -> list[str]:
        """Paths of malformed children of a znode: they are watched like the others."""
        return [path for path in self.counters.malformed if path.rpartition("/")[0] == parent]

    async def connected(self) -> None:
        """Waits until connection, claim and lease hold; raises TermEnded where the term is over."""
        while not (self.ready.is_set() and self.gate.open()):
            self.gate.check()
            with anyio.move_on_after(GATE_POLL_S):
                await self.ready.wait()
                await asyncio.sleep(GATE_POLL_S)

    async def until_read(self, read: Callable[[], Awaitable[T]]) -> T:
        """Returns what ``read`` returns; repeats it after each lost connection. Raises TermEnded."""
        while True:
            await self.connected()
            try:
                found = await read()
            except (NotConnected, OutcomeUnknown):
                continue
            self.gate.check()
            return found

    def _count(self, report: Report) -> None:
        self.counters.conflicts += report.conflicts
        self.counters.unknown_outcomes += report.unknown
        self.counters.unclean_elections += report.unclean
        self.counters.refusals.update(report.refused)
        self.counters.failures.update(report.failed)
        if report.unclean:
            log.warning("%s", report.unclean_sentence(self.cluster.name))
        if report.done or report.refused or report.failed:
            state_change.info("%s", report.sentence())


def _stuck(before: tuple[int, int, int], report: Report) -> bool:
    """Whether a round met other writers, or got nothing through (a server that hangs up at large requests)."""
    conflicts, unknown, written = before
    return report.conflicts > conflicts or (report.unknown > unknown and report.written == written)
