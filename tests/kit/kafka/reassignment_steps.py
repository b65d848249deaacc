"""One topic under reassignment, step by step as the controller does it, so that a test can end a term between two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from state_machines.decisions.failover import failover
from state_machines.decisions.reassignment import due, final_rewrites, reassign, rewrites
from state_machines.machines.draft import Decide
from state_machines.model.decision import Refusal, ReplicaMove, TopicChange, Transition
from state_machines.model.types import Assignment, Leadership, PartitionRow, TopicAssignment
from tests.kit.kafka.core import CoreWorld
from tests.kit.kafka.model import P, check_model, registered

ID = bytes(15) + b"t"


class ReassignmentWorld(CoreWorld):
    """The core with topic ``t``. ``deleted`` has the replicas that were sent a deletion."""

    def __init__(self, *partitions: P, brokers: Iterable[int] = (1, 2, 3)) -> None:
        super().__init__()
        self.registered = registered(brokers)
        assigned = {p: Assignment(made.replicas) for p, made in enumerate(partitions)}
        self.zookeeper.topics["t"] = TopicAssignment("t", ID, assigned, 3, 50)
        for p, made in enumerate(partitions):
            if (state := made.leadership()) is not None:
                self.zookeeper.states["t", p] = state
        self.deleted: set[tuple[int, int]] = set()
        self.rewrites: list[int] = []
        """Topic znodes that were rewritten, by step."""
        self.refusals: list[Refusal] = []
        self.epoch = 6
        self.next_term()

    def row(self, i: int = 0) -> PartitionRow:
        return self.cluster.rows[i]

    @property
    def written(self) -> dict[int, Assignment]:
        return self.zookeeper.topics["t"].partitions

    # -- steps of the controller

    def next_term(self) -> None:
        """Begins a term, up to where reassignments are resumed."""
        self.epoch += 1
        self.load(self.epoch)
        self.carry_out(failover)

    def carry_out(self, decide: Decide) -> None:
        super().carry_out(decide)
        check_model(self.cluster, self.zookeeper)

    def note_decision(self, trace: Sequence[Transition], refusals: Iterable[Refusal]) -> None:
        self.refusals = list(refusals)

    def note_moves(self, moves: Iterable[ReplicaMove]) -> None:
        self.deleted |= {(move.entity, move.broker) for move in moves if move.delete}

    def rewrite(self, changes: Iterable[TopicChange]) -> None:
        made = list(changes)
        super().rewrite(made)
        self.rewrites.append(len(made))

    def request(self, targets: dict[int, tuple[int, ...] | None], *, live_only: bool = True) -> Iterator[str]:
        """Requests targets, one step at a time; yields before each write."""
        named = {("t", i): target for i, target in targets.items()}
        wanted, refused = self.judge_targets(named, live_only=live_only)
        assert not refused
        yield "topic"
        self.rewrite(rewrites(self.cluster, wanted))
        yield from self.steps(list(targets), again=True)

    def steps(self, rows: list[int], *, again: bool = False) -> Iterator[str]:
        """Decides on what topic znodes have."""
        yield "states"
        self.carry_out(partial(reassign, rows=rows, again=again))
        if final := final_rewrites(self.cluster, rows):
            yield "final"
            self.rewrite(final)

    def resume(self) -> Iterator[str]:
        """Resumes as a new controller all that topic znodes still name."""
        yield from self.steps(sorted(self.cluster.reassigning), again=True)

    def isr(self, isr: dict[int, tuple[int, ...]]) -> Iterator[str]:
        """Observes ISRs that leaders wrote, and decides on what is due by that."""
        for p, members in isr.items():
            self.zookeeper.set_isr(("t", p), members)
            self.cluster.observe_leadership(p, self.zookeeper.states["t", p])
        yield from self.steps(due(self.cluster, list(isr)))

    # -- brokers

    def found(self, leader: int, isr: tuple[int, ...], epoch: int | None = None) -> None:
        """Observes a state znode of partition 0 that another client wrote."""
        held = self.zookeeper.states["t", 0]
        leader_epoch = held.leader_epoch if epoch is None else epoch
        found = Leadership(leader, leader_epoch, isr, self.epoch, held.version + 1)
        self.zookeeper.states["t", 0] = found
        self.cluster.observe_leadership(0, found)

    def brokers(self, *ids: int, epoch: int = 100) -> None:
        """Observes registrations; decides on nothing."""
        self.registered = registered(ids, epoch)
        for broker in set(self.cluster.brokers) - set(ids):
            self.leave(broker)
        for broker in set(ids) - set(self.cluster.brokers):
            self.join(broker)
        self.cluster.observe_brokers(self.registered)


def do(steps: Iterator[str]) -> list[str]:
    """Takes all steps; returns their names."""
    return list(steps)
