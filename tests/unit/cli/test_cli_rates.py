"""Rates on the command line: numbers, units, two bounds, and what is none of these."""

from __future__ import annotations

import pytest
import typer

from cli.rates import Rates, given, rates


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", Rates(0)),
        ("50000000", Rates(50_000_000)),
        ("50M", Rates(50_000_000)),
        ("3k", Rates(3_000)),
        ("1G", Rates(1_000_000_000)),
        ("1M..50M", Rates(1_000_000, 50_000_000)),
        ("1M .. 1M", Rates(1_000_000, 1_000_000)),
    ],
)
def test_a_rate_is_a_number_with_a_unit_or_two_of_them(text: str, found: Rates) -> None:
    assert rates(text) == found


@pytest.mark.parametrize("text", ["", "-1", "5m", "1.5M", "50 MB", "..", "1M..", "..5M", "9M..1M", "0..5M", "1..2..3"])
def test_anything_else_is_refused_with_what_was_given(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"1M\.\.50M"):
        rates(text)


def test_a_request_has_an_upper_bound_only_where_one_is_given() -> None:
    assert (given(None), given(Rates(0)), given(Rates(1, 2))) == (
        {},
        {"rateBytesPerS": 0},
        {"rateBytesPerS": 1, "rateBytesPerSMax": 2},
    )
