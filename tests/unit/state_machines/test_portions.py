"""Long work in portions: all items once and in order, and none of them too large, except an item that is so alone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from state_machines.portions import Portions, at_once, portions, weighed


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 8), st.integers(1, 20))
def test_portions_have_all_items_in_order_and_are_bounded(items: list[int], items_max: int, weight_max: int) -> None:
    plain = [list(one) for one in portions(items, items_max)]
    by_weight = [list(one) for one in weighed(items, int, items_max=items_max, weight_max=weight_max)]
    assert [item for some in plain for item in some] == items
    assert [item for some in by_weight for item in some] == items
    assert all(1 <= len(some) <= items_max for some in (*plain, *by_weight))
    assert all(sum(some) <= weight_max or len(some) == 1 for some in by_weight)
    for some, following in pairwise(by_weight):
        assert len(some) == items_max or sum(some) + following[0] > weight_max, "it was cut without need"


def test_work_in_portions_ends_with_its_result() -> None:
    done: list[int] = []

    def work() -> Portions[str]:
        for number in range(3):
            done.append(number)
            yield
        return "all"

    assert (at_once(work()), done) == ("all", [0, 1, 2])
