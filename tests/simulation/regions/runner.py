"""Plays many seeds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.kit.simulation.seeds import Bench, Violation, batches, pool
from tests.simulation.regions.generate import generate
from tests.simulation.regions.mutations import MUTATIONS
from tests.simulation.regions.plan import RegionPlan, audible
from tests.simulation.regions.world import Outcome, play

SEEDS_PER_CHILD: Final = 10


@dataclass
class Totals:
    """The sum of many runs. ``failed``: violations by seed."""

    seeds: int = 0
    elapsed_s: float = 0.0
    simulated_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[int, Violation] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Adds a run."""
        self.seeds += 1
        self.simulated_s += outcome.simulated_s
        self.counts.update(outcome.counts)
        if outcome.violation is not None:
            self.failed[outcome.seed] = outcome.violation

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return (
            f"{self.seeds} seeds, {len(self.failed)} failed, {self.simulated_s:.0f} simulated seconds in "
            f"{self.elapsed_s:.0f} s: {counts}"
        )


def run_seeds(
    first: int,
    count: int,
    jobs: int = 1,
    progress: Callable[[Totals], None] = lambda _: None,
    *,
    mutation: str | None = None,
    journals: Path | None = None,
) -> Totals:
    """Plays ``count`` seeds from ``first`` on in ``jobs`` processes, with a planted bug if one is named.

    ``journals``: a folder where all daemons leave their journals.
    """
    totals, began_s, seeds = Totals(), time.monotonic(), range(first, first + count)
    with pool(jobs) as children:
        for batch in children.imap_unordered(partial(_run_batch, mutation, journals), batches(seeds, SEEDS_PER_CHILD)):
            for outcome in batch:
                totals.add(outcome)
            totals.elapsed_s = time.monotonic() - began_s
            progress(totals)
    return totals


def _run_batch(mutation: str | None, journals: Path | None, seeds: Sequence[int]) -> list[Outcome]:
    plans = [generate(seed) if journals is None else audible(generate(seed)) for seed in seeds]
    return [play_planted(plan, mutation, journals=journals) for plan in plans]


def play_planted(
    plan: RegionPlan, mutation: str | None = None, keep: bool = False, journals: Path | None = None
) -> Outcome:
    """Plays a plan with a planted bug, if one is named; call it in a child."""
    with MUTATIONS.planted(mutation):
        return play(plan, keep=keep, journals=journals)


BENCH: Final = Bench(generate, play_planted)
