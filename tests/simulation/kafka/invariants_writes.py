"""Checks writes to ZooKeeper: I1, I2, I3, I4, I7, I8, I10, I12, I14, I15, I17, I24."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from controller.kafka.reassignments.reassignment import STOPPED_S_MAX
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.nodes import stray_nodes
from metadata_store.nodes.reassignment_node import Reassignments, decode_reassignments
from metadata_store.port import (
    ANY_VERSION,
    IN_FLIGHT_MAX,
    Check,
    Create,
    Created,
    Delete,
    OpResult,
    SetData,
    Stat,
    Write,
)
from state_machines.model.types import NO_LEADER, Assignment, Leadership
from tests.simulation.kafka import faults
from tests.simulation.kafka.checking import Checking
from tests.simulation.kafka.ensemble import Session
from tests.simulation.kafka.history import Key, key_of, topic_of
from tests.simulation.kafka.invariants_plans import PREFIX, RATES, PlanInvariants

if TYPE_CHECKING:
    from testing.simulated.calls import IsrChange
    from tests.simulation.kafka.link import SimLink
    from tests.simulation.kafka.world import SimulatedKafka

OPERATOR: Final = "operator"
OWN_ROOTS: Final = ("/regent", paths.CONTROLLER)
SPOILT: Final = "partition begun as that of a former topic"


class WriteInvariants(Checking):
    """Looks at every write as a daemon sends it, and at every write as it is applied."""

    def __init__(self, world: SimulatedKafka) -> None:
        super().__init__(world)
        self.plans = PlanInvariants(world, self._fail)
        self._owner: dict[int, object] = {}
        self._given_up: set[int] = set()
        self._known: dict[tuple[object, Key], int | None] = {}
        self._requested: set[tuple[Key, int, int, tuple[int, ...]]] = set()
        self._created: dict[tuple[Key, int], dict[int, int]] = {}

    def submitted(self, zk: SimLink, ops: Sequence[Write]) -> None:
        """Checks a write that a daemon sends.

        I14: a term writes nothing while the session is not connected, after the lease could have run out, or after it
        began to give the role up. That write itself may come late: the epoch fences it, and it writes none of the
        cluster's znodes.

        I24: nor before it has compared its claim, on the present connection and since the lease last ran out.

        I15: no more writes in flight than the window.
        """
        if zk.writes_in_flight > IN_FLIGHT_MAX:
            self._fail("I15", f"{zk.name} has {zk.writes_in_flight} writes in flight")
        first = ops[0]
        if not isinstance(first, Check) or first.path != paths.CONTROLLER_EPOCH:
            return
        if ops[1:] and all(isinstance(op, Delete) and _is_given_up(op.path) for op in ops[1:]):
            self._given_up.add(first.version)
            return
        self._may_act(zk, first.version, f"writes {ops[-1].path}")
        for op in ops:
            if isinstance(op, Create) and (key := key_of(op.path)) is not None:
                self._known[zk.process, key] = self.world.topic_known_to(zk.process, key[0])
        if first.version in self._given_up:
            self._fail("I14", f"{zk.name} writes {ops[-1].path} after it began to give its role up")

    def committed(self, session: Session, ops: Sequence[Write], results: Sequence[OpResult]) -> None:
        """Checks an applied write."""
        by_daemon = session.client.by_daemon
        if by_daemon:
            self._fenced(session, ops)
        for op, result in zip(ops, results, strict=True):
            if not isinstance(op, Check):
                self._changed(result.path if isinstance(result, Created) else op.path)
            if isinstance(op, SetData):
                assert isinstance(result, Stat)
                self._written(session, op.path, op.data, result, op.version)
            elif isinstance(op, Create):
                assert isinstance(result, Created)
                self._written(session, result.path, op.data, result.stat, None)
            elif isinstance(op, Delete):
                self._deleted(session, op.path)

    def _fenced(self, session: Session, ops: Sequence[Write]) -> None:
        """Checks I1: a daemon writes the cluster's znodes only with a check of the epoch, and under its own epoch."""
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
        if key is not None and expected is not None and session.client.name == OPERATOR:
            self._scribbled(key, stat.version)
        elif key is not None:
            self._state_written(session, key, self.history.leadership(data, stat.version), expected)
            if expected is None:
                created = key, self.history.life(key)
                self._created[created] = self.world.registrations_known_to(session.client.process)
        elif path == own.ROLE:
            self.history.holder = own.decode_role(data).holder
        elif path == paths.CONTROLLER_EPOCH:
            self._epoch_written(session, int(data or b"0"), stat.version)
        elif (topic := topic_of(path)) is not None:
            self._topic_written(session, topic, data, stat)
        elif path.startswith(PREFIX):
            self.plans.written(path, data)
        elif path.startswith(RATES) and session.client.name == OPERATOR:
            self.plans.rate_set(path, data)
        elif path == paths.REASSIGN_PARTITIONS:
            request = decode_reassignments(path, data)
            self.history.request = request.targets if isinstance(request, Reassignments) else {}
        elif path.startswith(paths.DELETE_TOPICS + "/"):
            self._marked(session, path.rpartition("/")[2])
        elif path.startswith(paths.BROKER_IDS + "/"):
            broker = int(path.rpartition("/")[2])
            self.history.registered[broker] = stat.czxid
            self.world.registered(broker, stat.czxid)

    def _epoch_written(self, session: Session, epoch: int, version: int) -> None:
        """Checks I1: the controller epoch grows strictly, and each version of it has one owner."""
        if self.history.epoch and epoch <= self.history.epoch:
            self._fail("I1", f"{session.client.name} sets the epoch to {epoch} after {self.history.epoch}")
        self.history.epoch, self.history.epoch_version = epoch, version
        self._owner[version] = session.client.process
        if session.client.by_daemon and self.world.rules_besides(session.client.process):
            self.world.happened(faults.DAEMON_TWO)

    def _topic_written(self, session: Session, topic: str, data: bytes | None, stat: Stat) -> None:
        """Checks I10: no replica is twice in an assignment, nor added to it or removed from it without being in it.

        I8: a daemon creates only requested topics. I17: it never gives a topic another id than the first. There are
        three exceptions. All logs with that id are deleted. Brokers know the id of a topic of that name that was
        removed by hand. Or the write was decided on a former incarnation.
        """
        before = self.history.incarnations.get((topic, stat.czxid))
        if before is None and session.client.by_daemon and topic not in self.history.to_be_created:
            self._fail("I8", f"{session.client.name} creates {topic}, which no client requested")
        known = self.world.registrations_known_to(session.client.process)
        found = self.history.topic_written(
            topic, data, stat.version, stat.czxid, known, by_daemon=session.client.by_daemon
        )
        first = self.history.topic_ids.get((topic, stat.czxid))
        if before is not None and before.topic_id is not None and found.topic_id is None:
            self.world.happened(faults.OPERATOR_REWROTE)
        another = session.client.by_daemon and found.topic_id not in (None, first) and self.world.sends_ids
        removed_by_hand = any(name == topic for name, _ in self.history.by_hand)
        if session.client.by_daemon and self.history.may_continue_former(found):
            self.history.overwritten.add(topic)
            if another and found.topic_id is not None:
                self.history.topic_ids[topic, stat.czxid] = found.topic_id
        elif another and not removed_by_hand and not self.history.ends(found):
            self._fail("I17", f"{session.client.name} gives {topic} the id {found.topic_id!r}, it has {first!r}")
        for partition, assignment in found.partitions.items():
            added, removed = set(assignment.adding), set(assignment.removing)
            twice = len(added) + len(removed) < len(assignment.adding) + len(assignment.removing)
            if twice or not added | removed <= set(assignment.replicas):
                self._fail("I10", f"{topic}-{partition} is assigned to {assignment}")
            old = before.partitions.get(partition) if before is not None else None
            if old is not None and old.moving and assignment == Assignment(old.target):
                self.world.happened(faults.OPERATOR_MOVED)
                self._reassigned(session, (topic, partition), old)
            self._look_for_target((topic, partition))
            if len(set(assignment.replicas)) != len(assignment.replicas):
                self._fail("I10", f"{topic}-{partition} is assigned to {assignment.replicas}")

    def _marked(self, session: Session, topic: str) -> None:
        """Checks I8: a daemon marks only topics that a client deletes.

        A marker counts where brokers allow a deletion.
        """
        if session.client.by_daemon and topic not in self.history.to_be_deleted:
            self._fail("I8", f"{session.client.name} marks {topic}, which no client requested")
        if session.client.by_daemon and self.world.plan.keeps:
            self._fail("I8", f"{session.client.name} marks {topic}, although no broker allows its deletion")
        if not self.world.plan.keeps:
            self.history.markers.add(topic)

    def _look_for_target(self, key: Key) -> None:
        self.history.look_for_target(key, self.world.loop.now_s, self.world.registrations_known_to_the_active)

    def _reassigned(self, session: Session, key: Key, old: Assignment) -> None:
        """Checks I12: a reassignment ends once its target was in sync, and brokers have stopped its removed replicas.

        The controller does not wait for a broker that is gone, nor for ever. It does not repeat a request that a broker
        has refused.
        """
        joined = self.history.joined.get(key)
        if joined is None:
            self._fail("I12", f"{session.client.name} ends the reassignment {old} of {key}, which was never in sync")
            return
        if (
            self.world.loop.now_s - joined.since_s >= STOPPED_S_MAX
            or key in self.history.former.keys() | self.history.spoilt
        ):
            return
        refused = self.history.unfound.get(key, set()) | self.history.unstopped.get(key, set())
        for broker in set(old.removing) - refused:
            epoch = self.history.registered.get(broker)
            there = broker in self.world.brokers and key in self.world.brokers[broker].core.hosting.logs
            if there and epoch is not None and epoch == joined.known.get(broker):
                self._fail("I12", f"{session.client.name} ends the reassignment {old} of {key} before {broker} stopped")

    def _scribbled(self, key: Key, version: int) -> None:
        """Notes garbage in a state znode, or its former content again.

        A term that has claimed its epoch and does not serve yet reads states afterwards, and may meet no garbage.
        """
        if key not in self.history.scribbled:
            self.world.happened(faults.OPERATOR_SCRIBBLED)
        epoch = self.history.epoch
        self.history.scribbled[key] = epoch if self.world.serves(epoch) else epoch - 1
        states = self.history.states[key]
        states.append(replace(states[-1], version=version))

    def _state_written(self, session: Session, key: Key, new: Leadership, expected: int | None) -> None:
        states = self.history.states.setdefault(key, [])
        self.history.scribbled.pop(key, None)
        if expected is None:
            self._begun(session, key)
        elif expected == ANY_VERSION:
            self._fail("I7", f"{session.client.name} writes {key} with any version")
        self._sound(key, new)
        if states:
            self._follows(session, key, states[-1], new)
        states.append(new)
        self._look_for_target(key)

    def _begun(self, session: Session, key: Key) -> None:
        """Notes a partition that a controller begins before it knows the topic's next incarnation.

        The controller cannot find out which incarnation's znodes it creates.
        """
        self.history.spoilt.discard(key)
        known = self._known.pop((session.client.process, key), None)
        present = self.history.topics[key[0]]
        if known is not None and known != present.czxid:
            self.world.happened(SPOILT)
            self.history.spoil(key, known)

    def _sound(self, key: Key, new: Leadership) -> None:
        """Checks I3: the leader is in the ISR or there is none; the ISR is assigned, never empty, each member once.

        A replica that a cancel or an override drops leaves the assignment before it leaves the ISR.
        """
        assigned = (*self.history.assignment(key), *self.history.dropped.get(key, ()))
        if key in self.history.spoilt:
            return
        if new.leader not in (NO_LEADER, *new.isr) or not new.isr or not set(new.isr) <= set(assigned):
            self._fail("I3", f"{key} has leader {new.leader}, ISR {new.isr} and replicas {assigned}")
        if len(set(new.isr)) != len(new.isr):
            self._fail("I10", f"{key} has the ISR {new.isr}")

    def _follows(self, session: Session, key: Key, old: Leadership, new: Leadership) -> None:
        """Checks a leadership against the one before it.

        I2: the leader epoch never goes down, and another leader has another one.

        I4: a new leader was in the last committed ISR. An exception is an unclean election that was requested or
        allowed there: its leader leads alone.

        I7: no write overwrites another writer's ISR. A controller only removes members, at a new leader epoch, or
        writes the leader's request. A broker writes partitions that it leads.
        """
        writer = session.client.name
        if new.leader_epoch < old.leader_epoch or (new.leader_epoch == old.leader_epoch and new.leader != old.leader):
            self._fail("I2", f"{writer} writes {key} {new} after {old}")
        unclean = new.leader not in (NO_LEADER, old.leader, *old.isr)
        if unclean:
            self.world.happened(faults.ELECTION_UNCLEAN)
            if key[0] not in self.history.unclean or new.isr != (new.leader,):
                self._fail("I4", f"{writer} makes {new.leader} leader of {key}, whose ISR was {old.isr}")
        elif new.leader_epoch > old.leader_epoch:
            if not set(new.isr) <= set(old.isr):
                self._fail("I7", f"{writer} makes the ISR of {key} {new.isr} of {old.isr}")
        elif (key, old.leader_epoch, old.version, new.isr) not in self._requested:
            self._fail(
                "I7", f"{writer} makes the ISR of {key} {new.isr} of {old.isr}, which its leader did not request"
            )

    def _deleted(self, session: Session, path: str) -> None:
        if path.startswith(PREFIX):
            self.plans.deleted(path)
        key, topic = key_of(path), topic_of(path)
        if key is not None and session.client.by_daemon:
            self.history.ended(key, self._deletion_ends(session, key), by_hand=False)
        elif key is not None:
            self.history.ended(key, self.history.assignment(key), by_hand=True)
        elif topic is not None:
            self.history.topics.pop(topic, None)
            if session.client.by_daemon and topic in self.history.markers:
                self.world.happened(faults.OPERATOR_MARKED)
        elif path == paths.REASSIGN_PARTITIONS:
            self.history.request = {}
        elif path.startswith(paths.DELETE_TOPICS + "/"):
            self._unmarked(session, path.rpartition("/")[2])

    def _unmarked(self, session: Session, topic: str) -> None:
        self.history.markers.discard(topic)
        if self.world.plan.keeps and session.client.by_daemon and topic in self.history.topics:
            self.world.happened(faults.OPERATOR_REFUSED)

    def _deletion_ends(self, session: Session, key: Key) -> list[int]:
        """Checks I12: a topic is deleted that is marked, once every replica has deleted its log.

        Returns brokers whose log is, or was then, on a directory that failed. A broker that starts without a directory
        knows none of its logs, and reports them as deleted. Once it is repaired the logs are there again.
        """
        if key[0] not in self.history.markers:
            self._fail("I12", f"{session.client.name} deletes {key}, which no client requested")
        brokers = self.world.brokers
        replicas = [b for b in self.history.assignment(key) if b in brokers]
        unfound = self.history.unfound.get(key, set()) | self.history.given_up_on(key[0])
        for broker in replicas:
            if key in brokers[broker].core.hosting.logs and broker not in unfound:
                self._fail("I12", f"{session.client.name} deletes {key}, and broker {broker} still has its log")
        if away := brokers.keys() - self.history.registered.keys():
            self.history.unaware.setdefault(key, set()).update(away)
        return [b for b in replicas if b in unfound or key in brokers[b].core.hosting.failed]

    def deregistered(self, path: str) -> None:
        """Notes a registration that vanished."""
        self._changed(path)
        if path.startswith(paths.BROKER_IDS + "/"):
            self.history.registered.pop(int(path.rpartition("/")[2]), None)

    def _changed(self, path: str) -> None:
        self.history.changed_s[path] = self.world.loop.now_s

    def requests_isr(self, changes: Sequence[IsrChange]) -> None:
        """Notes the ISRs that a leader requests."""
        for change in changes:
            self._requested.add((change.key, change.leader_epoch, change.partition_epoch, change.isr))
        self.plans.drains.requested(changes)


def _is_given_up(path: str) -> bool:
    """Returns whether a term deletes this znode when it gives its role up."""
    kept = (PREFIX, stray_nodes.PARENT)
    return path.startswith(OWN_ROOTS) and path != own.TOPIC_IDS_BEGIN and not path.startswith(kept)
