"""The goals of the cases, their sizes, and how a row is made of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.results import Goal, Row, Sample

ROUNDS: Final = 3
LAG_MS_MAX: Final = 250
LAG: Final = Goal(most=LAG_MS_MAX)
LAG_WHAT: Final = "longest stall of the loop meanwhile"
GOALS: Final = {
    "A1": Goal(ratio=3),
    "A1r": Goal(ratio=10),
    "A1z": Goal(ratio=10),
    "A1z failover": Goal(most=2.0),
    "A1z failover done": Goal(most=2.0),
    "A2": Goal(most=2.0),
    "A3 100,000": Goal(most=2.0),
    "A3 1,000,000": Goal(most=15.0),
    "A4": Goal(most=600.0),
    "A5 100,000": Goal(most=20.0),
    "A6 100,000": Goal(most=34.0),
    "AF": Goal(most=2.0),
    "B1": Goal(ratio=4),
    "B1 cost": Goal(ratio=1),
    "B1 HBase": Goal(ratio=1),
    "B1 lag": Goal(most=50.0),
    "B2": Goal(most=60.0),
    "B2 twice": Goal(most=5.0),
    "RP1": Goal(most=5.0),
    "RP1 lag": Goal(most=50),
    "SP1 0": Goal(most=0.5),
    "SP1 rate 0": Goal(least=500),
}


class Shape(NamedTuple):
    """Regions and the servers that they are assigned to."""

    regions: int
    servers: int

    def __str__(self) -> str:
        return f"{self.regions:,} on {self.servers}"


def row(case: str, size: object, what: str, unit: str, values: Sequence[float], *, higher: bool = False) -> Row:
    """Returns a row of ours alone. ``higher``: whether more is better."""
    return Row(
        case, str(size), what, unit, Sample.of(values), goal=goal(case, size), higher_is_better=higher, peer_is="-"
    )


def goal(case: str, size: object) -> Goal:
    """Returns the goal of a case; some have one for one number of regions."""
    if case.endswith(" lag"):
        return GOALS.get(case, LAG)
    return GOALS.get(case) or GOALS.get(f"{case} {str(size).partition(' ')[0]}", Goal())


def lag(case: str, size: object, values_ms: Sequence[float]) -> Row:
    """Returns the row of the loop's longest stalls."""
    return row(f"{case} lag", size, LAG_WHAT, "ms", values_ms)


def disk() -> Path:
    """Returns a folder on the project's disk, because temporary folders may be in memory."""
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    return folder
