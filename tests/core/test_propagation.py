"""What each broker must hear: merged entries end in the same state of the broker as one request per event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Struct

from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import NO_VERSION, Assignment, Leadership, PartitionRow, PartitionState, ReplicaState
from state_machines.propagation.feed import BLOCK_ROWS, Feed
from state_machines.propagation.pending_requests import PendingRequests
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import is_removed, is_sent, needs_leader_and_isr
from tests.core.model import P, die, make_cluster
from tests.core.wire_kit import quickly

MANY = 1_000_000


def row(leader_epoch: int, version: int, *, leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionRow:
    return PartitionRow(0, 0, Assignment(replicas), PartitionState.ONLINE, leader, leader_epoch, replicas, 1, version)


NEW = PartitionRow(0, 0, Assignment((1, 2, 3)), PartitionState.NEW, version=NO_VERSION)


# -- the feed


@quickly
@given(
    batches=st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12),
    limit=st.integers(1, 10),
    start=st.integers(0, 12),
)
def test_a_reader_of_the_feed_sees_every_row_changed_since_its_position_and_no_other(
    batches: list[list[int]], limit: int, start: int
) -> None:
    feed, position = Feed(), 0
    wanted: set[int] = set()
    for number, batch in enumerate(batches):
        if number == start:
            position, wanted = feed.number, set()
        feed.changed(batch)
        wanted |= set(batch)
    if start >= len(batches):
        position, wanted = feed.number, set()
    assert feed.backlog(position) == len(wanted)
    seen: list[int] = []
    while feed.backlog(position):
        rows, position = feed.since(position, feed.number, limit)
        assert 0 < len(rows) <= limit
        seen += rows
    assert sorted(seen) == sorted(wanted)
    assert feed.since(position, feed.number, limit) == ([], feed.number)


def test_a_row_that_changes_again_is_read_once_at_its_last_place() -> None:
    feed = Feed()
    feed.changed([1, 2, 3])
    feed.changed([1])
    assert feed.since(0, 4, MANY) == ([2, 3, 1], 4)
    assert feed.since(0, 3, MANY) == ([2, 3], 3)
    assert feed.since(2, 1, MANY) == ([], 2)
    assert feed.since(3, 4, MANY) == ([1], 4)


@quickly
@given(changes=st.lists(st.integers(0, 4 * BLOCK_ROWS), max_size=8), first=st.integers(0, 4 * BLOCK_ROWS))
def test_last_change_never_misses_a_change_within_the_rows(changes: list[int], first: int) -> None:
    feed = Feed()
    exact = 0
    for i in changes:
        feed.changed([i])
        if first <= i < first + BLOCK_ROWS:
            exact = feed.number
    assert feed.last_change(first, first + BLOCK_ROWS) >= exact
    assert feed.last_change(first, first) <= feed.number


def test_changes_far_away_leave_encoded_rows_valid() -> None:
    feed = Feed()
    feed.changed([5 * BLOCK_ROWS])
    assert feed.last_change(0, 5 * BLOCK_ROWS) == 0


def test_what_every_reader_has_read_is_dropped_and_the_rest_is_not() -> None:
    feed = Feed()
    feed.changed(range(10))
    feed.forget(6)
    assert len(feed) == 4
    assert feed.since(6, 10, MANY) == ([6, 7, 8, 9], 10)


# -- one outbox against the requests that were merged in it


class Replica(Struct):
    """What a broker knows of a replica: the highest epoch told, whether it runs, whether its log was deleted."""

    epoch: int = -1
    runs: bool = False
    deleted: int = 0


class Merging(RuleBasedStateMachine):
    """Tells one broker about three rows, at once and through an outbox, and compares at quiet moments."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingRequests(0)
        self.epochs = dict.fromkeys(range(3), 0)
        self.plain = {i: Replica() for i in range(3)}
        self.merged = {i: Replica() for i in range(3)}
        self.owed_new: set[int] = set()
        self.owed_delete: set[int] = set()

    @rule(i=st.integers(0, 2), is_new=st.booleans(), bump=st.booleans())
    def lead(self, i: int, is_new: bool, bump: bool) -> None:
        self.epochs[i] += bump
        self.pending.add_lead(i, is_new=is_new)
        self.plain[i] = Replica(self.epochs[i], True, self.plain[i].deleted)
        if is_new:
            self.owed_new.add(i)

    @rule(i=st.integers(0, 2), delete=st.booleans())
    def stop(self, i: int, delete: bool) -> None:
        self.pending.add_stop(i, delete=delete)
        self.plain[i].runs = False
        self.owed_new.discard(i)
        if delete:
            self.owed_delete.add(i)

    @rule(limit=st.integers(1, 3))
    def seal(self, limit: int) -> None:
        for i, is_new in self.pending.take_lead(limit).items():
            assert is_new or i not in self.owed_new, "is-new got lost"
            self.merged[i].epoch = self.epochs[i]
            self.merged[i].runs = True
            self.owed_new.discard(i)
        for i, delete in self.pending.take_stop(limit).items():
            assert delete or i not in self.owed_delete, "delete got lost"
            self.merged[i].runs = False
            self.owed_delete.discard(i)

    @rule()
    def drain(self) -> None:
        while self.pending.size:
            self.seal(limit=2)
        for i in range(3):
            assert self.merged[i].runs == self.plain[i].runs
            if self.plain[i].runs:
                assert self.merged[i].epoch == self.epochs[i]
        assert not self.owed_new
        assert not self.owed_delete

    @invariant()
    def no_row_is_led_while_its_stop_waits(self) -> None:
        assert not self.pending.lead.keys() & self.pending.stop.keys()
        assert self.pending.after.keys() <= self.pending.stop.keys()


