"""Keeps rows by their assignment, as a plain list of assignments does, after any moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from state_machines.model.hosting import LEFT_SHARE, Hosting, Placed
from state_machines.model.types import Assignment

PLACES = [
    Assignment((1, 2)),
    Assignment((2, 1)),
    Assignment((3,)),
    Assignment((2, 3, 1), (3,), (1,)),
    Assignment((2, 3, 1), (1,), (3,)),
]
ROWS = 40


@given(
    first=st.lists(st.integers(0, 1), min_size=ROWS, max_size=ROWS),
    moves=st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, len(PLACES) - 1)), max_size=80),
)
def test_rows_are_listed_under_their_present_assignment(first: list[int], moves: list[tuple[int, int]]) -> None:
    hosting, naive = Hosting(), [PLACES[at] for at in first]
    for i, assignment in enumerate(naive):
        hosting.placed(assignment).rows.append(i)
    for i, at in moves:
        if naive[i] != PLACES[at]:
            after = Assignment(PLACES[at].replicas, PLACES[at].adding, PLACES[at].removing)
            given_to = hosting.move(i, naive[i], after)
            naive[i] = after
            assert given_to is hosting.placed(PLACES[at]).assignment, "equal assignments are one object"
    for broker in range(1, 5):
        assert sorted(hosting.rows_on(broker)) == [i for i, a in enumerate(naive) if broker in a.replicas]
    assert hosting.any_moving == any(a.moving for a in naive), "an assignment that no row has is forgotten"


def test_a_row_that_left_and_returned_is_listed_once() -> None:
    placed = Placed(PLACES[0])
    placed.rows.extend(range(10))
    for _ in range(3):
        placed.leave(7)
        assert (list(placed), len(placed)) == ([0, 1, 2, 3, 4, 5, 6, 8, 9], 9)
        placed.enter(7)
        assert (list(placed), len(placed)) == (list(range(10)), 10)
    assert len(placed.rows) == 10, "its entry stayed"


def test_entries_of_rows_that_left_are_bounded() -> None:
    placed = Placed(PLACES[0])
    placed.rows.extend(range(1000))
    for i in range(900):
        placed.leave(i)
        assert len(placed.rows) <= len(placed) * LEFT_SHARE / (LEFT_SHARE - 1)
    assert list(placed) == list(range(900, 1000))
