"""Random histories of a cluster; after every step the invariants hold and memory is what ZooKeeper holds.

I2: brokers are sent one leader per leader epoch, and epochs never go down. I3: the leader is in the ISR, the ISR is
assigned and never empty. I4: a new leader was in the last committed ISR, or the election was unclean and allowed. I5:
after a broker event no partition with a live ISR member is without a leader. I6: Online exactly under a registered
leader. I10: no assignment names a broker twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from state_machines.decisions.alter_partition import IsrError, IsrRequest, alter_partitions, judge
from state_machines.decisions.broker_change import controlled_shutdown
from state_machines.decisions.deletion import ineligible
from state_machines.machines import selectors
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import PartitionState
from tests.kit.kafka.core import CONFLICT, REFUSED, REPLY_LOST, WRITTEN, CoreWorld
from tests.kit.kafka.model import broker, check_model

IDS = (1, 2, 3, 4)
LOST = "lost"

brokers = st.sets(st.sampled_from(IDS), min_size=1)
assignment = st.permutations((*IDS, 9)).flatmap(lambda ids: st.integers(1, 3).map(lambda n: tuple(ids[:n])))
outcomes = st.sampled_from([WRITTEN] * 5 + [REPLY_LOST, LOST, REFUSED])


class TroubledWorld(CoreWorld):
    """The core with writes that are lost or refused. ``fates``: of the next writes, the last one first."""

    def __init__(self) -> None:
        super().__init__()
        self.registered = {b: broker(b, b) for b in IDS}
        self.fates: list[str] = []
        self.given_up: set[int] = set()
        self.sent: dict[tuple[int, str, int], dict[int, int]] = {}
        """Leaders by leader epoch that brokers were sent of an incarnation of a partition."""
        self.deleting: set[tuple[int, int]] = set()
        """Replicas whose brokers have not responded to StopReplica with deletion."""

    def load(self, epoch: int) -> None:
        self.given_up.clear()
        self.deleting.clear()
        super().load(epoch)

    def leave(self, broker_id: int) -> None:
        super().leave(broker_id)
        self.deleting = {(b, i) for b, i in self.deleting if b != broker_id}

    def write(self, change: Change) -> str:
        fate = self.fates.pop() if self.fates else WRITTEN
        if fate in (LOST, REFUSED):
            return fate
        if super().write(change) == CONFLICT:
            assert self.cluster.name(change.entity) in self.unobserved, "a conflict without another writer"
            return CONFLICT
        self._check_election(change)
        return fate

    def may_rewrite(self) -> bool:
        return not self.fates or self.fates.pop() in (WRITTEN, REPLY_LOST)

    def contended(self, rows: set[int]) -> None:
        self.give_up(rows)

    def give_up(self, rows: set[int]) -> None:
        super().give_up(rows)
        self.given_up |= rows

    def note_moves(self, moves: Iterable[ReplicaMove]) -> None:
        rows, deletions = self.cluster.rows, self.cluster.deletions
        self.deleting |= {(m.broker, m.entity) for m in moves if m.delete and rows[m.entity].topic in deletions}

    def note_sent(self, change: Change) -> None:
        """Checks I2 over everything that brokers are ever sent of one incarnation of a partition."""
        row = change.after
        incarnation = self.cluster.topics[row.topic]
        sent = self.sent.setdefault((incarnation.czxid, incarnation.name, row.partition), {})
        assert sent.setdefault(row.leader_epoch, row.leader) == row.leader, "two leaders in one leader epoch"
        assert row.leader_epoch == max(sent), "a lower leader epoch is sent after a higher one"

    def _check_election(self, change: Change) -> None:
        before, after = change.before, change.after
        if before.has_leadership and after.leader >= 0 and after.leader not in before.isr:
            assert change.why in selectors.UNCLEAN, f"an unclean election with the reason {change.why!r}"
            assert self.allows_unclean(after.topic), "an unclean election that is not allowed"
            assert after.recovering

    def check_elected(self) -> None:
        """Checks I5, after a broker event."""
        for i in self.cluster.leaderless - self.given_up:
            row = self.cluster.rows[i]
            if row.topic in self.cluster.deletions and i not in self.cluster.reassigning:
                continue
            candidates = row.isr if row.has_leadership else row.assignment.replicas
            live = self.cluster.live - self.cluster.failed(i)
            able = [b for b in candidates if b in live and b in row.assignment.replicas]
            assert not able, f"{self.cluster.name(i)} waits although {able} could lead"


class ClusterHistory(RuleBasedStateMachine):
    """Brokers, topics and leaders act; a controller that loses replies and meets conflicts keeps up."""

    topics = Bundle("topics")

    @initialize()
    def start(self) -> None:
        self.world = TroubledWorld()
        self.world.begin_term()

    # -- events

    @rule(fates=st.lists(outcomes, max_size=4))
    def trouble_ahead(self, fates: list[str]) -> None:
        self.world.fates = fates

    @rule(target=topics, assignments=st.lists(assignment, min_size=1, max_size=4), name=st.sampled_from("abcdef"))
    def create_topic(self, assignments: list[tuple[int, ...]], name: str) -> str:
        if name not in self.world.zookeeper.topics:
            self.world.expand(name, *assignments)
        return name

    @rule(name=topics, replicas=assignment)
    def expand_topic(self, name: str, replicas: tuple[int, ...]) -> None:
        if name in self.world.zookeeper.topics and name not in self.world.markers:
            self.world.expand(name, replicas)

    @rule(name=consumes(topics))
    def topic_vanishes(self, name: str) -> None:
        if name in self.world.zookeeper.topics:
            self.world.topic_gone(name)

    @rule(name=topics)
    def topic_is_marked(self, name: str) -> None:
        if name in self.world.zookeeper.topics:
            self.world.markers.add(name)
            self.world.delete_queued()

    @precondition(lambda self: self.world.deleting)
    @rule(data=st.data())
    def broker_responds_to_a_deletion(self, data: st.DataObject) -> None:
        """With errors for some; a topic is deleted exactly when every replica of it is."""
        broker_id = data.draw(st.sampled_from(sorted({b for b, _ in self.world.deleting})))
        rows = sorted(i for b, i in self.world.deleting if b == broker_id)
        failed = data.draw(st.sets(st.sampled_from(rows)))
        self.world.deleting -= {(broker_id, i) for i in rows}
        self.world.deletion_response(broker_id, rows, failed)

    @rule(gone=brokers, bounced=brokers, back=brokers)
    def brokers_change(self, gone: set[int], bounced: set[int], back: set[int]) -> None:
        """Registrations change in one snapshot, with deaths, bounces and returns in it."""
        world = self.world
        known, gone = set(world.registered), (gone - back) & set(world.registered)
        if gone or bounced & known or back - known:
            world.given_up.clear()
        world.brokers_change(gone, bounced & known - gone, back - known)
        if gone or bounced & known or back - known:
            world.check_elected()

    @rule(leaving=st.sampled_from(IDS))
    def broker_shuts_down(self, leaving: int) -> None:
        if leaving in self.world.cluster.brokers:
            self.world.cluster.observe_shutting_down(leaving)
            self.world.carry_out(partial(controlled_shutdown, broker=leaving))

    @rule(data=st.data(), broker_id=st.sampled_from(IDS))
    def log_directory_fails(self, data: st.DataObject, broker_id: int) -> None:
        world = self.world
        if hosted := world.cluster.hosted(broker_id) if broker_id in world.registered else []:
            rows = data.draw(st.sets(st.sampled_from(hosted), min_size=1))
            fresh = world.log_directory_failed(broker_id, sorted(rows))
            assert world.given_up or all(world.cluster.rows[i].leader != broker_id for i in fresh)

    @precondition(lambda self: self.world.zookeeper.states)
    @rule(data=st.data(), by_request=st.booleans())
    def leader_changes_isr(self, data: st.DataObject, by_request: bool) -> None:
        """By AlterPartition, or by its own write, of which the controller is notified later."""
        world = self.world
        name = data.draw(st.sampled_from(sorted(world.zookeeper.states)))
        held = world.zookeeper.states[name]
        if held.leader not in world.registered:
            return
        replicas = world.cluster.rows[self.row(name)].assignment.replicas
        others = data.draw(st.sets(st.sampled_from(replicas))) & set(world.registered)
        isr = (held.leader, *sorted(others - {held.leader}))
        if by_request:
            self.alter_partition(name, isr)
        elif isr != held.isr:
            world.zookeeper.set_isr(name, isr)
            world.unobserved.add(name)

    def row(self, name: tuple[str, int]) -> int:
        found = self.world.cluster.find(*name)
        assert found is not None
        return found

    def alter_partition(self, name: tuple[str, int], isr: tuple[int, ...]) -> None:
        held = self.world.zookeeper.states[name]
        request = IsrRequest(self.row(name), held.leader_epoch, held.version, isr, False, by_id=True)
        self.world.carry_out(partial(alter_partitions, requests=[request]))
        if judge(self.world.cluster, request) is IsrError.NONE:
            assert self.world.zookeeper.states[name].isr == isr, "acknowledged and not durable"
        self.world.go_on_where_due([self.row(name)])

    @rule()
    def leaders_notify(self) -> None:
        for name in sorted(self.world.unobserved):
            self.world.reread(self.row(name))
            self.world.go_on_where_due([self.row(name)])

    @precondition(lambda self: self.world.zookeeper.states)
    @rule(data=st.data(), wish=st.none() | assignment, dies_before=st.sampled_from(["", "", "states", "final"]))
    def partitions_are_reassigned(self, data: st.DataObject, wish: tuple[int, ...] | None, dies_before: str) -> None:
        """One target for several partitions, by znode: its brokers may be down. None cancels."""
        world = self.world
        names = data.draw(st.sets(st.sampled_from(sorted(world.zookeeper.states)), min_size=1, max_size=4))
        wanted, _ = world.judge_targets(dict.fromkeys(sorted(names), wish), live_only=False)
        world.dies_before = dies_before
        world.begin_reassignments(wanted)
        if dies_before:
            world.begin_term()

    @rule()
    def controller_fails_over(self) -> None:
        self.world.begin_term()
        self.world.check_elected()

    @rule(name=st.sampled_from("abcdef"))
    def allow_unclean(self, name: str) -> None:
        self.world.unclean ^= {name}

    # -- invariants

    @invariant()
    def model_is_sound(self) -> None:
        check_model(self.world.cluster, self.world.zookeeper, self.world.unobserved)

    @invariant()
    def deletions_wait_for_something(self) -> None:
        """For a response, for a broker, or for the end of a reassignment."""
        cluster = self.world.cluster
        assert {cluster.topics[index].name for index in cluster.deletions} == self.world.markers
        for index in cluster.deletions - ineligible(cluster).keys():
            replicas = {(b, i) for i in cluster.topics[index].rows for b in cluster.rows[i].assignment.replicas}
            assert replicas & self.world.deleting

    @invariant()
    def reassignments_are_as_in_topic_znodes(self) -> None:
        """Each is finished, or known to be under way."""
        cluster = self.world.cluster
        for name, found in self.world.zookeeper.topics.items():
            for p, written in found.partitions.items():
                i = self.row((name, p))
                known = cluster.rows[i].assignment
                assert cluster.reassigning.get(i, known) == written
                assert (i in cluster.reassigning) == (written.moving or written != known)
        for broker_id in IDS:
            hosted = [
                i
                for i, row in enumerate(cluster.rows)
                if broker_id in row.assignment.replicas and row.state is not PartitionState.NON_EXISTENT
            ]
            assert cluster.hosted(broker_id) == hosted

    @invariant()
    def epochs_only_grow(self) -> None:
        for name, held in self.world.zookeeper.states.items():
            sent = self.world.sent.get((self.world.zookeeper.topics[name[0]].czxid, *name), {})
            assert held.leader_epoch >= max(sent, default=0)
            assert held.controller_epoch <= self.world.cluster.epoch

    @invariant()
    def rows_are_gone_with_their_topics(self) -> None:
        cluster = self.world.cluster
        for i, row in enumerate(cluster.rows):
            gone = cluster.topic_index.get(cluster.name(i).topic) != row.topic
            assert row.topic in cluster.deletions or (row.state is PartitionState.NON_EXISTENT) == gone


TestClusterHistory = ClusterHistory.TestCase
TestClusterHistory.settings = settings(
    max_examples=60, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