TestMerging = pytest.mark.kafka(
    "ControllerChannelManagerTest.testLeaderAndIsrRequestIsNew",
    "ControllerChannelManagerTest.testStopReplicaRequestWithAlreadyDefinedDeletedPartition",
)(Merging.TestCase)
TestMerging.settings = settings(max_examples=50, deadline=None)


def test_leader_and_isr_after_a_stop_waits_for_the_seal_after_it() -> None:
    pending = PendingRequests(0)
    pending.add_lead(4, is_new=True)
    pending.add_stop(4, delete=True)
    pending.add_lead(4, is_new=False)
    assert pending.take_lead(MANY) == {}
    assert pending.take_stop(MANY) == {4: True}
    assert pending.take_lead(MANY) == {4: False}
    assert pending.size == 0


def test_a_stop_supersedes_what_waited_behind_an_earlier_one() -> None:
    pending = PendingRequests(0)
    pending.add_stop(4, delete=True)
    pending.add_lead(4, is_new=True)
    pending.add_stop(4, delete=False)
    assert pending.take_stop(MANY) == {4: True}
    assert pending.size == 0


# -- who hears what


def propagation_of(cluster: Cluster, *brokers: int) -> Propagation:
    propagation = Propagation(cluster)
    for broker in brokers or sorted(cluster.brokers):
        propagation.add(broker)
    return propagation


def elect(cluster: Cluster, i: int, leader: int, isr: tuple[int, ...]) -> Change:
    """A committed election, in the model."""
    before = cluster.rows[i]
    after = PartitionRow(
        before.topic,
        before.partition,
        before.assignment,
        PartitionState.ONLINE,
        leader,
        before.leader_epoch + 1,
        isr,
        cluster.epoch,
        before.version + 1,
    )
    change = Change(i, before, after, "test")
    cluster.apply([change])
    return change


@pytest.mark.kafka("ControllerChannelManagerTest.testLeaderAndIsrRequestSentToLiveOrShuttingDownBrokers")
@pytest.mark.seed("S4-22", "S4-23")
def test_an_election_is_told_to_registered_replicas_and_its_metadata_to_all() -> None:
    cluster = make_cluster(P((1, 2, 9), 1), P((2, 3), 2), brokers=(1, 2, 3))
    propagation = propagation_of(cluster)
    propagation.propagate([elect(cluster, 0, 2, (2,))], ())
    assert {b: box.lead for b, box in propagation.pending.items()} == {1: {0: False}, 2: {0: False}, 3: {}}
    assert propagation.feed.since(0, MANY, MANY)[0] == [0]
    assert all(propagation.dirty(box) for box in propagation.pending.values())


