"""Plays many seeds. Each child plays some and ends, because nothing of a run is ever collected."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tests.simulation.kafka.checking import ERROR, Violation
from tests.simulation.kafka.shrink import Shrinker
from tests.simulation.regions.generate import generate
from tests.simulation.regions.mutations import MUTATIONS
from tests.simulation.regions.plan import RegionPlan, audible
from tests.simulation.regions.world import Outcome, play

T = TypeVar("T")

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
    batches = [seeds[at : at + SEEDS_PER_CHILD] for at in range(0, len(seeds), SEEDS_PER_CHILD)]
    with _pool(jobs) as pool:
        for batch in pool.imap_unordered(partial(_run_batch, mutation, journals), batches):
            for outcome in batch:
                totals.add(outcome)
            totals.elapsed_s = time.monotonic() - began_s
            progress(totals)
    return totals


def _pool(jobs: int) -> multiprocessing.pool.Pool:
    gc.collect()
    gc.freeze()
    return multiprocessing.get_context("fork").Pool(jobs, initializer=gc.disable, maxtasksperchild=1)


def _run_batch(mutation: str | None, journals: Path | None, seeds: Sequence[int]) -> list[Outcome]:
    plans = [generate(seed) if journals is None else audible(generate(seed)) for seed in seeds]
    return [play_planted(plan, mutation, journals=journals) for plan in plans]


def in_child(call: Callable[..., T], *args: object) -> T:
    """Returns the result of a call in a process of its own."""
    with _pool(1) as pool:
        return pool.apply(call, args)


def play_planted(
    plan: RegionPlan, mutation: str | None = None, keep: bool = False, journals: Path | None = None
) -> Outcome:
    """Plays a plan with a planted bug, if one is named; call it in a child."""
    with ExitStack() as stack:
        if mutation is not None:
            MUTATIONS[mutation](stack)
        return play(plan, keep=keep, journals=journals)


class RegionShrinker(Shrinker):
    """Shrinks the script; the cluster stays as it is."""

    def _cluster(self, plan: RegionPlan) -> RegionPlan:  # type: ignore[override]
        return plan


def shrunk(plan: RegionPlan, invariant: str, mutation: str | None = None) -> RegionPlan:
    """Returns the shortest plan that still violates the invariant."""
    return in_child(_shrunk, plan, invariant, mutation)


def _shrunk(plan: RegionPlan, invariant: str, mutation: str | None) -> RegionPlan:
    def fails(candidate: RegionPlan) -> bool:
        found = play_planted(candidate, mutation).violation
        return found is not None and found.invariant == invariant

    return RegionShrinker(fails).shrink(plan)  # type: ignore[arg-type, return-value]


class Caught(NamedTuple):
    """A planted bug that was caught: the number of seeds until then, the last of them, and its violation."""

    seeds: int
    seed: int
    violation: Violation


def catch_each(names: Sequence[str], seeds: int, jobs: int = 1) -> Iterator[tuple[str, Caught | None]]:
    """Yields planted bugs with the seeds until each was caught; None where it was not."""
    with _pool(jobs) as pool:
        yield from pool.imap_unordered(_catch, [(name, seeds) for name in names])


def _catch(wanted: tuple[str, int]) -> tuple[str, Caught | None]:
    """Plays seeds until one fails by the bug alone; an error shows nothing."""
    name, seeds = wanted
    for seed in range(seeds):
        violation = play_planted(generate(seed), name).violation
        if violation is None or violation.invariant == ERROR:
            continue
        if play_planted(generate(seed)).violation is None:
            return name, Caught(seed + 1, seed, violation)
    return name, None
