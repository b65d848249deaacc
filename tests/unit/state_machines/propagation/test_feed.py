"""The feed of changed rows against a dict: what a reader gets, what is counted, and what is forgotten."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from state_machines.propagation.feed import BLOCK_ROWS, Feed
from tests.kit.wire_kit import quickly

MANY = 1_000_000
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
