"""The goals of the cases of procedures, and the sizes of a long, a short and a tiny run."""

from __future__ import annotations

from typing import Final, NamedTuple

from benchmarks.results import Goal

WITHIN_TENTH: Final = Goal(ratio=1 / 1.1)
"""At most 10 % slower."""
WITHIN_TWENTIETH: Final = Goal(ratio=1 / 1.05)
NO_GOAL: Final = Goal()
GOALS: Final[dict[str, Goal]] = {
    "S1a": Goal(ratio=1, least=500_000),
    "S1p": Goal(ratio=1, least=500_000),
    "S2": Goal(ratio=0.7),
    "S2w": Goal(ratio=1),
    "S2r": Goal(ratio=5),
    "S3": Goal(least=300_000),
    "S4-100": Goal(least=15_000),
    "S4-400": Goal(least=20_000),
    "W1": WITHIN_TENTH,
    "F4": WITHIN_TWENTIETH,
    "T1c": WITHIN_TENTH,
    "R1c": WITHIN_TENTH,
    "P1c": WITHIN_TENTH,
}


def goal(case: str) -> Goal:
    """Returns the goal of a case, if it has one."""
    return GOALS.get(case, NO_GOAL)


class Sizes(NamedTuple):
    """Numbers of a run.

    ``operations`` and ``scheduler_rounds``: of the scheduler. ``writes``: procedures of each round of the stores;
    ``load``: records that are loaded. ``steps``: procedures of a round of the engine.
    """

    operations: int
    scheduler_rounds: int
    writes: tuple[int, ...]
    load: int
    steps: int


LONG: Final = Sizes(10_000_000, 3, (200_000, 200_000, 1_000_000), 1_000_000, 2_000)
SHORT: Final = Sizes(1_000_000, 1, (50_000,), 100_000, 500)
TINY: Final = Sizes(2_000, 1, (40,), 500, 20)
REGION_SHARE: Final = 10
"""HBase's region store writes one of this number, because it is slow."""
