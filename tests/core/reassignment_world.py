"""One topic under reassignment, step by step as the controller does it, so that a test can end a term between two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from state_machines.decisions.failover import failover
from state_machines.decisions.reassignment import (
    NotReassigned,
    ReassignmentRequest,
    due,
    final_rewrites,
    judge,
    reassign,
    rewrites,
)
from state_machines.machines.draft import Decide, Draft
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, Broker, Leadership, PartitionRow, TopicAssignment
from state_machines.propagation.propagation import Propagation
from tests.core.model import NaiveZooKeeper, P, check_model, registered

ID = bytes(15) + b"t"


class ReassignmentWorld:
    """ZooKeeper, a model of it and what waits for brokers. ``deleted`` has the replicas that were sent a deletion."""

    def __init__(self, *partitions: P, brokers: Iterable[int] = (1, 2, 3)) -> None:
        self.zookeeper = NaiveZooKeeper()
        self.registered: dict[int, Broker] = registered(brokers)
        assigned = {p: Assignment(made.replicas) for p, made in enumerate(partitions)}
        self.zookeeper.topics["t"] = TopicAssignment("t", ID, assigned, 3, 50)
        for p, made in enumerate(partitions):
            if (state := made.leadership()) is not None:
                self.zookeeper.states["t", p] = state
        self.deleted: set[tuple[int, int]] = set()
        self.writes: list[int] = []
        """State znodes written, by decision."""
        self.rewrites: list[int] = []
        """Topic znodes written, by step."""
        self.epoch = 6
        self.begin_term()

    def row(self, i: int = 0) -> PartitionRow:
        return self.cluster.rows[i]

    @property
    def written(self) -> dict[int, Assignment]:
        return self.zookeeper.topics["t"].partitions

    # -- steps of the controller

    def begin_term(self) -> None:
        """A new term, up to where reassignments are resumed."""
        self.epoch += 1
        self.cluster = self.zookeeper.read_all(self.epoch, self.registered)
        self.propagation = Propagation(self.cluster)
        for broker in self.registered:
            self.propagation.add(broker)
        self.carry_out(failover)

    def carry_out(self, decide: Decide) -> None:
        draft = Draft(self.cluster)
        decide(draft)
        decision = draft.finish()
        self.cluster.apply(decision.moves)
        for change in decision.writes:
            assert self.zookeeper.write(self.cluster, change)
        self.cluster.apply(decision.writes)
        self.cluster.apply_replicas(decision.replica_moves)
        self.propagation.propagate((*decision.moves, *decision.writes), decision.replica_moves)
        self.deleted |= {(m.entity, m.broker) for m in decision.replica_moves if m.delete}
        self.writes.append(len(decision.writes))
        self.refusals = decision.refusals
        check_model(self.cluster, self.zookeeper)

    def rewrite(self, changes: list[TopicChange]) -> None:
        for change in changes:
            assert self.zookeeper.rewrite(change)
            self.cluster.observe_assignments(change.topic, change.version + 1, change.partitions)
        self.rewrites.append(len(changes))

    def request(self, targets: dict[int, tuple[int, ...] | None], *, live_only: bool = True) -> Iterator[str]:
        """A request, one step at a time; yields before each write."""
        wanted: dict[int, Assignment] = {}
        for i, target in targets.items():
            found = judge(self.cluster, ReassignmentRequest(i, target), live_only=live_only)
            assert not isinstance(found, NotReassigned), found
            wanted[i] = found
        yield "topic"
        self.rewrite(rewrites(self.cluster, wanted))
        yield from self.go_on(list(targets), again=True)

    def go_on(self, rows: list[int], *, again: bool = False) -> Iterator[str]:
        """What follows of the topic znode."""
        yield "states"
        self.carry_out(partial(reassign, rows=rows, again=again))
        if final := final_rewrites(self.cluster, rows):
            yield "final"
            self.rewrite(final)

    def resume(self) -> Iterator[str]:
        """A new controller: what the topic znodes still name."""
        yield from self.go_on(sorted(self.cluster.reassigning), again=True)

    def isr(self, isr: dict[int, tuple[int, ...]]) -> Iterator[str]:
        """Leaders report ISRs; what is due by that goes on."""
        for p, members in isr.items():
            self.zookeeper.set_isr(("t", p), members)
            self.cluster.observe_leadership(p, self.zookeeper.states["t", p])
        yield from self.go_on(due(self.cluster, list(isr)))

    # -- brokers

    def found(self, leader: int, isr: tuple[int, ...], epoch: int | None = None) -> None:
        """Another writer changes the state znode of partition 0, and it is read."""
        held = self.zookeeper.states["t", 0]
        leader_epoch = held.leader_epoch if epoch is None else epoch
        found = Leadership(leader, leader_epoch, isr, self.epoch, held.version + 1)
        self.zookeeper.states["t", 0] = found
        self.cluster.observe_leadership(0, found)

    def brokers(self, *ids: int, epoch: int = 100) -> None:
        self.registered = registered(ids, epoch)
        for broker in set(self.cluster.brokers) - set(ids):
            self.propagation.remove(broker)
        for broker in set(ids) - set(self.cluster.brokers):
            self.propagation.add(broker)
        self.cluster.observe_brokers(self.registered)


def do(steps: Iterator[str]) -> list[str]:
    """All steps of something; their names."""
    return list(steps)
