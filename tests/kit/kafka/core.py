"""The pure core under a controller that decides, commits, applies and sends without a wait, on a ZooKeeper of dicts.

Stories and random histories play on it; both override the fate of a write and the record of each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from state_machines.decisions.broker_change import (
    BrokerDelta,
    broker_death,
    broker_return,
    compare,
    log_directories_failed,
)
from state_machines.decisions.deletion import advance, answered, finished, sort_markers
from state_machines.decisions.failover import failover
from state_machines.decisions.reassignment import (
    NotReassigned,
    ReassignmentRequest,
    due,
    final_rewrites,
    judge,
    reassign,
    rewrites,
    waiting_for,
)
from state_machines.decisions.topic_change import new_partitions
from state_machines.machines.draft import Decide, Draft
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change, Decision, Refusal, ReplicaMove, TopicChange, Transition
from state_machines.model.types import Assignment, Broker, TopicAssignment
from state_machines.propagation.propagation import Propagation
from tests.kit.kafka.model import NaiveZooKeeper, broker, topic_gone

ROUNDS_MAX = 3
WRITTEN, CONFLICT, REPLY_LOST, REFUSED = "write", "conflict", "reply lost", "refused"
"""Outcomes of a write."""


class CoreWorld:
    """ZooKeeper, the registrations, a model of both, and what waits for brokers."""

    def __init__(self) -> None:
        self.zookeeper = NaiveZooKeeper()
        self.registered: dict[int, Broker] = {}
        self.cluster = Cluster(0)
        self.propagation = Propagation(self.cluster)
        self.unclean: set[str] = set()
        self.unobserved: set[tuple[str, int]] = set()
        """Partitions whose leader wrote its ISR without a notification so far."""
        self.markers: set[str] = set()
        self.dies_before = ""
        """``states`` or ``final``: the write of a reassignment before which the controller dies."""
        self._zxid = 100

    def new_zxid(self) -> int:
        """Returns a zxid that was never used."""
        self._zxid += 1
        return self._zxid

    def allows_unclean(self, topic: int) -> bool:
        """Whether the topic with that index allows unclean elections."""
        return self.cluster.topics[topic].name in self.unclean

    # -- overridden: the fate of a write, and the record of each step

    def write(self, change: Change) -> str:
        """Writes a state znode; returns the outcome."""
        return WRITTEN if self.zookeeper.write(self.cluster, change) else CONFLICT

    def may_rewrite(self) -> bool:
        """Whether the next rewrite of a topic znode is applied."""
        return True

    def contended(self, rows: set[int]) -> None:
        """Ends a decision whose conflicts do not end."""
        raise AssertionError(f"the conflicts of rows {rows} do not end")

    def note_decision(self, trace: Sequence[Transition], refusals: Iterable[Refusal]) -> None:
        """Notes a decision before its writes."""

    def note_rewrite(self, change: TopicChange) -> None:
        """Notes a topic znode that was rewritten."""

    def note_sent(self, change: Change) -> None:
        """Notes a change that brokers are sent."""

    def note_moves(self, moves: Iterable[ReplicaMove]) -> None:
        """Notes moves of replicas that were applied."""

    def note_markers(self, removed: Iterable[str]) -> None:
        """Notes markers of unknown topics, which were removed."""

    # -- the one path

    def carry_out(self, decide: Decide) -> None:
        """Decides, commits, applies and propagates until everything is settled."""
        only: set[int] | None = None
        for _ in range(ROUNDS_MAX):
            draft = Draft(self.cluster, only)
            draft.trace = []
            decide(draft)
            decision = draft.finish()
            self.note_decision(draft.trace, decision.refusals)
            only = self._commit(decision)
            if not only:
                return
            for i in sorted(only):
                self.reread(i)
        self.contended(only or set())

    def _commit(self, decision: Decision) -> set[int]:
        """Commits a decision; returns the rows whose outcome is a conflict or unknown."""
        assert len({change.entity for change in decision.writes}) == len(decision.writes)
        self.cluster.apply(decision.moves)
        self.propagation.propagate(decision.moves, ())
        self.propagation.metadata_changed(decision.metadata)
        outcomes = {change.entity: self.write(change) for change in decision.writes}
        applied = [change for change in decision.writes if outcomes[change.entity] == WRITTEN]
        settled = [move for move in decision.replica_moves if outcomes.get(move.entity, WRITTEN) == WRITTEN]
        self.cluster.apply(applied)
        self.cluster.apply_replicas(settled)
        self.propagation.propagate(applied, settled)
        for change in applied:
            self.note_sent(change)
        self.note_moves(settled)
        self.give_up({i for i, outcome in outcomes.items() if outcome == REFUSED})
        return {i for i, outcome in outcomes.items() if outcome not in (WRITTEN, REFUSED)}

    def give_up(self, rows: set[int]) -> None:
        """Gives up the writes of some rows: the next event decides on them again."""
        self.cluster.observe_undecided(rows)

    def rewrite(self, changes: Iterable[TopicChange]) -> None:
        """Rewrites topic znodes and observes them as they are then."""
        for change in changes:
            if self.may_rewrite():
                assert self.zookeeper.rewrite(change), "topic znodes have no other writer here"
                self.note_rewrite(change)
            known = self.zookeeper.topics[change.topic]
            found = {p: known.partitions[p] for p in change.partitions}
            self.cluster.observe_assignments(change.topic, known.version, found)

    def reread(self, i: int) -> Change | None:
        """Reads a state znode; where it differs, brokers are sent it."""
        name = self.cluster.name(i)
        change = self.cluster.observe_leadership(i, self.zookeeper.states.get(name))
        self.unobserved.discard(name)
        if change is not None:
            self.note_sent(change)
            self.propagation.propagate([change], ())
        return change

    # -- terms and brokers

    def load(self, epoch: int) -> None:
        """Begins a term: reads everything."""
        self.cluster = self.zookeeper.read_all(epoch, self.registered)
        self.propagation = Propagation(self.cluster)
        self.unobserved.clear()
        for broker_id in self.registered:
            self.propagation.add(broker_id)

    def begin_term(self) -> None:
        """Begins a term, decides, and resumes reassignments and deletions."""
        self.load(self.cluster.epoch + 1)
        self.carry_out(partial(failover, unclean=self.allows_unclean))
        self.dies_before = ""
        self.go_on(sorted(self.cluster.reassigning), again=True)
        self.delete_queued(retry=True)

    def join(self, broker_id: int) -> None:
        """Begins an incarnation of a broker, which knows nothing."""
        self.propagation.add(broker_id)

    def leave(self, broker_id: int) -> None:
        """Ends an incarnation of a broker."""
        self.propagation.remove(broker_id)

    def snapshot(self, brokers: Iterable[int]) -> None:
        """Begins snapshots for some brokers."""
        for broker_id in brokers:
            self.propagation.snapshot(broker_id)

    def brokers_change(self, gone: Iterable[int], bounced: Iterable[int], back: Iterable[int]) -> BrokerDelta:
        """Changes registrations in one snapshot: decides on deaths first, on returns afterwards."""
        zxid = self.new_zxid()
        found = {b: known for b, known in self.registered.items() if b not in gone}
        found |= {b: broker(b, zxid) for b in (*bounced, *back)}
        delta = compare(self.registered, found)
        dead, returned = (*delta.dead, *delta.bounced), (*delta.new, *delta.bounced)
        self.registered = dict(sorted(found.items()))
        for b in dead:
            self.leave(b)
        self.cluster.observe_brokers({b: known for b, known in self.registered.items() if b not in delta.bounced})
        for b in delta.new:
            self.join(b)
        if dead:
            self.carry_out(partial(broker_death, dead=dead, unclean=self.allows_unclean))
        self.cluster.observe_brokers(self.registered)
        for b in delta.bounced:
            self.join(b)
        if returned:
            self.snapshot(returned)
            self.carry_out(partial(broker_return, returned=returned, unclean=self.allows_unclean))
            self.go_on(waiting_for(self.cluster, returned), again=True)
            self.delete_queued(retry=True)
        return delta

    def log_directory_failed(self, broker_id: int, rows: Iterable[int]) -> list[int]:
        """Decides on replicas that a broker lost; returns those that are new."""
        fresh = self.cluster.observe_failed_dirs(broker_id, rows)
        self.carry_out(partial(log_directories_failed, failed={broker_id: fresh}, unclean=self.allows_unclean))
        return fresh

    # -- topics

    def assign(self, topic: str, replicas: Mapping[int, tuple[int, ...]]) -> TopicAssignment:
        """Writes partitions into a topic znode, beside those that it has."""
        known = self.zookeeper.topics.get(topic) or TopicAssignment(topic, None, {}, -1, self.new_zxid())
        partitions = {**known.partitions, **{p: Assignment(r) for p, r in replicas.items()}}
        found = TopicAssignment(topic, None, partitions, known.version + 1, known.czxid)
        self.zookeeper.topics[topic] = found
        return found

    def expand(self, topic: str, *replicas: tuple[int, ...]) -> None:
        """Adds partitions to a topic znode, which may be new, and starts them."""
        known = self.zookeeper.topics.get(topic)
        first = len(known.partitions) if known is not None else 0
        found = self.assign(topic, dict(enumerate(replicas, first)))
        self.carry_out(partial(new_partitions, rows=self.cluster.observe_topic(found)))

    def topic_gone(self, topic: str) -> None:
        """Deletes the znodes of a topic."""
        del self.zookeeper.topics[topic]
        self.zookeeper.states = {key: held for key, held in self.zookeeper.states.items() if key[0] != topic}
        self.unobserved = {key for key in self.unobserved if key[0] != topic}
        self.markers.discard(topic)
        topic_gone(self.cluster, topic)

    def delete_queued(self, *, retry: bool = False) -> None:
        """Queues topics with a marker and starts their deletion where it may begin."""
        found = sort_markers(self.cluster, self.markers, enabled=True)
        self.markers.difference_update(found.removed)
        self.note_markers(found.removed)
        self.cluster.observe_deletions(found.queued)
        if self.cluster.deletions:
            self.carry_out(partial(advance, topics=sorted(self.cluster.deletions), retry=retry))

    def deletion_response(self, broker_id: int, rows: Iterable[int], failed: Iterable[int]) -> list[str]:
        """Enters a response to StopReplica with deletion; returns the topics whose znodes are deleted by that."""
        self.carry_out(partial(answered, broker=broker_id, deleted=list(rows), failed=list(failed)))
        names = [self.cluster.topics[i].name for i in finished(self.cluster, sorted(self.cluster.deletions))]
        for name in names:
            self.topic_gone(name)
        return names

    # -- reassignments

    def judge_targets(
        self, targets: Mapping[tuple[str, int], tuple[int, ...] | None], *, live_only: bool
    ) -> tuple[dict[int, Assignment], dict[tuple[str, int], NotReassigned]]:
        """Judges a request; returns the assignments by row, and the refusals."""
        wanted: dict[int, Assignment] = {}
        refused: dict[tuple[str, int], NotReassigned] = {}
        for name, target in targets.items():
            row = self.cluster.find(*name)
            found = judge(self.cluster, ReassignmentRequest(row, target), live_only=live_only)
            if isinstance(found, NotReassigned):
                refused[name] = found
            else:
                assert row is not None
                wanted[row] = found
        return wanted, refused

    def begin_reassignments(self, wanted: Mapping[int, Assignment]) -> None:
        """Writes assignments into topic znodes and decides on them."""
        self.rewrite(rewrites(self.cluster, wanted))
        self.go_on(list(wanted), again=True)

    def go_on(self, rows: list[int], *, again: bool = False) -> None:
        """Decides on reassignments, and rewrites the topic znodes of those that are complete."""
        if not rows:
            return
        if self.dies_before != "states":
            self.carry_out(partial(reassign, rows=rows, again=again))
        if not self.dies_before:
            self.rewrite(final_rewrites(self.cluster, rows))
            self.delete_queued(retry=True)

    def go_on_where_due(self, rows: Iterable[int]) -> None:
        """Decides on reassignments after ISRs changed."""
        self.go_on(due(self.cluster, list(rows)))
