"""Propagation: requests that wait for each broker, acknowledgements, and logs that a request may still delete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change
from state_machines.model.types import NO_VERSION, Assignment, Leadership, PartitionRow, PartitionState
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import is_removed, is_sent, needs_leader_and_isr
from tests.kit.kafka.model import P, die, make_cluster, topic, topic_gone

MANY = 1_000_000


def row(leader_epoch: int, version: int, *, leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionRow:
    return PartitionRow(0, 0, Assignment(replicas), PartitionState.ONLINE, leader, leader_epoch, replicas, 1, version)


NEW = PartitionRow(0, 0, Assignment((1, 2, 3)), PartitionState.NEW, version=NO_VERSION)


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


@pytest.mark.seed("S4-7", "S4-8")
@pytest.mark.parametrize(("epoch", "new"), [(7, True), (6, False)])
def test_a_state_znode_that_is_read_is_sent_as_new_where_this_term_created_it(epoch: int, new: bool) -> None:
    cluster = make_cluster(P((1, 2)), brokers=(1, 2, 3))
    propagation = propagation_of(cluster)
    change = cluster.observe_leadership(0, Leadership(1, 0, (1, 2), epoch, 0))
    assert change is not None
    assert change.is_late is not new
    propagation.propagate([change], ())
    assert {b: pending.lead for b, pending in propagation.pending.items()} == {1: {0: new}, 2: {0: new}, 3: {}}


@pytest.mark.parametrize(
    ("before", "after", "is_new", "sent"),
    [
        (row(3, 5), row(4, 6), False, True),
        (row(3, 5), row(3, 6), False, False),
        (row(3, 5), row(3, 5), True, True),
        (NEW, row(0, 0), False, True),
    ],
)
def test_leader_and_isr_is_sent_where_brokers_would_not_ignore_it(
    before: PartitionRow, after: PartitionRow, is_new: bool, sent: bool
) -> None:
    assert needs_leader_and_isr(Change(0, before, after, "test", is_new)) is sent


@pytest.mark.kafka("ControllerChannelManagerTest.testUpdateMetadataDoesNotIncludePartitionsWithoutLeaderAndIsr")
def test_partitions_without_a_leadership_are_not_sent_and_ended_ones_as_removed() -> None:
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
def test_leader_and_isr_for_one_broker_stays_new_and_needs_a_registration() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), brokers=(1, 2))
    propagation = propagation_of(cluster)
    propagation.leader_and_isr_to(1, [0, 1])
    propagation.leader_and_isr_to(1, [1], is_new=True)
    propagation.leader_and_isr_to(1, [1])
    propagation.leader_and_isr_to(77, [0])
    assert propagation.pending[1].lead == {0: False, 1: True}
    assert propagation.pending[2].lead == {}


def test_a_registration_changes_the_live_list_and_the_recipients() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1), brokers=(1, 2))
    propagation = propagation_of(cluster)
    for pending in propagation.pending.values():
        pending.live_version = propagation.live_version
    assert not any(propagation.dirty(pending) for pending in propagation.pending.values())
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
    pending = propagation.pending[1]
    pending.live_version = propagation.live_version
    propagation.snapshot(1)
    assert propagation.behind(pending)
    assert not propagation.dirty(pending)
    pending.turn = pending.turn_end
    assert not propagation.behind(pending)
    pending.add_stop(0, delete=False)
    assert propagation.dirty(pending)
    pending.take_stop(MANY)
    pending.add_lead(0, is_new=False)
    assert propagation.behind(pending)


def test_a_row_is_unacknowledged_until_its_last_change_and_its_turn_of_a_snapshot() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), brokers=(1, 2))
    propagation = propagation_of(cluster)
    first, second = propagation.pending.values()
    assert propagation.unacknowledged_by(0) == frozenset()
    first.add_stop(1, delete=False)
    assert propagation.unacknowledged_by(1) == {1}
    first.take_stop(MANY)
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


class Reader(NamedTuple):
    """A broker's positions in a feed of 9 changes; ``complete``: it was sent a whole snapshot."""

    since: int
    position: int
    refused: int = 0
    complete: bool = False


def read_by(readers: Iterable[Reader], *, forgotten: int = 0) -> Propagation:
    propagation = Propagation(make_cluster(*[P((1, 2), 1)] * 9))
    propagation.metadata_changed(range(9))
    propagation.feed.forget(forgotten)
    for broker, reader in enumerate(readers, 1):
        pending = propagation.add(broker)
        pending.since, pending.position, pending.refused, pending.begun = reader
    return propagation


@pytest.mark.parametrize(
    ("readers", "shown", "acknowledged"),
    [
        pytest.param([], True, True, id="no broker"),
        pytest.param([Reader(0, 4)], False, False, id="one change behind"),
        pytest.param([Reader(0, 5)], True, True, id="sent"),
        pytest.param([Reader(4, 5)], True, True, id="the first that it was sent"),
        pytest.param([Reader(5, 5)], False, True, id="it came later"),
        pytest.param([Reader(5, 5, complete=True)], True, True, id="it came later, and has the snapshot"),
        pytest.param([Reader(0, 5, refused=5)], False, True, id="refused"),
        pytest.param([Reader(0, 6, refused=4)], True, True, id="it refused earlier changes"),
        pytest.param([Reader(0, 5, refused=5), Reader(0, 5)], True, True, id="one refused, the other did not"),
        pytest.param([Reader(0, 4), Reader(0, 5)], True, False, id="one is behind, the other is not"),
    ],
)
def test_a_change_is_shown_by_a_broker_that_did_not_refuse_it(
    readers: list[Reader], shown: bool, acknowledged: bool
) -> None:
    propagation = read_by(readers)
    assert (propagation.shown(5), propagation.acknowledged_to(5)) == (shown, acknowledged)
    assert propagation.shown(0), "a row without a change"


