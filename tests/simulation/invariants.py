"""What must hold after every event. Each check says which invariant it is and what that demands.

The checks are incremental: they look at what a ZooKeeper write, a request or a changed row says, never at everything.
They know ZooKeeper's content from the writes themselves (:mod:`tests.simulation.history`), and the lease from the
heartbeats that were answered, not from the daemon's own lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from brokers.sealing import REQUEST_ROWS_MAX
from brokers.simulated.values import Head, LeaderAndIsr, LeaderAndIsrEntry, Request, UpdateMetadata
from controller.event_queue import EVENTS_MAX
from controller.lease import LEASE_FRACTION
from controller.reign import Reign
from metadata_store import paths
from metadata_store.port import (
    ANY_VERSION,
    IN_FLIGHT_MAX,
    Check,
    ConnectionState,
    Create,
    Created,
    Delete,
    OpResult,
    SetData,
    Stat,
    Write,
)
from state_machines.types import NO_LEADER, NO_VERSION, Leadership, PartitionState
from tests.simulation import faults
from tests.simulation.ensemble import Session
from tests.simulation.history import History, Key, key_of, topic_of
from tests.simulation.network import SimConnection

if TYPE_CHECKING:
    from brokers.simulated.calls import IsrChange
    from tests.simulation.brokers import BrokerNode
    from tests.simulation.world import World
    from tests.simulation.zookeeper import SimZooKeeper

SLACK_S: Final = 1e-9
CONNECTS_PER_S_MAX: Final = 15
OWN_ROOTS: Final = ("/regent", paths.CONTROLLER)


@dataclass(frozen=True)
class Violation:
    """An invariant does not hold: which one, and the values."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Invariants:
    """One run's. ``world.violated`` is told of what does not hold."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = History()
        self._owner: dict[int, object] = {}
        self._leaders: dict[tuple[Key, int], int] = {}
        self._sent: dict[tuple[int, int, int, int], dict[Key, tuple[int, int]]] = {}
        self._asked: set[tuple[Key, int, int, tuple[int, ...]]] = set()
        self._producer_ids: dict[int, int] = {}
        self._rows: dict[int, Sequence[object]] = {}
        self._settled: dict[int, tuple[object, object]] = {}
        self._created: dict[Key, dict[int, int]] = {}
        self._told_new: set[tuple[int, Key]] = set()
        self._connects: dict[tuple[object, str, int], int] = {}

    def _fail(self, invariant: str, what: str) -> None:
        self.world.violated(Violation(invariant, what))

    def spun(self, times: int) -> None:
        """I15: nothing turns the loop for ever without waiting for anything."""
        self._fail("I15", f"{times} turns of the loop, or refused requests, without any time passing")

    # -- writes to ZooKeeper

    def submitted(self, zk: SimZooKeeper, ops: Sequence[Write]) -> None:
        """A daemon sends a write.

        I14: no write of a term while the session is not connected, or after the lease could have run out.
        I15: no more writes in flight than the window.
        """
        if zk.writes_in_flight > IN_FLIGHT_MAX:
            self._fail("I15", f"{zk.name} has {zk.writes_in_flight} writes in flight")
        if isinstance(ops[0], Check) and ops[0].path == paths.CONTROLLER_EPOCH:
            self._may_act(zk, f"writes {ops[-1].path}")

    def _may_act(self, zk: SimZooKeeper, what: str) -> None:
        if zk.state is not ConnectionState.CONNECTED:
            self._fail("I14", f"{zk.name} {what} while its session is {zk.state}")
        until_s = zk.heartbeat_s + LEASE_FRACTION * zk.session_timeout_ms / 1000
        if self.world.loop.now_s > until_s + SLACK_S:
            self._fail("I14", f"{zk.name} {what} at {self.world.loop.now_s:.3f} s, its lease ended at {until_s:.3f} s")

    def committed(self, session: Session, ops: Sequence[Write], results: Sequence[OpResult]) -> None:
        """A write was applied."""
        by_daemon = session.client.by_daemon
        if by_daemon:
            self._fenced(session, ops)
        for op, result in zip(ops, results, strict=True):
            if isinstance(op, SetData):
                assert isinstance(result, Stat)
                self._written(session, op.path, op.data, result, op.version)
            elif isinstance(op, Create):
                assert isinstance(result, Created)
                self._written(session, result.path, op.data, result.stat, None)
            elif isinstance(op, Delete):
                self._deleted(op.path)

    def _fenced(self, session: Session, ops: Sequence[Write]) -> None:
        """I1: a daemon writes the cluster's znodes only with a check of the epoch, and only under its own epoch."""
        first = ops[0]
        if isinstance(first, Check) and first.path == paths.CONTROLLER_EPOCH:
            if self._owner.get(first.version) is not session.client.process:
                self._fail("I1", f"{session.client.name} writes {ops[-1].path} under an epoch that it did not claim")
            return
        for op in ops:
            plain = isinstance(op, Check) or (isinstance(op, Create) and op.data is None)
            if not plain and not op.path.startswith(OWN_ROOTS):
                self._fail("I1", f"{session.client.name} writes {op.path} without a check of the controller epoch")

    def _written(self, session: Session, path: str, data: bytes | None, stat: Stat, expected: int | None) -> None:
        key = key_of(path)
        if key is not None:
            self._state_written(session, key, self.history.leadership(data, stat.version), expected)
            if expected is None:
                self._created[key] = self.world.registrations_known_to(session.client.process)
        elif path == paths.CONTROLLER_EPOCH:
            self._epoch_written(session, int(data or b"0"), stat.version)
        elif (topic := topic_of(path)) is not None:
            self._topic_written(topic, data, stat)
        elif path.startswith(paths.BROKER_IDS + "/"):
            broker = int(path.rpartition("/")[2])
            self.history.registered[broker] = stat.czxid
            self.world.registered(broker, stat.czxid)

    def _epoch_written(self, session: Session, epoch: int, version: int) -> None:
        """I1: the controller epoch grows strictly, and each version of it has one owner."""
        if self.history.epoch and epoch <= self.history.epoch:
            self._fail("I1", f"{session.client.name} sets the epoch to {epoch} after {self.history.epoch}")
        self.history.epoch, self.history.epoch_version = epoch, version
        self._owner[version] = session.client.process
        if session.client.by_daemon and self.world.rules_besides(session.client.process):
            self.world.happened(faults.DAEMON_TWO)

    def _topic_written(self, topic: str, data: bytes | None, stat: Stat) -> None:
        """I10: no replica twice in an assignment."""
        found = self.history.topic_written(topic, data, stat.version, stat.czxid)
        for partition, assignment in found.partitions.items():
            if len(set(assignment.replicas)) != len(assignment.replicas):
                self._fail("I10", f"{topic}-{partition} is assigned to {assignment.replicas}")

    def _state_written(self, session: Session, key: Key, new: Leadership, expected: int | None) -> None:
        states = self.history.states.setdefault(key, [])
        if expected is None:
            states.clear()
        elif expected == ANY_VERSION:
            self._fail("I7", f"{session.client.name} writes {key} with any version")
        self._sound(key, new)
        if states:
            self._follows(session, key, states[-1], new)
        states.append(new)

    def _sound(self, key: Key, new: Leadership) -> None:
        """I3: the leader is in the ISR or there is none; the ISR is assigned, never empty, each member once."""
        assigned = self.history.assignment(key)
        if new.leader not in (NO_LEADER, *new.isr) or not new.isr or not set(new.isr) <= set(assigned):
            self._fail("I3", f"{key} has leader {new.leader}, ISR {new.isr} and replicas {assigned}")
        if len(set(new.isr)) != len(new.isr):
            self._fail("I10", f"{key} has the ISR {new.isr}")

    def _follows(self, session: Session, key: Key, old: Leadership, new: Leadership) -> None:
        """What may follow a leadership.

        I2: the leader epoch never goes down, and is another one for another leader.
        I4: a new leader was in the last committed ISR (no topic here allows unclean elections).
        I7: nobody overwrites an ISR that another wrote: a controller only takes members out, at a new leader epoch,
        or writes what the leader asked for; a broker writes what it leads.
        """
        who = session.client.name
        if new.leader_epoch < old.leader_epoch or (new.leader_epoch == old.leader_epoch and new.leader != old.leader):
            self._fail("I2", f"{who} writes {key} {new} after {old}")
        if new.leader not in (NO_LEADER, old.leader, *old.isr):
            self._fail("I4", f"{who} makes {new.leader} leader of {key}, whose ISR was {old.isr}")
        if new.leader_epoch > old.leader_epoch:
            if not set(new.isr) <= set(old.isr):
                self._fail("I7", f"{who} makes the ISR of {key} {new.isr} of {old.isr}")
        elif (key, old.leader_epoch, old.version, new.isr) not in self._asked:
            self._fail("I7", f"{who} makes the ISR of {key} {new.isr} of {old.isr}, which its leader did not ask for")

    def _deleted(self, path: str) -> None:
        topic = topic_of(path)
        if topic is not None:
            self.history.topics.pop(topic, None)
            for key in [key for key in self.history.states if key[0] == topic]:
                del self.history.states[key]

    def deregistered(self, path: str) -> None:
        """A registration vanished."""
        if path.startswith(paths.BROKER_IDS + "/"):
            self.history.registered.pop(int(path.rpartition("/")[2]), None)

    # -- requests to brokers

    def connecting(self, process: object, host: str) -> None:
        """I15: retries are bounded."""
        second = process, host, int(self.world.loop.now_s)
        self._connects[second] = self._connects.get(second, 0) + 1
        if self._connects[second] > CONNECTS_PER_S_MAX:
            self._fail("I15", f"{self._connects[second]} connections to {host} within a second")

    def sent(self, connection: SimConnection, request: Request) -> None:
        """A daemon sends a request.

        I11: one request in flight per broker, with the broker epoch known now, in the term's name.
        I14: nothing is sent while the session is not connected, or after the lease could have run out.
        """
        node, broker = connection.daemon, connection.broker
        reign, head = node.reign, request.head
        if node.process is not connection.process or reign is None or reign.term.ended:
            self._fail("I11", f"{node} sends {head.api.name} to {broker} outside of a term")
            return
        if head.controller_epoch != reign.claim.epoch:
            self._fail("I11", f"{node} sends {head.api.name} under epoch {head.controller_epoch}")
        known = reign.cluster.brokers.get(broker.id)
        if known is None or known.epoch != head.broker_epoch:
            self._fail("I11", f"{node} sends {head.api.name} to {broker} at epoch {head.broker_epoch}, known: {known}")
        if any(c.busy and c is not connection and c.process is connection.process for c in broker.connections):
            self._fail("I11", f"{node} has two requests to {broker} in flight")
        assert node.zk is not None
        self._may_act(node.zk, f"sends {head.api.name} to {broker}")
        self.told(broker.id, request)

    def told(self, broker: int, request: Request) -> None:
        """What a request tells a broker.

        I2: one leader per partition and leader epoch; neither epoch goes down from one request of a term to the next.
        I10: no replica twice. I15: a request has a bounded number of partitions.
        Besides, nothing is told that ZooKeeper did not hold, and new replicas are told that they are new.
        """
        if len(request.entries) > REQUEST_ROWS_MAX:
            self._fail("I15", f"{len(request.entries)} partitions in one request")
        if not isinstance(request, LeaderAndIsr | UpdateMetadata):
            return
        head = request.head
        channel = head.controller_epoch, head.broker_epoch, head.api.value, head.controller_id
        sent = self._sent.setdefault(channel, {})
        for entry in request.entries:
            key, epochs = (entry.topic, entry.partition), (entry.leader_epoch, entry.partition_epoch)
            if self._leaders.setdefault((key, entry.leader_epoch), entry.leader) != entry.leader:
                first = self._leaders[key, entry.leader_epoch]
                self._fail("I2", f"{key} is led by {entry.leader} and by {first} in leader epoch {entry.leader_epoch}")
            if sent.get(key, epochs) > epochs:
                self._fail("I2", f"{head.api.name} tells {key} {epochs} after {sent[key]}")
            sent[key] = epochs
            held = self.history.at(key, entry.partition_epoch)
            if held is None or (held.leader, held.leader_epoch, held.isr) != (
                entry.leader,
                entry.leader_epoch,
                entry.isr,
            ):
                self._fail("I2", f"{head.api.name} tells {key} {entry}, ZooKeeper held {held}")
            if isinstance(entry, LeaderAndIsrEntry):
                self._new(broker, head, key, is_new=entry.is_new)
            if len(set(entry.replicas)) != len(entry.replicas):
                self._fail("I10", f"{key} is told with the replicas {entry.replicas}")

    def _new(self, broker: int, head: Head, key: Key, *, is_new: bool) -> None:
        """A partition that this term created with the broker in its ISR: the first word of it says new."""
        first, told = self.history.at(key, 0), (head.broker_epoch, key)
        if first is None or told in self._told_new:
            return
        self._told_new.add(told)
        known = self._created[key].get(broker) == head.broker_epoch
        if known and first.controller_epoch == head.controller_epoch and broker in first.isr and not is_new:
            self._fail("S4-31", f"{key} is told as an old one to broker {broker} with epoch {head.broker_epoch}")

    # -- calls of brokers

    def asks(self, changes: Sequence[IsrChange]) -> None:
        """A leader asks for ISRs."""
        for change in changes:
            self._asked.add((change.key, change.leader_epoch, change.partition_epoch, change.isr))

    def granted(self, node: BrokerNode, keys: Sequence[Key]) -> None:
        """I7: an ISR change that was granted is what ZooKeeper holds at that partition epoch."""
        for key in keys:
            replica = node.core.replicas.get(key)
            if replica is None or replica.leader != node.id:
                continue
            held = self.history.at(key, replica.partition_epoch)
            if held is None or (held.leader_epoch == replica.leader_epoch and held.isr != replica.isr):
                self._fail("I7", f"{node} was granted {replica.isr} for {key}, ZooKeeper held {held}")

    def producer_ids(self, broker: int, start: int) -> None:
        """I7: no block of producer ids is handed out twice."""
        if start in self._producer_ids:
            self._fail("I7", f"brokers {self._producer_ids[start]} and {broker} have the producer ids from {start} on")
        self._producer_ids[start] = broker

    # -- the model

    def model(self, reign: Reign) -> None:
        """The model of a term after an event.

        I6: a partition is Online exactly while its leader is registered in the model (looked at between handlers).
        I15: the queue is bounded. Besides, a row is what ZooKeeper held at its partition epoch, never ahead of it.
        """
        if len(reign.queue) > EVENTS_MAX:
            self._fail("I15", f"{len(reign.queue)} events wait")
        rows, epoch = reign.cluster.rows, reign.claim.epoch
        seen = self._rows.get(epoch, ())
        if rows != seen:
            for i, row in enumerate(rows):
                if (i >= len(seen) or row is not seen[i]) and row.version != NO_VERSION:
                    self._row(reign, i)
            self._rows[epoch] = list(rows)
        settled = self._rows.get(epoch), reign.cluster.brokers
        if reign.handling is None and reign.in_office.is_set() and not reign.term.ended:
            known = self._settled.get(epoch)
            if known is None or known[0] is not settled[0] or known[1] is not settled[1]:
                self._settled[epoch] = settled
                self._online(reign)

    def _row(self, reign: Reign, i: int) -> None:
        row, key = reign.cluster.rows[i], reign.cluster.name(i)
        if row.state is PartitionState.NON_EXISTENT or reign.term.ended:
            return
        held = self.history.at((key.topic, key.partition), row.version)
        if held is None or (held.leader, held.leader_epoch, held.isr) != (row.leader, row.leader_epoch, row.isr):
            self._fail("I7", f"the model has {row} for {key}, ZooKeeper held {held}")

    def _online(self, reign: Reign) -> None:
        for i, row in enumerate(reign.cluster.rows):
            if row.state is PartitionState.NON_EXISTENT:
                continue
            if (row.state is PartitionState.ONLINE) != (row.has_leadership and row.leader in reign.cluster.brokers):
                self._fail("I6", f"{reign.cluster.name(i)} is {row.state.name} and led by {row.leader}")