@pytest.mark.seed("S4-7", "S4-8")
@pytest.mark.parametrize(("epoch", "new"), [(7, True), (6, False)])
def test_only_our_own_creation_that_was_read_back_is_told_as_new(epoch: int, new: bool) -> None:
    cluster = make_cluster(P((1, 2)), brokers=(1, 2, 3))
    propagation = propagation_of(cluster)
    change = cluster.observe_leadership(0, Leadership(1, 0, (1, 2), epoch, 0))
    assert change is not None
    assert change.is_late is not new
    propagation.propagate([change], ())
    assert {b: box.lead for b, box in propagation.pending.items()} == {1: {0: new}, 2: {0: new}, 3: {}}


@pytest.mark.seed("S4-36")
def test_an_isr_change_by_the_leader_is_metadata_only() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=(1, 2))
    propagation = propagation_of(cluster)
    before = cluster.rows[0]
    after = PartitionRow(
        0, 0, before.assignment, PartitionState.ONLINE, 1, before.leader_epoch, (1,), 7, before.version + 1
    )
    change = Change(0, before, after, "read")
    cluster.apply([change])
    propagation.propagate([change], ())
    assert all(not box.lead for box in propagation.pending.values())
    assert propagation.feed.since(0, MANY, MANY)[0] == [0]


@pytest.mark.parametrize(
    ("before", "after", "is_new", "hear"),
    [
        (row(3, 5), row(4, 6), False, True),
        (row(3, 5), row(3, 6), False, False),
        (row(3, 5), row(3, 5), True, True),
        (NEW, row(0, 0), False, True),
    ],
)
def test_replicas_hear_what_they_would_not_ignore(
    before: PartitionRow, after: PartitionRow, is_new: bool, hear: bool
) -> None:
    assert needs_leader_and_isr(Change(0, before, after, "test", is_new)) is hear


@pytest.mark.kafka("ControllerChannelManagerTest.testStopReplicaSentOnlyToLiveAndShuttingDownBrokers")
@pytest.mark.seed("S4-73", "S4-34")
def test_a_replica_that_was_stopped_hears_stop_replica_and_no_leadership() -> None:
    cluster = make_cluster(P((2, 1), 2), brokers=(1, 2))
    propagation = propagation_of(cluster)
    cluster.observe_shutting_down(1)
    change = elect(cluster, 0, 2, (2,))
    move = ReplicaMove(0, 1, ReplicaState.OFFLINE, "shutdown", stop=True)
    cluster.apply_replicas([move])
    propagation.propagate([change], [move])
    assert (propagation.pending[1].lead, propagation.pending[1].stop) == ({}, {0: False})
    assert (propagation.pending[2].lead, propagation.pending[2].stop) == ({0: False}, {})


@pytest.mark.kafka("ControllerChannelManagerTest.testStopReplicaSentOnlyToLiveAndShuttingDownBrokers")
def test_moves_without_a_stop_or_to_absent_brokers_say_nothing() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=(1,))
    propagation = propagation_of(cluster)
    propagation.propagate(
        (),
        [ReplicaMove(0, 1, ReplicaState.ONLINE, "x"), ReplicaMove(0, 2, ReplicaState.OFFLINE, "x", stop=True)],
    )
    assert propagation.pending[1].size == 0


@pytest.mark.kafka("ControllerChannelManagerTest.testUpdateMetadataDoesNotIncludePartitionsWithoutLeaderAndIsr")
def test_partitions_without_leadership_and_ended_ones_are_not_told() -> None:
    ended = PartitionRow(0, 0, Assignment((1,)), PartitionState.NON_EXISTENT, 1, 3, (1,), 1, 4)
    assert not is_sent(NEW)
    assert not is_sent(ended)
    assert is_removed(ended)
    assert not is_removed(NEW)
    assert not is_removed(row(0, 0))
    assert is_sent(row(0, 0))
    cluster = make_cluster(P((1,)), brokers=(1,))
    propagation = propagation_of(cluster)
    propagation.propagate([Change(0, NEW, NEW, "x")], ())
    assert (propagation.pending[1].size, len(propagation.feed)) == (0, 0)


@pytest.mark.seed("S4-33", "S4-48")
def test_one_broker_is_told_what_it_must_lead_or_follow() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), brokers=(1, 2))
    propagation = propagation_of(cluster)
    propagation.leader_and_isr_to(1, [0, 1])
    propagation.leader_and_isr_to(1, [1], is_new=True)
    propagation.leader_and_isr_to(77, [0])
    assert propagation.pending[1].lead == {0: False, 1: True}
    assert propagation.pending[2].lead == {}


