"""Runs one term, from the won claim to its end: the queue's consumer and its sources.

Watches and calls only enqueue. Every cause of a term's end (a fenced write, a lost session, another controller, most
brokers with a higher epoch, an error, a stop, a hand-back) calls :meth:`Gate.end` at once, past the queue.
docs/explanation/architecture.md lists every cause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from functools import partial

import anyio

from brokers.outbound.channels import Channels
from brokers.outbound.delivery import BrokerResponse, Delivered, LogsStopped
from brokers.queries import Dial
from brokers.transport import Transport
from brokers.wire.versions import Ibp
from configs.sections import ControllerSettings
from configs.settings import Settings
from controller.kafka.access.authorizer import Authorizer, authorizer_of
from controller.kafka.brokers.broker_settings import query_settings
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.path.adoption import IBP, WAIT_S_MAX, Adoption, judge_ibp
from controller.kafka.path.agenda import DeletionQueue
from controller.kafka.path.controller import Controller
from controller.kafka.path.default_configs import DefaultConfigs
from controller.kafka.path.events import Event, EventKind, EventQueue
from controller.kafka.path.facts import BrokerSide, StoreSide, TermMemory
from controller.kafka.path.gate import Gate, TermEnded, weakly
from controller.kafka.path.leader_balance import LeaderBalance
from controller.kafka.path.topic_policy import TopicPolicy
from controller.kafka.term.broker_responses import BrokerResponses
from controller.kafka.term.channel_setup import channel_settings
from controller.kafka.term.claim_monitor import WATCHED, ClaimMonitor, go_on, stand_still
from controller.kafka.term.dispatch import HANDLERS, RAISED, REREAD, STATES, changed
from controller.kafka.term.failover import PARENTS, arm_parents, close_own_znodes, fail_over
from controller.kafka.term.procedures import TermProcedures
from controller.kafka.topics.ghosts import find_ghosts
from controller.metrics.counters import Counters
from controller.procedures.parking import Parking
from controller.role.claim import Claim, Role
from controller.role.lease import Lease
from metadata_store import paths
from metadata_store.errors import NotConnected, OutcomeUnknown, SessionLost
from metadata_store.fencing.outcome import Fenced
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import read_cluster_id
from metadata_store.port import ConnectionState, WatchEvent, WatchKind, ZooKeeper
from state_machines.admin_rules.broker_settings import Reported
from state_machines.journal.events import Kind
from state_machines.model.cluster import Cluster
from state_machines.model.facts import NOTHING, Entered, Fact
from state_machines.model.types import Broker

log = logging.getLogger("regent.role")

TOLD_S_MAX = 30.0
"""Longest wait of queries to brokers for the requests that are being sent."""


def _on_request(journal: KafkaJournal, counters: Counters, found: Delivered) -> None:
    """Records a request to a broker, and the time of one that has its response."""
    journal.request(found)
    if found.acknowledged:
        counters.broker_requests[found.broker_id].record(found.seconds)


class Term:
    """Runs one term: :meth:`run` starts it, ``gate.end`` ends it.

    No part of a term refers back to it, so that its model leaves memory with it: the garbage collector would not find
    the model, which is frozen after the first propagation.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        zk: ZooKeeper,
        role: Role,
        claim: Claim,
        lease: Lease,
        counters: Counters,
        ibp: Ibp,
        daemons: frozenset[int],
        advertised: tuple[str, int],
        dial: Dial | None = None,
        transport: Transport | None = None,
        journal: KafkaJournal | None = None,
        parking: Parking | None = None,
    ) -> None:
        self.role = role
        self.claim = claim
        self.zk = zk
        queue = self.queue = EventQueue()
        self.gate = Gate(claim.epoch, claim.fence_version, lease, lambda: zk.state is ConnectionState.CONNECTED)
        journal = journal or KafkaJournal()
        end = weakly(self._end, None)
        stood_still, back = partial(stand_still, queue, journal, counters), partial(go_on, queue, journal)
        self._claim_monitor = ClaimMonitor(role, claim, self.gate, end=end, stood_still=stood_still, back=back)
        self.cluster = Cluster(claim.epoch, recovery_state=ibp.recovery_state, daemons=daemons)
        deletion_queue = DeletionQueue(self.cluster, queue, enabled=None)
        answers = BrokerResponses(
            self.cluster,
            weakly(self.enter, NOTHING),
            self._claim_monitor,
            counters,
            end,
            weakly(self._stopped, None),
            queue,
            weakly(self._logs_stopped, None),
        )
        self.outranked = answers.outranked
        self.channels = Channels(
            self.cluster,
            channel_settings(settings, claim.epoch, ibp, advertised),
            self.gate.open,
            answers.on_response,
            transport=transport,
            on_request=partial(_on_request, journal, counters),
            on_acknowledged=counters.propagation.record,
        )
        self.authorizer = authorizer_of(settings.controller)
        brokers = self._brokers(settings.controller.id, ibp, dial, daemons)
        self.controller = Controller(
            StoreSide(KafkaStore(zk), self.gate, settings.controller.conflict_rounds_max),
            brokers,
            self._memory(settings.controller, deletion_queue, journal, counters, asks=dial is not None),
        )
        self.procedures = TermProcedures(self.controller, parking)
        self._dial = dial
        self.serving, self.finished = asyncio.Event(), asyncio.Event()
        self.idle = asyncio.Event()
        self.handling: EventKind | None = None
        self._unread_since: int | None = None
        self._suspensions = 0
        self._unqueried: set[int] = set()
        """Brokers that are to be queried for partitions that ZooKeeper lacks."""
        self._querying = False
        self._counters = counters

    def _brokers(self, daemon_id: int, ibp: Ibp, dial: Dial | None, daemons: frozenset[int]) -> BrokerSide:
        """Returns what handlers use towards brokers."""
        return BrokerSide(
            self.channels,
            ibp,
            DefaultConfigs(self.cluster, dial, ibp),
            daemons,
            daemon_id=daemon_id,
            dial=dial,
            seals=self.role.seals,
            joined=weakly(self._joined, None),
        )

    def _memory(
        self,
        settings: ControllerSettings,
        deletion_queue: DeletionQueue,
        journal: KafkaJournal,
        counters: Counters,
        *,
        asks: bool,
    ) -> TermMemory:
        """Returns what handlers keep in memory. ``asks``: brokers are queried for their settings."""
        adoption = Adoption(settings, asks=asks)
        policy = TopicPolicy(settings, adoption.policy_class) if settings.create_topic_policy is not None else None
        balance = LeaderBalance.of(settings)
        return TermMemory(
            self.cluster, self.queue, counters, adoption, balance, deletion_queue, journal, self.authorizer, policy
        )

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the topic with an id, None where none is known."""
        topic = self.cluster.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    def registered(self, broker: int, epoch: int) -> bool:
        """Checks whether a live broker has this epoch; True while brokers were not read yet."""
        known = self.cluster.brokers.get(broker)
        return not self.cluster.brokers or (known is not None and known.epoch == epoch)

    @property
    def stands_still(self) -> bool:
        """Checks whether the term does nothing because its lease ran out."""
        return self._claim_monitor.stands_still

    async def run(self) -> str:
        """Runs the failover and serves until the term ends; returns the reason of its end."""
        try:
            with self.gate.scope:
                await self._until_ended()
        finally:
            self._end("the daemon stops")
            with anyio.CancelScope(shield=True):
                await self._close()
        assert self.gate.why_ended is not None
        self.controller.journal.event(Kind.CTL_RESIGNED, why=self.gate.why_ended)
        return self.gate.why_ended

    async def _until_ended(self) -> None:
        try:
            await self._serve()
        except Fenced as fenced:
            self._counters.fenced += 1
            self.controller.journal.event(Kind.FENCED, err=str(fenced))
            self._end(str(fenced))
        except TermEnded as ended:
            self._end(str(ended))
        except SessionLost:
            self._end("the ZooKeeper session is lost")
        except Exception as error:
            log.exception("an error in the term, which ends: the model may be wrong")
            self._end(f"error: {type(error).__name__}: {error}")

    def _end(self, why: str) -> None:
        """Ends the term and wakes the tasks that wait for the connection."""
        self.gate.end(why)
        self.gate.ready.set()

    async def _close(self) -> None:
        """Refuses waiting callers at once, and those that come from now on; leaves no task of the term running."""
        self.queue.close()
        self.procedures.close(self.gate.why_ended or "the daemon stops")
        self.authorizer.close()
        self._claim_monitor.close()
        await self.controller.close()
        await self.channels.close()

    async def _serve(self) -> None:
        await self._fail_over()
        self.serving.set()
        self._joined(self.cluster.brokers.keys())
        self.controller.spawn(self._serve_clients(self.controller.adoption.settled, self.authorizer))
        while True:
            if not len(self.queue):
                self.idle.set()
            event = await self.queue.next()
            self.idle.clear()
            self._counters.queue_time.record(time.monotonic() - event.enqueued_s)
            await self._handle(event)

    async def _fail_over(self) -> None:
        started_s = time.monotonic()
        try:
            await self.role.verify_lock_out()
            if not await self._claim_monitor.arm():
                raise TermEnded("another controller was elected right after the claim")
            await self._elected()
            if self.authorizer.lists:
                self.controller.spawn(self.authorizer.follow(self.zk), at_end=self.authorizer.close)
            await fail_over(self.controller)
            self.controller.spawn(close_own_znodes(self.controller, self._counters))
            await self.procedures.load(brokers_first=True)
            self.controller.journal.event(Kind.CTL_PHASE, why="in office: the cluster is read, leaders are elected")
        except (NotConnected, OutcomeUnknown):
            raise TermEnded("the connection to ZooKeeper was lost while taking office") from None
        finally:
            self._counters.events[EventKind.FAILOVER].record(time.monotonic() - started_s)

    async def _elected(self) -> None:
        """Writes the journal's first row of the term: the cluster's id and the controller before."""
        journal = self.controller.journal
        if journal.kept:
            cluster_id = await read_cluster_id(self.controller.zk)
            journal.of_cluster(cluster_id if isinstance(cluster_id, str) else "")
            before = self.claim.displaced
            why = "no controller held the role" if before is None else f"{before} held the role"
            journal.event(Kind.CTL_ELECTED, broker=before, why=why)

    async def _handle(self, event: Event) -> None:
        """Runs the handler; a level-triggered event that met a lost connection is repeated: it reads again."""
        started_s = time.monotonic()
        self.handling = event.kind
        self.controller.journal.noticed(event.enqueued_s)
        try:
            if event.kind is EventKind.RECONNECTED:
                await self.rearm()
            elif event.kind is EventKind.PROCEDURES:
                await self.procedures.turn()
            else:
                await HANDLERS[event.kind](self.controller, event)
                self.procedures.handled(event.kind)
        except (NotConnected, OutcomeUnknown):
            await self.controller.connected()
            if event.key is not None:
                self.queue.post(event)
        finally:
            self.handling = None
            self._counters.events[event.kind].record(time.monotonic() - started_s)

    # -- the session

    def watched(self, event: WatchEvent) -> None:
        """Enqueues the event of a watch that fired."""
        path, kind = event
        repaired = self._counters.malformed.pop(path, None) is not None
        if kind is WatchKind.DELETED and path in PARENTS:
            self._end(f"error: {path} was deleted; the next term creates it again")
        if path in WATCHED:
            self._claim_monitor.doubt()
        for watched, detail in changed(event, self.controller.daemon_id, repaired=repaired):
            if watched in STATES:
                self.controller.reassignment_queue.touched.add(path)
            self.queue.signal(RAISED[watched], detail)

    def state_changed(self, state: ConnectionState) -> None:
        """Holds writes back when the connection changed; ends the term with its session."""
        if state is ConnectionState.SUSPENDED:
            self._suspensions += 1
            if self._unread_since is None:
                self._unread_since = self.zk.last_zxid
            self._claim_monitor.suspended()
        elif state is ConnectionState.CONNECTED:
            self._claim_monitor.reconnected()
        elif state is ConnectionState.LOST:
            self._end("the ZooKeeper session is lost")

    async def rearm(self) -> None:
        """Arms all watches again, which went with the connection, then reads again; calls wait for that."""
        since = self.zk.last_zxid if self._unread_since is None else self._unread_since
        suspensions = self._suspensions
        await arm_parents(self.controller, since)
        await self.zk.watch(
            data=[
                *(paths.broker(b) for b in self.cluster.brokers),
                *(paths.topic(name) for name in self.cluster.topic_index),
                *self._counters.malformed,
            ],
            since_zxid=since,
        )
        if suspensions == self._suspensions:
            self._unread_since = None
        for kind in REREAD:
            self.queue.signal(kind)
        if self.gate.ready.is_set():
            self.queue.take_calls()

    # -- the brokers

    def enter(self, fact: Fact) -> Entered:
        """Enters what was heard beside the queue, as from a broker's response; an ended term enters nothing."""
        return NOTHING if self.gate.ended else self.controller.enter(fact)

    def _stopped(self, answer: BrokerResponse) -> None:
        """Takes a response to StopReplica: deletions and reassignments wait for it."""
        self.controller.deletion_queue.answered(answer)
        self.controller.reassignment_queue.answered(self.cluster, answer)

    def _logs_stopped(self, answer: LogsStopped) -> None:
        self.controller.strays.answered(answer)

    @staticmethod
    async def _serve_clients(settled: asyncio.Event, authorizer: Authorizer) -> None:
        """Holds clients' calls back until brokers' settings are known, but not for ever."""
        with anyio.move_on_after(WAIT_S_MAX):
            await settled.wait()
        authorizer.serve()

    def _joined(self, brokers: Collection[int]) -> None:
        """Queries brokers that registered for their settings and their metadata, beside the queue."""
        self._counters.lowered_ibp_brokers.intersection_update(self.cluster.brokers)
        for gone in self._counters.broker_requests.keys() - self.cluster.brokers.keys():
            del self._counters.broker_requests[gone]
        if self._dial is not None and brokers:
            self.controller.spawn(self._query_settings(self._dial, tuple(brokers)))
            self._find_ghosts(self._dial, brokers)

    def _find_ghosts(self, dial: Dial, brokers: Collection[int]) -> None:
        """Has brokers queried for partitions that ZooKeeper lacks, by one task at a time."""
        self._unqueried.update(brokers)
        if not self._querying:
            self._querying = True
            self.controller.spawn(find_ghosts(self.controller, dial, self._unqueried), weakly(self._queried, None))

    def _queried(self) -> None:
        """Begins another task for brokers that have registered since the last one found nothing left to do."""
        self._querying = False
        if self._unqueried and self._dial is not None and not self.gate.ended:
            self._find_ghosts(self._dial, ())

    async def _query_settings(self, dial: Dial, brokers: Collection[int]) -> None:
        """Sends pending requests before the query, unless clients wait for its responses."""
        adoption, queue = self.controller.adoption, self.queue
        if adoption.settled.is_set():
            await self.channels.quiesced(TOLD_S_MAX)

        def heard(broker: Broker, told: Reported) -> None:
            judge_ibp(broker.id, told.get(IBP), self.controller.ibp, self._counters)
            adoption.hear(broker, told)
            queue.signal(EventKind.BROKER_SETTINGS)

        await query_settings(dial, self.cluster, brokers, heard)
