"""Plays many seeds on all cores, and shrinks the scripts of those that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tests.kit.simulation.seeds import Bench, batches, pool
from tests.kit.simulation.shrink import Shrinker
from tests.simulation.kafka.generate import generate
from tests.simulation.kafka.mutations import MUTATIONS
from tests.simulation.kafka.plan import Plan
from tests.simulation.kafka.totals import Totals
from tests.simulation.kafka.world import Outcome, play

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
    with pool(jobs) as children:
        for batch in children.imap_unordered(_run_batch, batches(seeds, SEEDS_PER_CHILD)):
            for outcome, actions, cpu_s in batch:
                totals.add(outcome, actions, cpu_s, compared=compares(outcome.seed))
            totals.elapsed_s = time.monotonic() - began_s
            progress(totals)
    return totals


def _run_batch(seeds: Sequence[int]) -> list[tuple[Outcome, int, float]]:
    return [_run_one(seed) for seed in seeds]


def _run_one(seed: int) -> tuple[Outcome, int, float]:
    plan, began_s = generate(seed), time.process_time()
    outcome = play(plan, compare=compares(seed))
    return outcome, len(plan.actions), time.process_time() - began_s


def play_planted(plan: Plan, mutation: str | None = None, keep: bool = False) -> Outcome:
    """Plays a plan with a planted bug, if one is named; call it in a child."""
    with MUTATIONS.planted(mutation):
        return play(plan, keep=keep, compare=compares(plan.seed))


class PlanShrinker(Shrinker[Plan]):
    """Shrinks the script, then the cluster."""

    def _cluster(self, plan: Plan) -> Plan:
        """Returns a simpler cluster, where that still fails."""
        simpler = [
            {"racks": ()},
            {"servers": 1},
            {"dead": ()},
            {"odd": ()},
            {"limits": None},
            {"daemons": 1},
            {"daemons": 2},
        ]
        for changes in simpler:
            candidate = replace(plan, **changes)  # type: ignore[arg-type]
            if candidate != plan and _fits(candidate) and self._still(candidate):
                plan = candidate
        return plan


def _fits(plan: Plan) -> bool:
    """Returns whether the script names only daemons of the cluster."""
    named = {
        int(str(action.words[0]).removeprefix("d"))
        for action in plan.actions
        if action.words and ("-daemon" in action.verb or str(action.words[0]).startswith("d"))
    }
    return all(number < plan.daemons for number in named)


BENCH: Final = Bench(generate, play_planted, PlanShrinker)
