"""Runs one term, from the won claim to its end: the queue's consumer and its sources.

Watches and calls only enqueue. Every cause of a term's end (a fenced write, a lost session, another controller, most
brokers with a higher epoch, an error, a stop, a hand-back) calls :meth:`Gate.end` at once, past the queue.
docs/explanation/architecture.md lists every cause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import anyio

from brokers.listener.controller_listener import ControllerListener
from brokers.outbound.channels import Channels
from brokers.outbound.delivery import BrokerResponse, Delivered, LogsStopped
from brokers.queries import Dial
from brokers.transport import Transport
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.kafka.brokers.broker_settings import serve_clients
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.metrics.values import Counters
from controller.kafka.path.adoption import Adoption
from controller.kafka.path.agenda import DeletionQueue
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import Event, EventKind, EventQueue
from controller.kafka.path.facts import BrokerSide, StoreSide, TermMemory
from controller.kafka.path.gate import Gate, TermEnded, weakly
from controller.kafka.term.broker_responses import BrokerResponses
from controller.kafka.term.claim_monitor import WATCHED, ClaimMonitor, go_on, stand_still
from controller.kafka.term.dispatch import HANDLERS, RAISED, REREAD, STATES, changed
from controller.kafka.term.failover import PARENTS, arm_parents, close_own_znodes, fail_over, record_election
from controller.kafka.term.procedures import TermProcedures
from controller.kafka.term.setup import channel_settings, parts_of
from controller.procedures.parking import Parking
from controller.process.wording import named
from controller.role.claim import Claim, Role
from controller.role.lease import Lease
from metadata_store import paths
from metadata_store.errors import NotConnected, OutcomeUnknown, SessionLost
from metadata_store.fencing.outcome import Fenced
from metadata_store.kafka_store import KafkaStore
from metadata_store.port import ConnectionState, WatchEvent, WatchKind, ZooKeeper
from state_machines.journal.events import Kind
from state_machines.model.cluster import Cluster
from state_machines.model.facts import NOTHING, Entered, Fact

log = logging.getLogger("regent.role")


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
        adoption = Adoption(settings.controller, asks=dial is not None)
        self.controller = Controller(
            StoreSide(KafkaStore(zk), self.gate, settings.controller.conflict_rounds_max),
            BrokerSide(self.channels, ibp, daemons, dial),
            TermMemory(self.cluster, queue, counters, adoption, deletion_queue, journal),
        )
        self.parts = parts_of(self.controller, settings.controller, dial, role.seals)
        self.authorizer = self.parts.authorizer
        self.procedures = TermProcedures(self.controller, parking)
        self._daemon_id = settings.controller.id
        self.serving, self.finished = asyncio.Event(), asyncio.Event()
        self.idle = asyncio.Event()
        self.handling: EventKind | None = None
        self._unread_since: int | None = None
        self._suspensions = 0
        self._counters = counters

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
        if self.parts.policy is not None:
            await self.parts.policy.close()
        await self.channels.close()

    async def _serve(self) -> None:
        await self._fail_over()
        self.serving.set()
        self.parts.registered(self.cluster.brokers.keys())
        self.controller.spawn(serve_clients(self.controller.adoption.settled, self.authorizer))
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
            await record_election(self.controller, self.claim)
            if self.authorizer.lists:
                self.controller.spawn(self.authorizer.follow(self.zk), at_end=self.authorizer.close)
            await fail_over(self.controller, self.parts.endpoint.change)
            self.parts.balance.begin()
            self.controller.spawn(close_own_znodes(self.controller, self._counters))
            await self.procedures.load(brokers_first=True)
            self.controller.journal.event(Kind.CTL_PHASE, why="in office: the cluster is read, leaders are elected")
        except (NotConnected, OutcomeUnknown):
            raise TermEnded("the connection to ZooKeeper was lost while taking office") from None
        finally:
            self._counters.events[EventKind.FAILOVER].record(time.monotonic() - started_s)

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
                await HANDLERS[event.kind](self.parts, event)
                self.procedures.handled(event.kind)
        except (NotConnected, OutcomeUnknown):
            await self.controller.connected()
            if event.key is not None:
                self.queue.post(event)
        finally:
            self.handling = None
            self._counters.events[event.kind].record(time.monotonic() - started_s)

    async def drain(self, listener: ControllerListener, within_s: float, note: Callable[[str], None]) -> None:
        """Ends in good order: refuses brokers' calls, handles queued events, and waits for brokers' acknowledgements.

        Each of the last two takes ``within_s`` at most; ``note`` gets the outcome.
        """
        listener.resign()
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = "settled", id(settled)
        self.queue.post(Event(EventKind.SETTLED, settled, key=key, preempt=lambda: _cancel(settled)))
        with anyio.move_on_after(within_s):
            await asyncio.wait({settled})
        if behind := await self.channels.quiesced(within_s):
            brokers = named(sorted(behind))
            note(f"drained; broker {brokers} has not acknowledged everything, its next controller repeats it")
        else:
            note("drained: every broker acknowledged everything")

    # -- the session

    def watched(self, event: WatchEvent) -> None:
        """Enqueues the event of a watch that fired."""
        path, kind = event
        repaired = self._counters.malformed.pop(path, None) is not None
        if kind is WatchKind.DELETED and path in PARENTS:
            self._end(f"error: {path} was deleted; the next term creates it again")
        if path in WATCHED:
            self._claim_monitor.doubt()
        for watched, detail in changed(event, self._daemon_id, repaired=repaired):
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


def _cancel(waiting: asyncio.Future[None]) -> None:
    waiting.cancel()