def test_registrations_change_the_live_list_for_everybody_and_the_recipients() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1), brokers=(1, 2))
    propagation = propagation_of(cluster)
    for box in propagation.pending.values():
        box.live_version = propagation.live_version
    assert not any(propagation.dirty(box) for box in propagation.pending.values())
    propagation.propagate([elect(cluster, 0, 2, (2,))], ())
    die(cluster, 1)
    propagation.remove(1)
    assert propagation.dirty(propagation.pending[2])
    propagation.propagate([elect(cluster, 1, 2, (2,))], ())
    assert propagation.pending.keys() == {2}
    assert propagation.pending[2].lead == {0: False, 1: False}
    fresh = propagation.add(1)
    assert (fresh.size, fresh.position) == (0, propagation.feed.number)
    propagation.propagate([elect(cluster, 0, 2, (2,))], ())
    assert fresh.lead == {0: False}


@pytest.mark.seed("S4-47", "S4-66")
def test_a_snapshot_is_behind_until_its_last_turn() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), brokers=(1, 2))
    propagation = propagation_of(cluster, 1)
    box = propagation.pending[1]
    box.live_version = propagation.live_version
    propagation.snapshot(1)
    assert propagation.behind(box)
    assert not propagation.dirty(box)
    box.turn = box.turn_end
    assert not propagation.behind(box)


def test_pruning_keeps_what_the_slowest_broker_has_not_read() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), brokers=(1, 2))
    propagation = propagation_of(cluster)
    propagation.metadata_changed([0, 1])
    propagation.pending[1].position = propagation.feed.number
    propagation.prune()
    assert propagation.feed.since(propagation.pending[2].position, MANY, MANY)[0] == [0, 1]
    propagation.pending[2].position = propagation.feed.number
    propagation.prune()
    assert len(propagation.feed) == 0


@pytest.mark.seed("S4-31")
@pytest.mark.parametrize(("state", "is_new"), [(ReplicaState.NEW, True), (ReplicaState.ONLINE, False)])
def test_a_replica_that_is_ordered_to_follow_hears_the_present_leadership(state: ReplicaState, is_new: bool) -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=(1, 2))
    propagation = propagation_of(cluster)
    propagation.propagate((), [ReplicaMove(0, 2, state, "added", order=True, is_new=is_new)])
    assert {b: box.lead for b, box in propagation.pending.items()} == {1: {}, 2: {0: is_new}}
    assert propagation.feed.since(0, MANY, MANY)[0] == [0]


def test_a_row_is_unacknowledged_by_whom_its_last_change_or_its_turn_has_not_reached() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), brokers=(1, 2))
    propagation = propagation_of(cluster)
    first, second = propagation.pending.values()
    assert propagation.unacknowledged_by(0) == frozenset()
    propagation.metadata_changed([0])
    assert propagation.unacknowledged_by(0) == {1, 2}
    assert propagation.unacknowledged_by(1) == frozenset()
    first.position = propagation.feed.number
    assert propagation.unacknowledged_by(0) == {2}
    second.position = propagation.feed.number
    propagation.snapshot(2)
    second.turn = 1
    assert propagation.unacknowledged_by(0) == frozenset()
    assert propagation.unacknowledged_by(1) == {2}


def test_a_row_is_shown_once_a_broker_has_heard_of_its_change() -> None:
    cluster = make_cluster(P(replicas=(1, 2)))
    propagation = Propagation(cluster)
    assert propagation.shown(1), "there is no broker that could show anything else"
    for broker in (1, 2):
        propagation.add(broker)
        propagation.snapshot(broker)
    propagation.metadata_changed([0])
    number = propagation.number_of([0])
    assert not propagation.shown(number)
    propagation.pending[2].position = number
    assert propagation.shown(number), "it was told ahead of the snapshot"
    propagation.pending[1].position = number
    propagation.prune()
    assert propagation.shown(propagation.number_of([0])), "all have heard of it, whose snapshots go on"
    assert propagation.shown(propagation.number_of([]))


