"""What a daemon remembers of removals: bounded, the oldest go first, at a cost that does not grow with their number."""

from __future__ import annotations

from controller.procedures.parking import REMOVED_MAX, Removed


def test_the_oldest_families_are_forgotten_and_the_latest_one_is_whole() -> None:
    removed = Removed()
    large = list(range(1, REMOVED_MAX + 1))
    removed.note(large, large)
    assert removed.family(7) is large
    removed.note([REMOVED_MAX + 1], [REMOVED_MAX + 1])
    assert removed.family(1) == []
    assert removed.family(2) is large
    assert removed.family(REMOVED_MAX + 1) == [REMOVED_MAX + 1]


def test_a_family_larger_than_the_bound_is_remembered_alone() -> None:
    removed = Removed()
    removed.note([1], [1])
    larger = list(range(2, 2 * REMOVED_MAX))
    removed.note(larger, larger)
    assert removed.family(1) == []
    assert removed.family(larger[-1]) is larger
    removed.note([1_000_000], [1_000_000])
    assert removed.family(1_000_000) == [1_000_000]
