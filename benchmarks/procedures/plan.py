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
    "S4x100": Goal(least=15_000),
    "S4x400": Goal(least=20_000),
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
    ``load``: records that are loaded. ``steps``: procedures of a round of the engine. ``failover_shape``: data set of
    failovers with ``records``; ``plan_shape``: that of a plan with ``moves``; ``rounds`` of both and of
    calls, on ``calls_shape``, which create ``topics`` and reassign ``moves`` partitions.
    """

    operations: int
    scheduler_rounds: int
    writes: tuple[int, ...]
    load: int
    steps: int
    failover_shape: str
    records: int
    plan_shape: str
    moves: int
    rounds: int
    calls_shape: str
    topics: int


LONG: Final = Sizes(
    operations=10_000_000,
    scheduler_rounds=3,
    writes=(200_000, 200_000, 1_000_000),
    load=1_000_000,
    steps=2_000,
    failover_shape="100kx20",
    records=10_000,
    plan_shape="10kx100",
    moves=5_000,
    rounds=6,
    calls_shape="10kx20",
    topics=200,
)
SHORT: Final = Sizes(1_000_000, 1, (50_000,), 100_000, 500, "20kx10", 2_000, "5kx10", 1_000, 2, "5kx10", 20)
TINY: Final = Sizes(2_000, 1, (40,), 500, 20, "500x5", 20, "500x5", 20, 1, "500x5", 2)
REGION_SHARE: Final = 10
"""HBase's region store writes one of this number, because it is slow."""