@pytest.mark.parametrize(
    ("readers", "forgotten", "left"),
    [
        pytest.param([], 0, 0, id="no broker"),
        pytest.param([Reader(0, 3), Reader(0, 5)], 0, 6, id="the slowest counts"),
        pytest.param([Reader(0, 9), Reader(0, 9)], 0, 0, id="all were sent all"),
        pytest.param([Reader(0, 3, refused=2), Reader(0, 5)], 0, 6, id="one refused some"),
        pytest.param([Reader(0, 3, refused=2), Reader(0, 5, refused=1)], 0, 9, id="each refused some"),
        pytest.param([Reader(1, 3)], 0, 9, id="it came later, without a snapshot"),
        pytest.param([Reader(1, 3, complete=True)], 0, 6, id="it came later, and has the snapshot"),
        pytest.param([Reader(1, 3)], 1, 6, id="it was sent all that is not forgotten"),
    ],
)
def test_changes_that_every_broker_was_sent_are_forgotten_unless_none_shows_them(
    readers: list[Reader], forgotten: int, left: int
) -> None:
    propagation = read_by(readers, forgotten=forgotten)
    propagation.prune()
    assert len(propagation.feed) == left


def test_a_broker_that_returns_shows_a_deletion_after_it_was_sent_that_beside_its_snapshot() -> None:
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
def test_followers_are_held_until_their_leader_acknowledged_and_leaders_are_not() -> None:
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
def test_a_replica_is_unstopped_until_its_stop_replica_is_acknowledged() -> None:
    propagation = propagation_of(make_cluster(P((1, 2), 1), P((1, 2), 1)))
    pending = propagation.pending[2]
    pending.add_stop(0, delete=True)
    pending.add_stop(1, delete=False)
    assert [propagation.unstopped(rows) for rows in ([0, 1, 5], [1], [5], [])] == [{0, 1}, {1}, set(), set()]
    assert pending.take_stop(1) == {0: True}
    assert propagation.unstopped([0, 1]) == {0, 1}, "one is under way, one waits"
    pending.stopping = {}
    assert propagation.unstopped([0, 1]) == {1}
    propagation.remove(2)
    assert propagation.unstopped([0, 1]) == set(), "its broker is gone"


@pytest.mark.seed("S4-78")
def test_the_end_of_rows_waits_for_their_stop_replica_and_for_their_last_change() -> None:
    propagation = propagation_of(make_cluster(P((1, 2), 1), P((1, 2), 1)))
    propagation.pending[3].add_stop(0, delete=True)
    propagation.metadata_changed([1])
    for broker in (1, 3):
        propagation.pending[broker].position = propagation.feed.number
    assert [propagation.stopping(rows) for rows in ([0, 1], [1], [])] == [{3}, set(), set()]
    assert [propagation.not_ended(rows) for rows in ([0, 1], [0], [1], [])] == [{2, 3}, {3}, {2}, set()]
    propagation.pending[3].take_stop(MANY)
    assert propagation.stopping([0]) == set()


def test_a_log_that_is_needed_by_now_is_not_deleted() -> None:
    """A broker leads the partition again by an unclean election, or was sent the log of a recreated topic."""
    cluster = make_cluster(*[P((1, 2), 1)] * 4)
    propagation = propagation_of(cluster)
    entries = {0: True, 1: False}
    assert propagation.deletable(1, entries) == {1: False}
    assert propagation.deletable(2, entries) == entries
    assert propagation.superseded(2) == []
    topic_gone(cluster, "t")
    rows = cluster.observe_topic(topic("t", [(1, 2), (1, 3), (1, 2)], czxid=90))
    cluster.load_leadership(rows, [P(replicas, 1).leadership() for replicas in ((1, 2), (1, 3), (1, 2))])
    for i in range(4):
        propagation.pending[2].add_stop(i, delete=True)
    propagation.pending[2].add_lead(rows[2], is_new=True)
    assert propagation.superseded(2) == [0, 1, 2]
    every = dict.fromkeys(range(4), True)
    assert propagation.deletable(2, every) == {1: True, 2: True, 3: True}, "the log of row 0 was sent as its successor"


def test_metadata_is_withheld_until_a_broker_responded_which_ids_it_knows_or_a_topic_has_its_id() -> None:
    propagation = propagation_of(make_cluster(P((1, 2), 1)), 1, 2)
    one, two = propagation.pending.values()
    propagation.withhold([0, 1])
    encoded = propagation.withholding
    one.queried = True
    assert (set(propagation.withheld_from(one)), set(propagation.withheld_from(two))) == (set(), {0, 1})
    propagation.withhold([1])
    assert (propagation.withholding, one.queried) == (encoded, True), "nothing is new"
    propagation.withhold([2])
    assert (propagation.withholding > encoded, one.queried) == (True, False)
    encoded = propagation.withholding
    propagation.hand_out([0, 2, 7])
    assert (set(propagation.withheld_from(two)), propagation.withholding > encoded) == ({1}, True)
    encoded = propagation.withholding
    propagation.hand_out([0])
    assert propagation.withholding == encoded