def test_what_a_broker_refused_it_does_not_show_and_what_it_accepts_later_it_does() -> None:
    cluster = make_cluster(P(replicas=(1, 2)), P(replicas=(2, 1)))
    propagation = propagation_of(cluster, 1, 2)
    propagation.metadata_changed([0])
    one, two = propagation.pending.values()
    number = propagation.number_of([0])
    for box in (one, two):
        box.position = box.refused = number
    propagation.prune()
    assert propagation.number_of([0]) == number, "it is not forgotten, because nobody shows it"
    assert not propagation.shown(propagation.number_of([0]))
    assert propagation.acknowledged_to(number), "nobody is waited for"
    propagation.metadata_changed([1])
    two.position = propagation.number_of([1])
    assert propagation.shown(propagation.number_of([1]))
    assert not propagation.shown(number)
    propagation.metadata_changed([0])
    two.position = propagation.number_of([0])
    assert propagation.shown(propagation.number_of([0]))


def test_one_broker_that_accepts_everything_shows_what_another_refused() -> None:
    cluster = make_cluster(P(replicas=(1, 2)))
    propagation = propagation_of(cluster, 1, 2)
    propagation.metadata_changed([0])
    one, two = propagation.pending.values()
    one.position = one.refused = propagation.feed.number
    propagation.prune()
    assert not propagation.shown(propagation.number_of([0]))
    two.position = propagation.feed.number
    assert propagation.shown(propagation.number_of([0]))
    propagation.prune()
    assert len(propagation.feed) == 0


def test_a_broker_that_came_later_shows_a_row_after_its_snapshot() -> None:
    cluster = make_cluster(P(replicas=(1, 2)))
    propagation = Propagation(cluster)
    propagation.add(1)
    propagation.metadata_changed([0])
    propagation.add(2)
    assert not propagation.shown(1)
    propagation.snapshot(2)
    assert not propagation.shown(1)
    propagation.pending[2].turn = 1
    assert propagation.shown(1)


def test_a_broker_that_came_back_shows_a_deletion_after_it_was_sent_that_beside_its_snapshot() -> None:
    """The snapshot names no deleted partition, and the broker may have the metadata of its former session."""
    cluster = make_cluster(P(replicas=(1, 2)))
    propagation = Propagation(cluster)
    propagation.metadata_changed([0])
    number = propagation.number_of([0])
    propagation.add(2)
    propagation.metadata_changed([0])
    propagation.snapshot(2)
    propagation.pending[2].turn = 1
    assert not propagation.shown(number)
    propagation.pending[2].position = propagation.feed.number
    assert propagation.shown(number)


@pytest.mark.seed("S4-22")
def test_followers_are_held_until_their_leader_acknowledged_and_leaders_never_are() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), P((1, 3), 1), brokers=(1, 2))
    propagation = propagation_of(cluster)
    propagation.propagate([elect(cluster, i, leader, (1, 2)) for i, leader in enumerate((1, 2, 3))], ())
    one, two = propagation.pending.values()
    assert (propagation.held(1), propagation.held(2)) == ({1}, {0})
    assert one.take_lead(MANY, propagation.held(1)) == {0: False, 2: False}
    one.sending = {0: False, 2: False}
    assert propagation.held(2) == {0}
    waiting = propagation.leaders_waiting([0, 1])
    assert waiting == propagation.still_waiting(waiting) == {1: {0}, 2: {1}}
    assert propagation.leaders_waiting([2]) == {}, "3 is not registered"
    one.sending = {}
    assert propagation.held(2) == set()
    assert propagation.still_waiting(waiting) == propagation.leaders_waiting([0, 1]) == {2: {1}}
    assert two.take_lead(1, propagation.held(2)) == {0: False}


@pytest.mark.seed("S4-59", "S4-60")
def test_a_replica_has_stopped_once_its_stop_was_acknowledged() -> None:
    propagation = propagation_of(make_cluster(P((1, 2), 1), P((1, 2), 1)))
    pending = propagation.pending[2]
    pending.add_stop(0, delete=True)
    pending.add_stop(1, delete=False)
    assert [propagation.unstopped(rows) for rows in ([0, 1, 5], [1], [5], [])] == [{0, 1}, {1}, set(), set()]
    assert pending.take_stop(1) == {0: True}
    assert propagation.unstopped([0, 1]) == {0, 1}, "one is on its way, one waits"
    pending.stopping = {}
    assert propagation.unstopped([0, 1]) == {1}
    propagation.remove(2)
    assert propagation.unstopped([0, 1]) == set(), "nobody stops what is gone"
