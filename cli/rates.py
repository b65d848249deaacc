"""Reads rates of bytes from the command line: ``50000000``, ``50M``, or two bounds, ``1M..50M``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, NamedTuple

import typer

UNITS: Final = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
"""Factors of units, as regent shows bytes."""
BOUNDS: Final = ".."
RATE: Final = re.compile(r"(\d+)([kMG]?)")


class Rates(NamedTuple):
    """A rate in bytes per second; with ``high`` it changes between ``low`` and that."""

    low: int
    high: int = 0

    def request(self) -> dict[str, Any]:
        """Returns the fields of a request."""
        return {"rateBytesPerS": self.low} | ({"rateBytesPerSMax": self.high} if self.high else {})


def rates(text: str) -> Rates:
    """Parses a rate, or two bounds of one."""
    low, between, high = text.partition(BOUNDS)
    found = Rates(_bytes(low, text), _bytes(high, text) if between else 0)
    if between and not 0 < found.low <= found.high:
        raise typer.BadParameter(f"{text}: the first bound is at least 1, and at most the second one, as in 1M..50M")
    return found


def one_rate(text: str) -> int:
    """Parses a rate that has no bounds, at least 1."""
    found = RATE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise typer.BadParameter(f"{text}: give bytes per second, at least 1, as in 50000000 or 50M")
    return int(found[1]) * UNITS[found[2]]


def _bytes(text: str, whole: str) -> int:
    found = RATE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{whole}: give bytes per second as in 50000000 or 50M, or two bounds as in 1M..50M")
    return int(found[1]) * UNITS[found[2]]


def given(throttle: Rates | None) -> dict[str, Any]:
    """Returns the fields of a request; none where no throttle is given."""
    return {} if throttle is None else throttle.request()


TimeRate = Annotated[
    int | None,
    typer.Option(
        "--rate",
        parser=one_rate,
        metavar="RATE",
        help="Bytes per second of each broker and direction, as 50M, for the time.",
    ),
]
Throttle = Annotated[
    Rates | None,
    typer.Option(
        "--throttle",
        parser=rates,
        metavar="RATE",
        help="Bytes per second of each broker and direction, as 50M; 0: no throttle (default). "
        "1M..50M: between these bounds, by the cluster's health.",
    ),
]
