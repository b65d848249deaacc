"""Checks requests to brokers, and responses to their calls: I2, I7, I10, I11, I12, I14, I15, I17, I24."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from brokers.wire.errors import Error
from state_machines.model.types import LEADER_DURING_DELETE
from testing.simulated.values import Head, LeaderAndIsrEntry, Request, StopEntry, StopReplica
from tests.simulation.kafka.history import Key
from tests.simulation.kafka.invariants_writes import WriteInvariants
from tests.simulation.kafka.limits import rows_max
from tests.simulation.kafka.network import SimConnection

if TYPE_CHECKING:
    from testing.simulated.broker import Received
    from tests.simulation.kafka.leading import LeadingBroker
    from tests.simulation.kafka.world import SimulatedKafka

CONNECTS_PER_S_MAX: Final = 15


class RequestInvariants(WriteInvariants):
    """Looks at every request at the moment it is written to a connection, and at every granted call."""

    def __init__(self, world: SimulatedKafka) -> None:
        super().__init__(world)
        self._rows_max = rows_max(world.plan.limits)
        self._leaders: dict[tuple[Key, int, int], int] = {}
        self._sent: dict[tuple[int, int, int, int], dict[Key, tuple[int, int, int]]] = {}
        self._sent_as_new: set[tuple[int, Key, int]] = set()
        self._stopped_before: set[tuple[int, Key, int]] = set()
        self._producer_ids: dict[int, int] = {}
        self._connects: dict[tuple[object, str, int], int] = {}

    def connecting(self, process: object, host: str) -> None:
        """Checks I15: retries are bounded."""
        second = process, host, int(self.world.loop.now_s)
        self._connects[second] = self._connects.get(second, 0) + 1
        if self._connects[second] > CONNECTS_PER_S_MAX:
            self._fail("I15", f"{self._connects[second]} connections to {host} within a second")

    def sent(self, connection: SimConnection, request: Request) -> None:
        """Checks a request that a daemon sends.

        I11: one request in flight per broker, with the broker epoch known now, in the term's name.

        I14: a daemon sends nothing while the session is not connected, or after the lease could have run out.

        I24: nor before the claim was compared, on the present connection and since the lease last ran out.

        I15: a request has a bounded number of partitions.
        """
        if len(request.entries) > self._rows_max:
            self._fail("I15", f"{len(request.entries)} partitions in one request")
        node, broker = connection.daemon, connection.broker
        term, head = node.term, request.head
        if node.process is not connection.process or term is None or term.gate.ended:
            self._fail("I11", f"{node} sends {head.api.name} to {broker} outside of a term")
            return
        if head.controller_epoch != term.claim.epoch:
            self._fail("I11", f"{node} sends {head.api.name} under epoch {head.controller_epoch}")
        known = term.cluster.brokers.get(broker.id)
        if known is None or known.epoch != head.broker_epoch:
            self._fail("I11", f"{node} sends {head.api.name} to {broker} at epoch {head.broker_epoch}, known: {known}")
        if any(c.busy and c is not connection and c.process is connection.process for c in broker.connections):
            self._fail("I11", f"{node} has two requests to {broker} in flight")
        assert node.zk is not None
        self._may_act(node.zk, term.claim.fence_version, f"sends {head.api.name} to {broker}")
        self.received(broker.id, request)

    def received(self, broker: int, request: Request) -> None:
        """Checks the content of a request to a broker.

        I2: one leader per partition and leader epoch; neither epoch goes down from one request of a term to the next.
        I10: no replica twice.

        Besides, a request contains nothing that ZooKeeper did not hold, and no former life of a partition after a later
        one. New replicas are marked as new.
        """
        if isinstance(request, StopReplica):
            self._stopped(broker, request)
            return
        head = request.head
        channel = head.controller_epoch, head.broker_epoch, head.api.value, head.controller_id
        sent = self._sent.setdefault(channel, {})
        for entry in request.entries:
            key, before = (entry.topic, entry.partition), sent.get((entry.topic, entry.partition))
            if entry.leader == LEADER_DURING_DELETE:
                self._forgotten(head, key, before)
                continue
            lives = self.history.lives(key, entry.partition_epoch, entry.leader, entry.leader_epoch, entry.isr)
            if not lives:
                held = self.history.ever(key, entry.partition_epoch)
                self._fail("I2", f"{head.api.name} sends {key} {entry}, ZooKeeper held {held}")
                return
            epochs = entry.leader_epoch, entry.partition_epoch
            life = next((life for life in lives if before is None or (life, *epochs) >= before), lives[-1])
            if self._leaders.setdefault((key, life, entry.leader_epoch), entry.leader) != entry.leader:
                first = self._leaders[key, life, entry.leader_epoch]
                self._fail("I2", f"{key} is led by {entry.leader} and by {first} in leader epoch {entry.leader_epoch}")
            if before is not None and before > (life, *epochs):
                self._fail("I2", f"{head.api.name} sends {key} {(life, *epochs)} after {before}")
            sent[key] = life, *epochs
            if isinstance(entry, LeaderAndIsrEntry):
                self._new(broker, head, key, lives, is_new=entry.is_new)
                if entry.is_new:
                    self._begun_here(head, key, entry.partition_epoch)
            if len(set(entry.replicas)) != len(entry.replicas):
                self._fail("I10", f"{key} is sent with the replicas {entry.replicas}")

    def _forgotten(self, head: Head, key: Key, before: tuple[int, int, int] | None) -> None:
        """Checks I12: no broker is to forget a partition that goes on: its topic names it, and has no marker."""
        topic = self.history.topics.get(key[0])
        named = topic is not None and key[1] in topic.partitions
        goes_on = named and key[0] not in self.history.markers and self.history.current(key) is not None
        if goes_on and before is not None and before[0] == self.history.life(key):
            self._fail("I12", f"{head.api.name} makes brokers forget {key}, which is not to be deleted")

    def _stopped(self, broker: int, request: StopReplica) -> None:
        """Checks I12: no broker deletes a log of a topic that goes on, except replicas that are being removed.

        Brokers refuse requests of a former controller. A broker without the recreated topic has logs of the former one
        alone.
        """
        if request.head.controller_epoch != self.history.epoch:
            return
        for entry in request.entries:
            key = entry.topic, entry.partition
            self._stopped_before.add((request.head.broker_epoch, key, self.history.life(key)))
            goes_on = entry.topic not in self.history.markers and self.history.current(key) is not None
            if entry.delete and goes_on and broker in self.history.kept(key):
                life = self.history.life(key)
                if life and (request.head.broker_epoch, key, life) not in self._sent_as_new:
                    continue
                self._fail("I12", f"broker {broker} is sent StopReplica to delete {key}, which is not to be deleted")

    def _new(self, broker: int, head: Head, key: Key, lives: list[int], *, is_new: bool) -> None:
        """Checks that the first request for a partition, created by this term with the broker in its ISR, marks it new.

        One that was stopped before its first request is an old one, as in Kafka. Two lives may begin alike: then a
        request may be for either. A partition that began with the replicas of the
        former topic gives those to a broker that is added later.
        """
        life, first = self.history.life(key), self.history.at(key, 0)
        incarnation = head.broker_epoch, key, life
        if first is None or life not in lives or incarnation in self._sent_as_new:
            return
        self._sent_as_new.add(incarnation)
        if len(lives) > 1 or key in self.history.spoilt:
            return
        known = self._created[key, life].get(broker) == head.broker_epoch
        if incarnation in self._stopped_before:
            return
        if known and first.controller_epoch == head.controller_epoch and broker in first.isr and not is_new:
            self._fail("S4-31", f"{key} is sent as an old one to broker {broker} with epoch {head.broker_epoch}")

    def _begun_here(self, head: Head, key: Key, partition_epoch: int) -> None:
        """Checks I17: this term created a partition that is marked as new, or wrote it when it got another replica."""
        first, held = self.history.at(key, 0), self.history.at(key, partition_epoch)
        if first is None or held is None or key in self.history.spoilt:
            return
        if head.controller_epoch not in (first.controller_epoch, held.controller_epoch):
            self._fail("I17", f"{key} is sent as new under epoch {head.controller_epoch}, it holds {held}")

    def stopped(self, node: LeadingBroker, response: Received) -> None:
        """Notes a response to StopReplica; a log that the broker reports as deleted may be on a failed directory."""
        for entry in response.request.entries:
            key = entry.topic, entry.partition
            if not isinstance(entry, StopEntry) or not entry.delete:
                continue
            unfound, unstopped = (
                kept.setdefault(key, set()) for kept in (self.history.unfound, self.history.unstopped)
            )
            if response.error or response.errors.get(key, Error.NONE):
                unstopped.add(node.id)
            else:
                unstopped.discard(node.id)
                (unfound.add if key in node.core.hosting.failed else unfound.discard)(node.id)

    # -- calls of brokers

    def granted(self, node: LeadingBroker, keys: Sequence[Key]) -> None:
        """Checks I7: ZooKeeper holds a granted ISR change at that partition epoch."""
        for key in keys:
            replica = node.core.replicas.get(key)
            if replica is None or replica.leader != node.id:
                continue
            held = [state for _, state in self.history.ever(key, replica.partition_epoch)]
            if not any(state.leader_epoch != replica.leader_epoch or state.isr == replica.isr for state in held):
                self._fail("I7", f"{node} was granted {replica.isr} for {key}, ZooKeeper held {held}")

    def producer_ids(self, broker: int, start: int) -> None:
        """Checks I7: no block of producer ids is handed out twice."""
        if start in self._producer_ids:
            self._fail("I7", f"brokers {self._producer_ids[start]} and {broker} have the producer ids from {start} on")
        self._producer_ids[start] = broker
