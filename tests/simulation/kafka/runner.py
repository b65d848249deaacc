"""Plays many seeds on all cores. Each child plays some and ends, because nothing of a run is ever collected."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, TypeVar

from tests.simulation.kafka.checking import ERROR, Violation
from tests.simulation.kafka.generate import generate
from tests.simulation.kafka.plan import Plan
from tests.simulation.kafka.shrink import Shrinker
from tests.simulation.kafka.totals import Totals
from tests.simulation.kafka.world import Outcome, play

T = TypeVar("T")

SEEDS_PER_CHILD: Final = 5
COMPARED_EVERY: Final = 4
"""Merged and unmerged requests are compared in one seed of so many."""


def compares(seed: int) -> bool:
    """Returns whether a seed compares merged with unmerged requests."""
    return seed % COMPARED_EVERY == 0


def run_seeds(
    first: int, count: int, jobs: int | None = None, progress: Callable[[Totals], None] = lambda _: None
) -> Totals:
    """Plays ``count`` seeds from ``first`` on; ``jobs`` None: one process per core."""
    totals, began_s, seeds = Totals(), time.monotonic(), range(first, first + count)
    batches = [seeds[at : at + SEEDS_PER_CHILD] for at in range(0, len(seeds), SEEDS_PER_CHILD)]
    with _pool(jobs) as pool:
        for batch in pool.imap_unordered(_run_batch, batches):
            for outcome, actions, cpu_s in batch:
                totals.add(outcome, actions, cpu_s, compared=compares(outcome.seed))
            totals.elapsed_s = time.monotonic() - began_s
            progress(totals)
    return totals


def _pool(jobs: int | None) -> multiprocessing.pool.Pool:
    gc.collect()
    gc.freeze()
    return multiprocessing.get_context("fork").Pool(jobs or os.cpu_count() or 1, maxtasksperchild=1)


def _run_batch(seeds: Sequence[int]) -> list[tuple[Outcome, int, float]]:
    return [_run_one(seed) for seed in seeds]


def _run_one(seed: int) -> tuple[Outcome, int, float]:
    plan, began_s = generate(seed), time.process_time()
    outcome = play(plan, compare=compares(seed))
    return outcome, len(plan.actions), time.process_time() - began_s


def in_child(call: Callable[..., T], *args: object) -> T:
    """Returns the result of a call in a process of its own."""
    with _pool(1) as pool:
        return pool.apply(call, args)


def play_planted(plan: Plan, mutation: str | None = None, keep: bool = False) -> Outcome:
    """Plays a plan with a planted bug, if one is named; call it in a child."""
    with planted(mutation):
        return play(plan, keep=keep, compare=compares(plan.seed))


def shrunk(plan: Plan, invariant: str, mutation: str | None = None) -> Plan:
    """Returns the shortest plan that still violates the invariant."""
    return in_child(_shrunk, plan, invariant, mutation)


def _shrunk(plan: Plan, invariant: str, mutation: str | None) -> Plan:
    def fails(candidate: Plan) -> bool:
        found = play_planted(candidate, mutation).violation
        return found is not None and found.invariant == invariant

    return Shrinker(fails).shrink(plan)


def planted(mutation: str | None) -> ExitStack:
    """Plants a bug, if one is named."""
    from tests.simulation.kafka.mutations import MUTATIONS

    stack = ExitStack()
    if mutation is not None:
        MUTATIONS[mutation](stack)
    return stack


class Caught(NamedTuple):
    """A planted bug that was caught: the number of seeds until then, the last of them, and its violation."""

    seeds: int
    seed: int
    violation: Violation


def catch_each(names: Sequence[str], seeds: int, jobs: int | None = None) -> Iterator[tuple[str, Caught | None]]:
    """Yields planted bugs with the seeds until each was caught; None where it was not."""
    with _pool(jobs) as pool:
        yield from pool.imap_unordered(_catch, [(name, seeds) for name in names])


def _catch(wanted: tuple[str, int]) -> tuple[str, Caught | None]:
    """Plays seeds until one fails by the bug alone.

    A seed that also fails without the bug shows nothing. An error shows nothing either: the bug may not fit any more.
    """
    name, seeds = wanted
    for seed in range(seeds):
        violation = play_planted(generate(seed), name).violation
        if violation is None or violation.invariant == ERROR:
            continue
        if play_planted(generate(seed)).violation is None:
            return name, Caught(seed + 1, seed, violation)
    return name, None
