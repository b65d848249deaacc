"""Random histories of a cluster; after every step the invariants hold and memory is what ZooKeeper holds.

I2: one leader per leader epoch is ever told, epochs never go down. I3: leader in the ISR, the ISR assigned and never
empty. I4: a new leader was in the last committed ISR, or the election was unclean and allowed. I5: after a broker
event nothing with a live ISR member is without a leader. I6: Online exactly under a registered leader. I10: nothing
is assigned twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule
from msgspec.structs import replace

from state_machines.decisions.alter_partition import IsrError, IsrRequest, alter_partitions, judge
from state_machines.decisions.broker_change import broker_death, broker_return, compare
from state_machines.decisions.controlled_shutdown import controlled_shutdown
from state_machines.decisions.deletion import advance, answered, finished, ineligible, sort_markers
from state_machines.decisions.failover import failover
from state_machines.decisions.log_directories import log_directories_failed
from state_machines.decisions.reassignment import (
    ReassignmentRequest,
    due,
    final_rewrites,
    reassign,
    rewrites,
    waiting_for,
)
from state_machines.decisions.reassignment import judge as judge_reassignment
from state_machines.decisions.topic_change import new_partitions
from state_machines.machines import selectors
from state_machines.machines.draft import Decide, Draft
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change, ReplicaMove, TopicChange
from state_machines.model.types import Assignment, Broker, PartitionState, TopicAssignment
from tests.core.model import NaiveZooKeeper, broker, check_model

IDS = (1, 2, 3, 4)
ROUNDS_MAX = 3

brokers = st.sets(st.sampled_from(IDS), min_size=1)
assignment = st.permutations((*IDS, 9)).flatmap(lambda ids: st.integers(1, 3).map(lambda n: tuple(ids[:n])))
outcomes = st.sampled_from(["applied"] * 5 + ["reply lost", "lost", "refused"])


class ClusterHistory(RuleBasedStateMachine):
    """Brokers, topics and leaders act; a controller that loses replies and meets conflicts keeps up."""

    topics = Bundle("topics")

    @initialize()
    def start(self) -> None:
        self.zookeeper = NaiveZooKeeper()
        self.assigned: dict[str, TopicAssignment] = {}
        self.registered: dict[int, Broker] = {b: broker(b, b) for b in IDS}
        self.zxid = 100
        self.unclean: set[str] = set()
        self.unobserved: set[tuple[str, int]] = set()
        self.given_up: set[int] = set()
        self.told: dict[tuple[int, str, int], dict[int, int]] = {}
        self.fates: list[str] = []
        self.markers: set[str] = set()
        self.asked_to_delete: set[tuple[int, int]] = set()
        self.take_over(1)

    # -- the controller

    def take_over(self, epoch: int) -> None:
        """A new term: everything is read, then decided on."""
        cluster = self.cluster = Cluster(epoch)
        cluster.observe_brokers(self.registered)
        rows = [i for found in self.assigned.values() for i in cluster.observe_topic(found)]
        cluster.load_leadership(rows, [self.zookeeper.states.get(cluster.name(i)) for i in rows])
        cluster.observe_strays()
        self.unobserved.clear()
        self.given_up.clear()
        self.carry_out(partial(failover, unclean=self.allows))
        self.asked_to_delete.clear()
        self.go_on(sorted(self.cluster.reassigning), again=True)
        self.delete_queued(retry=True)

    def delete_queued(self, *, retry: bool = False) -> None:
        """Topics with a marker are queued, and deleted as far as may be; brokers answer later."""
        assert sort_markers(self.cluster, self.markers, enabled=True).queued == tuple(sorted(self.markers))
        self.cluster.observe_deletions(self.markers)
        draft = Draft(self.cluster)
        advance(draft, sorted(self.cluster.deletions), retry=retry)
        decision = draft.finish()
        assert not decision.writes
        self.cluster.apply(decision.moves)
        self.cluster.apply_replicas(decision.replica_moves)
        self.asked_to_delete |= {(m.broker, m.entity) for m in decision.replica_moves if m.delete}

    def go_on(self, rows: list[int], *, again: bool = False, dies_before: str = "") -> None:
        """Reassignments go on; a controller that dies leaves the rest to the next."""
        if dies_before != "states":
            self.carry_out(partial(reassign, rows=rows, again=again))
        if not dies_before:
            self.rewrite(final_rewrites(self.cluster, rows))
            self.delete_queued(retry=True)
        else:
            self.take_over(self.cluster.epoch + 1)

    def rewrite(self, changes: list[TopicChange]) -> None:
        """Topic znodes: written, written while the reply was lost, or lost; then they are as read back."""
        for change in changes:
            known = self.assigned[change.topic]
            assert known.version == change.version
            if not self.fates or self.fates.pop() in ("applied", "reply lost"):
                known = replace(known, partitions={**known.partitions, **change.partitions}, version=known.version + 1)
                self.assigned[change.topic] = known
            found = {p: known.partitions[p] for p in change.partitions}
            self.cluster.observe_assignments(change.topic, known.version, found)

    def allows(self, topic: int) -> bool:
        return self.cluster.topics[topic].name in self.unclean

    def carry_out(self, decide: Decide) -> None:
        """Decide, commit, apply, tell; what is unsettled is read back and decided again."""
        only = None
        for _ in range(ROUNDS_MAX):
            draft = Draft(self.cluster, only)
            decide(draft)
            decision = draft.finish()
            assert len({change.entity for change in decision.writes}) == len(decision.writes)
            stops: dict[int, list[ReplicaMove]] = {change.entity: [] for change in decision.writes}
            for move in decision.replica_moves:
                stops.setdefault(move.entity, []).append(move)
            self.cluster.apply(decision.moves)
            written = [(change, stops.pop(change.entity)) for change in decision.writes]
            self.cluster.apply_replicas([move for moves in stops.values() for move in moves])
            unsettled = {change.entity for change, moves in written if not self.commit(change, moves)}
            if not unsettled:
                return
            for i in sorted(unsettled):
                self.reread(i)
            only = unsettled
        self.give_up(only or set())

    def commit(self, change: Change, moves: Sequence[ReplicaMove]) -> bool:
        """One write with what follows from it; False where it is unsettled: a conflict, or an unknown outcome."""
        fate = self.fates.pop() if self.fates else "applied"
        if fate == "lost":
            return False
        if fate == "refused":
            self.give_up({change.entity})
            return True
        if not self.zookeeper.write(self.cluster, change):
            assert self.cluster.name(change.entity) in self.unobserved, "a conflict that nobody caused"
            return False
        self.check_election(change)
        if fate == "reply lost":
            return False
        self.cluster.apply([change])
        self.cluster.apply_replicas(moves)
        self.tell(change)
        return True

    def give_up(self, rows: set[int]) -> None:
        self.cluster.observe_undecided(rows)
        self.given_up |= rows

    def reread(self, i: int) -> None:
        name = self.cluster.name(i)
        change = self.cluster.observe_leadership(i, self.zookeeper.states.get(name))
        self.unobserved.discard(name)
        if change is not None:
            self.tell(change)

    def check_election(self, change: Change) -> None:
        before, after = change.before, change.after
        if before.has_leadership and after.leader >= 0 and after.leader not in before.isr:
            assert change.why in selectors.UNCLEAN, f"an unclean election that calls itself {change.why!r}"
            assert self.allows(after.topic), "an unclean election that nobody allowed"
            assert after.recovering

    def tell(self, change: Change) -> None:
        """I2 over everything that brokers are ever told of one incarnation of a partition."""
        row = change.after
        incarnation = self.cluster.topics[row.topic]
        told = self.told.setdefault((incarnation.czxid, incarnation.name, row.partition), {})
        assert told.setdefault(row.leader_epoch, row.leader) == row.leader, "two leaders in one leader epoch"
        assert row.leader_epoch == max(told), "a lower leader epoch was told after a higher one"

    def nobody_waits(self) -> None:
        """I5, after a broker event."""
        for i in self.cluster.leaderless - self.given_up:
            row = self.cluster.rows[i]
            if row.topic in self.cluster.deletions and i not in self.cluster.reassigning:
                continue
            candidates = row.isr if row.has_leadership else row.assignment.replicas
            live = self.cluster.live - self.cluster.failed(i)
            able = [b for b in candidates if b in live and b in row.assignment.replicas]
            assert not able, f"{self.cluster.name(i)} waits although {able} could lead"

    # -- what happens

    @rule(fates=st.lists(outcomes, max_size=4))
    def trouble_ahead(self, fates: list[str]) -> None:
        """The fates of the next writes."""
        self.fates = fates

    @rule(target=topics, assignments=st.lists(assignment, min_size=1, max_size=4), name=st.sampled_from("abcdef"))
    def create_topic(self, assignments: list[tuple[int, ...]], name: str) -> str:
        if name not in self.assigned:
            self.zxid += 1
            partitions = {p: Assignment(r) for p, r in enumerate(assignments)}
            self.assigned[name] = TopicAssignment(name, None, partitions, 0, self.zxid)
            self.carry_out(partial(new_partitions, rows=self.cluster.observe_topic(self.assigned[name])))
        return name

    @rule(name=topics, replicas=assignment)
    def expand_topic(self, name: str, replicas: tuple[int, ...]) -> None:
        if name in self.assigned and name not in self.markers:
            known = self.assigned[name]
            partitions = {**known.partitions, len(known.partitions): Assignment(replicas)}
            self.assigned[name] = TopicAssignment(name, None, partitions, known.version + 1, known.czxid)
            self.carry_out(partial(new_partitions, rows=self.cluster.observe_topic(self.assigned[name])))

    @rule(name=consumes(topics))
    def topic_vanishes(self, name: str) -> None:
        if self.assigned.pop(name, None) is not None:
            self.gone(name)

    def gone(self, name: str) -> None:
        """Its znodes are deleted, by us or by somebody else."""
        self.assigned.pop(name, None)
        self.markers.discard(name)
        for key in [key for key in self.zookeeper.states if key[0] == name]:
            del self.zookeeper.states[key]
            self.unobserved.discard(key)
        self.cluster.observe_topic_gone(name)

    @rule(name=topics)
    def topic_is_marked(self, name: str) -> None:
        if name in self.assigned:
            self.markers.add(name)
            self.delete_queued()

    @precondition(lambda self: self.asked_to_delete)
    @rule(data=st.data())
    def a_broker_answers_the_deletion(self, data: st.DataObject) -> None:
        """With errors for some; a topic is deleted exactly when every replica of it was."""
        broker_id = data.draw(st.sampled_from(sorted({b for b, _ in self.asked_to_delete})))
        rows = sorted(i for b, i in self.asked_to_delete if b == broker_id)
        failed = data.draw(st.sets(st.sampled_from(rows)))
        self.asked_to_delete -= {(broker_id, i) for i in rows}
        self.carry_out(partial(answered, broker=broker_id, deleted=rows, failed=failed))
        for index in finished(self.cluster, sorted(self.cluster.deletions)):
            self.gone(self.cluster.topics[index].name)

    @invariant()
    def deletions_wait_for_something(self) -> None:
        """For an answer, for a broker, or for the end of a reassignment: never for nothing."""
        assert {self.cluster.topics[index].name for index in self.cluster.deletions} == self.markers
        stuck = ineligible(self.cluster)
        for index in self.cluster.deletions - stuck.keys():
            rows = self.cluster.topics[index].rows
            assert any((b, i) in self.asked_to_delete for i in rows for b in self.cluster.rows[i].assignment.replicas)

    @rule(gone=brokers, bounced=brokers, back=brokers)
    def brokers_change(self, gone: set[int], bounced: set[int], back: set[int]) -> None:
        """One snapshot of the registrations, with deaths, bounces and returns in it."""
        self.zxid += 1
        found = {b: known for b, known in self.registered.items() if b not in gone - back}
        found |= {b: broker(b, self.zxid) for b in (bounced & set(found)) | (back - set(found))}
        delta = compare(self.registered, found)
        self.registered = found
        lost = {*delta.dead, *delta.bounced}
        self.asked_to_delete = {(b, i) for b, i in self.asked_to_delete if b not in lost}
        dead, returned = (*delta.dead, *delta.bounced), (*delta.new, *delta.bounced)
        self.cluster.observe_brokers({b: found[b] for b in found if b not in delta.bounced})
        if dead:
            self.given_up.clear()
            self.carry_out(partial(broker_death, dead=dead, unclean=self.allows))
        self.cluster.observe_brokers(found)
        if returned:
            self.given_up.clear()
            self.carry_out(partial(broker_return, returned=returned, unclean=self.allows))
            self.go_on(waiting_for(self.cluster, returned), again=True)
            self.delete_queued(retry=True)
        if dead or returned:
            self.nobody_waits()

    @rule(leaving=st.sampled_from(IDS))
    def broker_shuts_down(self, leaving: int) -> None:
        if leaving in self.cluster.brokers:
            self.cluster.observe_shutting_down(leaving)
            self.carry_out(partial(controlled_shutdown, broker=leaving))

    @rule(data=st.data(), broker_id=st.sampled_from(IDS))
    def log_directory_fails(self, data: st.DataObject, broker_id: int) -> None:
        hosted = self.cluster.hosted(broker_id) if broker_id in self.registered else []
        if hosted:
            rows = data.draw(st.sets(st.sampled_from(hosted), min_size=1))
            fresh = self.cluster.observe_failed_dirs(broker_id, sorted(rows))
            self.carry_out(partial(log_directories_failed, failed={broker_id: fresh}, unclean=self.allows))
            if not self.given_up:
                assert all(self.cluster.rows[i].leader != broker_id for i in fresh)

    @precondition(lambda self: self.zookeeper.states)
    @rule(data=st.data(), told=st.booleans())
    def leader_changes_isr(self, data: st.DataObject, told: bool) -> None:
        """By AlterPartition, or by its own write of which the controller is told later."""
        name = data.draw(st.sampled_from(sorted(self.zookeeper.states)))
        held = self.zookeeper.states[name]
        if held.leader not in self.registered:
            return
        row = self.cluster.find(*name)
        assert row is not None
        replicas = self.cluster.rows[row].assignment.replicas
        others = data.draw(st.sets(st.sampled_from(replicas))) & set(self.registered)
        isr = (held.leader, *sorted(others - {held.leader}))
        if told:
            self.asks(name, isr)
        elif isr != held.isr:
            self.zookeeper.set_isr(name, isr)
            self.unobserved.add(name)

    def asks(self, name: tuple[str, int], isr: tuple[int, ...]) -> None:
        held = self.zookeeper.states[name]
        asked = IsrRequest(self.cluster.find(*name), held.leader_epoch, held.version, isr, False, by_id=True)
        self.carry_out(partial(alter_partitions, requests=[asked]))
        answer = judge(self.cluster, asked)
        if answer is IsrError.NONE:
            assert self.zookeeper.states[name].isr == isr, "acknowledged and not durable"
        self.go_on(due(self.cluster, [asked.row] if asked.row is not None else []))

    @rule()
    def notified(self) -> None:
        """ISR change notifications of what leaders wrote."""
        for name in sorted(self.unobserved):
            row = self.cluster.find(*name)
            assert row is not None
            self.reread(row)
            self.go_on(due(self.cluster, [row]))

    @precondition(lambda self: self.zookeeper.states)
    @rule(data=st.data(), wish=st.none() | assignment, dies_before=st.sampled_from(["", "", "states", "final"]))
    def partitions_are_reassigned(self, data: st.DataObject, wish: tuple[int, ...] | None, dies_before: str) -> None:
        """One target for several partitions, by znode: its brokers may be down. Without a target: cancelled."""
        names = data.draw(st.sets(st.sampled_from(sorted(self.zookeeper.states)), min_size=1, max_size=4))
        names = {name for name in names if self.cluster.find(*name) is not None}
        wanted: dict[int, Assignment] = {}
        for name in sorted(names):
            row = self.cluster.find(*name)
            found = judge_reassignment(self.cluster, ReassignmentRequest(row, wish), live_only=False)
            if isinstance(found, Assignment) and row is not None:
                wanted[row] = found
        self.rewrite(rewrites(self.cluster, wanted))
        self.go_on(list(wanted), again=True, dies_before=dies_before)

    @invariant()
    def reassignments_are_what_topic_znodes_say(self) -> None:
        """Nothing is lost between the model and ZooKeeper: each is finished, or known to be under way."""
        for name, found in self.assigned.items():
            for p, written in found.partitions.items():
                i = self.cluster.find(name, p)
                assert i is not None
                assignment = self.cluster.rows[i].assignment
                assert self.cluster.reassigning.get(i, assignment) == written
                assert (i in self.cluster.reassigning) == (written.moving or written != assignment)
        for broker_id in IDS:
            hosted = [
                i
                for i, row in enumerate(self.cluster.rows)
                if broker_id in row.assignment.replicas and row.state is not PartitionState.NON_EXISTENT
            ]
            assert self.cluster.hosted(broker_id) == hosted

    @rule()
    def controller_fails_over(self) -> None:
        self.take_over(self.cluster.epoch + 1)
        self.nobody_waits()

    @rule(name=st.sampled_from("abcdef"))
    def allow_unclean(self, name: str) -> None:
        self.unclean ^= {name}

    # -- what holds

    @invariant()
    def model_is_sound(self) -> None:
        check_model(self.cluster, self.zookeeper, self.unobserved)

    @invariant()
    def epochs_only_grow(self) -> None:
        for name, held in self.zookeeper.states.items():
            told = self.told.get((self.assigned[name[0]].czxid, *name), {})
            assert held.leader_epoch >= max(told, default=0)
            assert held.controller_epoch <= self.cluster.epoch

    @invariant()
    def every_row_is_of_a_state(self) -> None:
        for i, row in enumerate(self.cluster.rows):
            gone = self.cluster.topic_index.get(self.cluster.name(i).topic) != row.topic
            if row.topic not in self.cluster.deletions:
                assert (row.state is PartitionState.NON_EXISTENT) == gone


TestClusterHistory = ClusterHistory.TestCase
TestClusterHistory.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
