"""Policies of growing and shrinking regions, over the product of what can be: causes, bars, and a factor between."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.regions.growth import (
    HYSTERESIS,
    OPTIONS,
    Bar,
    Cause,
    Policy,
    Seen,
    bar_of,
    is_mergeable,
    option_problem,
    policy_of,
    split_bar,
    split_cause,
)

BOOLS = (False, True)
LARGE, SMALL = 1_000, 10
POLICIES = [Policy(*one, 100) for one in product((0, LARGE), (0, 50), (0, 400, LARGE))]
SIZES: tuple[int | None, ...] = (None, 0, SMALL, LARGE - 1, LARGE, 5 * LARGE)
RATES: tuple[float | None, ...] = (None, 0.0, 12.5, 49.9, 50.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_region_is_split_from_a_size_or_a_number_of_requests_on(policy: Policy) -> None:
    for size, rate in product(SIZES, RATES):
        by_size = policy.split_size_bytes != 0 and size is not None and size >= LARGE
        by_load = policy.split_requests_per_s != 0 and rate is not None and rate >= 50
        expected = Cause.SIZE if by_size else Cause.LOAD if by_load else None
        assert split_cause(Seen(size, rate), policy) is expected
        assert policy.splits or expected is None


BARS = ("moves", "rests", "inherits", "pinned")
ORDER = (Bar.NOT_OPEN, Bar.MOVES, Bar.RESTS, Bar.INHERITS, Bar.PINNED, Bar.NO_KEY, Bar.REGIONS)


def test_the_first_bar_that_holds_keeps_a_region_from_being_split() -> None:
    for holds in product(BOOLS, repeat=len(ORDER)):
        closed, *others, no_key, many = holds
        seen = Seen(is_open=not closed, names_keys=not no_key, **dict(zip(BARS, others, strict=True)))
        policy = Policy(LARGE, regions_max=100)
        expected = next((bar for one, bar in zip(holds, ORDER, strict=True) if one), None)
        assert split_bar(seen, 100 if many else 99, policy) is expected
        assert bar_of(seen) is (expected if expected not in (Bar.NO_KEY, Bar.REGIONS) else None), "merges name no key"


@pytest.mark.parametrize("policy", POLICIES)
def test_two_neighbours_are_merged_where_what_they_have_is_known_and_small(policy: Policy) -> None:
    for one, other in product(product(SIZES, RATES), repeat=2):
        check_merge(policy, one, other)


def check_merge(policy: Policy, one: tuple[int | None, float | None], other: tuple[int | None, float | None]) -> None:
    merged = is_mergeable(Seen(*one), Seen(*other), policy)
    assert merged is is_mergeable(Seen(*other), Seen(*one), policy)
    if merged:
        assert one[0] is not None
        assert other[0] is not None
        heir = Seen(one[0] + other[0], None if one[1] is None or other[1] is None else one[1] + other[1])
        assert heir.size_bytes is not None
        assert heir.size_bytes <= policy.merge_size_bytes
        assert split_cause(heir, policy) is None, "what was merged is not split"
    elif policy.merged_bytes_max and not policy.split_requests_per_s:
        assert one[0] is None or other[0] is None or one[0] + other[0] > policy.merged_bytes_max
    else:
        assert not policy.merged_bytes_max or policy.split_requests_per_s


@given(st.integers(1, 1 << 50), st.integers(0, 1 << 50), st.integers(0, 1 << 51), st.floats(0, 1))
def test_what_was_split_is_not_merged_while_its_size_lasts(split: int, merge: int, more: int, part: float) -> None:
    policy = Policy(split, 0, merge, 100)
    size = split + more
    assert split_cause(Seen(size), policy) is Cause.SIZE
    left = int(size * part)
    assert not is_mergeable(Seen(left), Seen(size - left), policy)
    assert policy.merged_bytes_max * HYSTERESIS <= split


def test_options_of_a_table_go_before_the_settings() -> None:
    default = Policy(LARGE, 50, 10, 7)
    assert policy_of({"ttl": "60"}, default) == default
    given = {"regent.split_size_bytes": "0", "regent.split_requests_per_s": "9", "regent.merge_size_bytes": "3"}
    assert policy_of(given, default) == Policy(0, 9, 3, 7)
    assert not policy_of({"regent.split_size_bytes": "0"}, Policy())


@pytest.mark.parametrize("value", ["", "-1", "ten", "1e3", "٣", "1125899906842625", "9" * 40, " 5"])
def test_an_option_without_a_meaning_is_refused_and_where_it_is_stored_nothing_is_done(value: str) -> None:
    options = {"regent.split_size_bytes": value}
    why = option_problem(options)
    assert why is not None
    assert repr(value[:80]) in why
    assert "expected a whole number from 0 to 1125899906842624" in why
    assert policy_of(options, Policy(LARGE, 50)) == Policy(0, 50)


def test_names_of_options_that_are_the_services_are_not_judged() -> None:
    assert option_problem({"ttl": "x", "regentx": "y", **{f"regent.{one}": "5" for one in OPTIONS}}) is None
    why = option_problem({"regent.split_size": "5"})
    assert why is not None
    assert "'regent.split_size'" in why
    assert "regent.split_size_bytes" in why


def test_no_policy_says_no() -> None:
    assert not Policy()
    assert not Policy(0, 0, 0, 5)
    assert Policy(1)
    assert Policy(0, 1)
    assert Policy(0, 0, 1)
    assert not Policy(0, 0, 0)
