"""Pending requests of one broker, and the feed of changed rows against a dict."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Struct

from state_machines.propagation.pending_requests import PendingRequests
from state_machines.propagation.view import BLOCK_ROWS, Feed
from tests.kit.wire import quickly

MANY = 1_000_000


class Replica(Struct):
    """A replica as a broker knows it: the leader epoch that it was sent last, and whether it runs."""

    epoch: int = -1
    runs: bool = False


class Merging(RuleBasedStateMachine):
    """Sends one broker requests for three rows, at once and as pending ones, and compares where none is pending."""

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
        self.plain[i] = Replica(self.epochs[i], True)
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
            assert is_new == (i in self.owed_new)
            self.merged[i].epoch = self.epochs[i]
            self.merged[i].runs = True
            self.owed_new.discard(i)
        for i, delete in self.pending.take_stop(limit).items():
            assert delete == (i in self.owed_delete)
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
TestMerging.settings = settings(max_examples=50)


def test_leader_and_isr_after_a_stop_replica_waits_until_that_was_taken() -> None:
    pending = PendingRequests(0)
    pending.add_lead(4, is_new=True)
    pending.add_stop(4, delete=True)
    pending.add_lead(4, is_new=False)
    assert pending.take_lead(MANY) == {}
    assert pending.take_stop(MANY) == {4: True}
    assert pending.take_lead(MANY) == {4: False}
    assert pending.size == 0


def test_a_stop_replica_supersedes_leader_and_isr_behind_an_earlier_one() -> None:
    pending = PendingRequests(0)
    pending.add_stop(4, delete=True)
    pending.add_lead(4, is_new=True)
    pending.add_stop(4, delete=False)
    assert pending.take_stop(MANY) == {4: True}
    assert pending.size == 0


def pending_of(lead: dict[int, bool], stop: dict[int, bool]) -> PendingRequests:
    pending = PendingRequests(0)
    for i, delete in stop.items():
        pending.add_stop(i, delete=delete)
    for i, is_new in lead.items():
        pending.add_lead(i, is_new=is_new)
    return pending


LEAD = {1: False, 2: True, 3: False, 4: True}


@pytest.mark.parametrize(
    ("limit", "held", "taken"),
    [
        (MANY, set(), LEAD),
        (3, set(), {1: False, 2: True, 3: False}),
        (MANY, {2, 9}, {1: False, 3: False, 4: True}),
        (2, {1}, {2: True, 3: False}),
        (1, {1, 2, 3, 4}, {}),
    ],
)
def test_the_first_entries_that_are_not_held_are_taken_and_the_others_stay_in_order(
    limit: int, held: set[int], taken: dict[int, bool]
) -> None:
    pending = pending_of(LEAD, {})
    assert list(pending.take_lead(limit, held).items()) == list(taken.items())
    assert list(pending.lead.items()) == [(i, is_new) for i, is_new in LEAD.items() if i not in taken]


@pytest.mark.parametrize(("limit", "taken"), [(MANY, [2, 4]), (2, [2, 4]), (1, [2]), (0, [])])
def test_new_replicas_are_taken_before_others(limit: int, taken: list[int]) -> None:
    pending = pending_of(LEAD, {})
    assert pending.take_new(limit) == dict.fromkeys(taken, True)
    assert list(pending.lead) == [i for i in LEAD if i not in taken]


def test_stop_replica_entries_of_some_rows_free_what_waits_behind_them_alone() -> None:
    pending = pending_of({5: True, 6: False, 7: False}, {5: True, 6: False, 8: False})
    assert (pending.lead, pending.after, pending.size) == ({7: False}, {5: True, 6: False}, 6)
    assert pending.take_stops([5]) == pending.stopping == {5: True}
    assert (pending.lead, pending.after, pending.stop) == ({7: False, 5: True}, {6: False}, {6: False, 8: False})
    pending.sending = pending.take_lead(1)
    assert [i for i in range(4, 10) if pending.concerns(i)] == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("begun", "turn", "reach", "position", "complete"),
    [
        (True, 5, 3, 3, True),
        (False, 5, 3, 3, False),
        (True, 4, 3, 3, False),
        (True, 5, 4, 3, False),
        (True, 6, 3, 4, True),
    ],
)
def test_a_snapshot_is_complete_after_its_last_turn_and_the_changes_before_it(
    begun: bool, turn: int, reach: int, position: int, complete: bool
) -> None:
    pending = PendingRequests(0)
    pending.begun, pending.turn, pending.turn_end = begun, turn, 5
    pending.reach, pending.position = reach, position
    assert pending.complete == complete


SPANS = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 1_500)), min_size=1, max_size=6)
"""Rows that change together, by the first and their number: more in all than a page of the feed has."""


@quickly
@given(
    spans=SPANS,
    forgotten=st.lists(st.floats(0, 1), max_size=2),
    position=st.floats(0, 1),
    until=st.floats(0, 1),
    limit=st.sampled_from([1, 7, 1_000, MANY]),
)
@example(spans=[(0, 1_500), (0, 1_400)], forgotten=[0.4], position=0.3, until=1.0, limit=1_000)
@example(spans=[(0, 1_100), (0, 1_100), (0, 1_100)], forgotten=[], position=0.0, until=1.0, limit=MANY)
def test_a_reader_gets_every_row_that_changed_since_its_position_once_in_order(
    spans: list[tuple[int, int]], forgotten: list[float], position: float, until: float, limit: int
) -> None:
    feed, last = Feed(), dict[int, int]()
    for n, (first, count) in enumerate(spans):
        feed.changed(range(first, first + count))
        for i in range(first, first + count):
            last.pop(i, None)
            last[i] = feed.number - count + 1 + i - first
        if n < len(forgotten):
            to = int(forgotten[n] * feed.number)
            feed.forget(to)
            last = {i: number for i, number in last.items() if number > to}
    assert feed.number == sum(count for _, count in spans)
    assert len(feed) == len(last)
    start, end = (int(share * feed.number) for share in (position, until))
    wanted = [i for i, number in last.items() if start < number <= end]
    reached = last[wanted[limit - 1]] if len(wanted) > limit else max(start, end)
    assert feed.since(start, end, limit) == (wanted[:limit], reached)
    assert feed.backlog(start) == sum(number > start for number in last.values())
    assert all(feed.number_of(i) == last.get(i, 0) for i in range(0, 4_500, 7))


def test_a_row_that_changes_again_is_read_once_at_its_last_place() -> None:
    feed = Feed()
    feed.changed([1, 2, 3])
    feed.changed([1])
    assert feed.since(0, 4, MANY) == ([2, 3, 1], 4)
    assert feed.since(0, 3, MANY) == ([2, 3], 3)
    assert feed.since(2, 1, MANY) == ([], 2)
    assert feed.since(3, 4, MANY) == ([1], 4)


def test_a_position_that_was_forgotten_already_forgets_nothing_more() -> None:
    feed = Feed()
    feed.changed(range(10))
    for position in (6, 3, 6):
        feed.forget(position)
        assert (len(feed), feed.forgotten) == (4, 6)


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


def test_changes_in_other_blocks_leave_encoded_rows_valid() -> None:
    feed = Feed()
    feed.changed([5 * BLOCK_ROWS])
    assert feed.last_change(0, 5 * BLOCK_ROWS) == 0
    assert feed.last_change(0, 5 * BLOCK_ROWS + 1) == 1
