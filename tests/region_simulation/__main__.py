"""``python -m tests.region_simulation``: plays seeds, one seed, a story, or the planted bugs.

::

    --seeds 1000 --first 0        many seeds; a failing one is shrunk and printed as a story
    --seed 17 --verbose           one seed with everything that happened
    --story FILE                  a story, as the above prints it
    --mutations [NAME ...]        planted bugs: how many seeds it takes to catch each, and by what
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from tests.region_simulation.generate import generate
from tests.region_simulation.mutations import MUTATIONS
from tests.region_simulation.plan import RegionPlan, parse
from tests.region_simulation.runner import Caught, Totals, catch_each, in_child, play_planted, run_seeds, shrunk

SHRUNK_MAX: Final = 3
"""Failing seeds that are shrunk; the rest is only named."""
SEEDS: Final = 300
NAME_WIDTH, WHY_WIDTH = 40, 110


def main() -> int:
    """Plays the requested runs; returns exit code 1 where one fails."""
    summary, _, usage = (__doc__ or "").partition("::")
    parser = argparse.ArgumentParser(
        prog="python -m tests.region_simulation",
        description=summary,
        epilog=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many seeds, {SEEDS} if not given")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes, 1 if not given")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--story", type=Path, metavar="FILE", help="a file with a story")
    parser.add_argument("--verbose", action="store_true", help="with everything that happened")
    parser.add_argument("--mutations", nargs="*", choices=MUTATIONS, metavar="NAME", help="planted bugs, all if empty")
    parser.add_argument("--mutation", choices=MUTATIONS, metavar="NAME", help="plants this bug in a seed or a story")
    given = parser.parse_args()
    if given.mutations is not None:
        return _mutations(given.mutations or list(MUTATIONS), given.seeds, given.jobs)
    if given.seed is not None or given.story is not None:
        plan = generate(given.seed) if given.story is None else parse(given.story.read_text(encoding="utf-8"))
        return _one(plan, given.mutation, verbose=given.verbose)
    return _many(given.first, given.seeds, given.jobs)


def _many(first: int, count: int, jobs: int) -> int:
    printed: set[int] = set()

    def progress(totals: Totals) -> None:
        for seed in totals.failed.keys() - printed:
            printed.add(seed)
            print(f"seed {seed} failed: {totals.failed[seed]}", file=sys.stderr, flush=True)

    totals = run_seeds(first, count, jobs, progress)
    print(totals)
    for seed, violation in sorted(totals.failed.items())[:SHRUNK_MAX]:
        print(f"\nseed {seed} failed: {violation}")
        print(shrunk(generate(seed), violation.invariant))
    return 1 if totals.failed else 0


def _one(plan: RegionPlan, mutation: str | None, *, verbose: bool) -> int:
    outcome = in_child(play_planted, plan, mutation, verbose)
    if verbose:
        print(plan)
        print("\n".join(outcome.trace))
    print(f"seed {plan.seed}: {outcome.violation or 'clean'}")
    print(f"{outcome.simulated_s:.1f} simulated seconds, {outcome.handles} events, digest {outcome.digest}")
    return 0 if outcome.violation is None else 1


def _mutations(names: list[str], seeds: int, jobs: int) -> int:
    began_s, found = time.monotonic(), dict[str, Caught | None]()
    for name, caught in catch_each(names, seeds, jobs):
        found[name] = caught
        print(f"{len(found)} of {len(names)}: {name}", file=sys.stderr, flush=True)
    print(f"{'planted bug':{NAME_WIDTH}} {'seeds':>5}  caught by")
    for name in names:
        caught = found[name]
        taken, why = (caught.seeds, str(caught.violation)) if caught else ("none", f"NOTHING in {seeds} seeds")
        print(f"{name:{NAME_WIDTH}} {taken:>5}  {why[:WHY_WIDTH]}")
    survivors = [name for name in names if found[name] is None]
    print(f"{len(names) - len(survivors)} of {len(names)} caught in {time.monotonic() - began_s:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
