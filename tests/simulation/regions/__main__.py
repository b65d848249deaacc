"""``python -m tests.simulation.regions``: plays seeds, one seed, a story, or the planted bugs.

::

    --seeds 1000 --first 0        many seeds; a failing one is shrunk and printed as a story
    --seed 17 --verbose           one seed with everything that happened
    --story FILE                  a story, as the above prints it
    --seeds 1000 --audit          also audits the journals that the daemons leave (needs PySpark and Java)
    --mutations [NAME ...]        planted bugs: how many seeds it takes to catch each, and by what
    --mutations --audit           also those that the audit alone can see
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.simulation.kafka.checking import Violation
from tests.simulation.regions.generate import generate
from tests.simulation.regions.journals import audited, cluster_of, spark_here
from tests.simulation.regions.mutations import AUDITED, MUTATIONS
from tests.simulation.regions.plan import RegionPlan, parse
from tests.simulation.regions.runner import Caught, Totals, catch_each, in_child, play_planted, run_seeds, shrunk

AUDITED_SEEDS: Final = 20
"""Seeds that are played with a bug that the audit alone can see."""
AUDITED_TOGETHER: Final = 500
"""Seeds whose journals are audited in one run: each is a folder of its own in what the pipeline writes."""
SHRUNK_MAX: Final = 3
"""Failing seeds that are shrunk; the rest is only named."""
SEEDS: Final = 300
NAME_WIDTH, WHY_WIDTH = 40, 110


def main() -> int:
    """Plays the requested runs; returns exit code 1 where one fails."""
    summary, _, usage = (__doc__ or "").partition("::")
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.regions",
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
    parser.add_argument("--audit", action="store_true", help="audits the journals with the pipeline's rules")
    parser.add_argument(
        "--journals", type=Path, metavar="FOLDER", help="a new folder where the journals stay, without --audit"
    )
    given = parser.parse_args()
    if given.mutations is not None:
        return _mutations(given.mutations or list(MUTATIONS), given.seeds, given.jobs, audits=given.audit)
    if given.seed is not None or given.story is not None:
        plan = generate(given.seed) if given.story is None else parse(given.story.read_text(encoding="utf-8"))
        return _one(plan, given.mutation, verbose=given.verbose)
    seeds = range(given.first, given.first + given.seeds)
    if not given.audit:
        return 1 if _many(seeds, given.jobs, given.mutation, given.journals) else 0
    parts = [seeds[at : at + AUDITED_TOGETHER] for at in range(0, len(seeds), AUDITED_TOGETHER)]
    return max(_many_audited(part, given.jobs, given.mutation) for part in parts)


def _many(seeds: range, jobs: int, mutation: str | None, journals: Path | None) -> bool:
    """Plays seeds; returns whether one failed."""
    printed: set[int] = set()

    def progress(totals: Totals) -> None:
        for seed in totals.failed.keys() - printed:
            printed.add(seed)
            print(f"seed {seed} failed: {totals.failed[seed]}", file=sys.stderr, flush=True)

    totals = run_seeds(seeds.start, len(seeds), jobs, progress, mutation=mutation, journals=journals)
    print(totals)
    for seed, violation in sorted(totals.failed.items())[:SHRUNK_MAX]:
        print(f"\nseed {seed} failed: {violation}")
        print(shrunk(generate(seed), violation.invariant, mutation))
    return bool(totals.failed)


def _many_audited(seeds: range, jobs: int, mutation: str | None) -> int:
    """Plays seeds, and audits their journals; returns exit code 1 where one fails."""
    with tempfile.TemporaryDirectory() as folder:
        journals = Path(folder, "journals")
        failed = _many(seeds, jobs, mutation, journals)
        broken = _audited(journals, Path(folder, "bronze"))
    return 1 if failed or broken else 0


def _audited(journals: Path, into: Path) -> dict[str, list[str]]:
    """Audits journals, and prints the violations; returns them by the seed's cluster."""
    if (spark := spark_here()) is None:
        return {}
    broken = audited(spark, journals, into)
    for cluster, found in sorted(broken.items()):
        print(f"{cluster}, {len(found)} violations in its journals: {found[0]}", flush=True)
    print(f"{len(broken)} seeds with violations in their journals")
    return broken


def _one(plan: RegionPlan, mutation: str | None, *, verbose: bool) -> int:
    outcome = in_child(play_planted, plan, mutation, verbose)
    if verbose:
        print(plan)
        print("\n".join(outcome.trace))
    print(f"seed {plan.seed}: {outcome.violation or 'clean'}")
    print(f"{outcome.simulated_s:.1f} simulated seconds, {outcome.handles} events, digest {outcome.digest}")
    return 0 if outcome.violation is None else 1


def _mutations(wanted: list[str], seeds: int, jobs: int, *, audits: bool) -> int:
    began_s, found = time.monotonic(), dict[str, Caught | None]()
    names = [name for name in wanted if audits or name not in AUDITED]
    for name, caught in catch_each([name for name in names if name not in AUDITED], seeds, jobs):
        found[name] = caught
        print(f"{len(found)} of {len(names)}: {name}", file=sys.stderr, flush=True)
    found |= {name: _caught_by_audit(name, jobs) for name in names if name in AUDITED}
    print(f"{'planted bug':{NAME_WIDTH}} {'seeds':>5}  caught by")
    for name in names:
        caught = found[name]
        taken, why = (caught.seeds, str(caught.violation)) if caught else ("none", f"NOTHING in {seeds} seeds")
        print(f"{name:{NAME_WIDTH}} {taken:>5}  {why[:WHY_WIDTH]}")
    survivors = [name for name in names if found[name] is None]
    print(f"{len(names) - len(survivors)} of {len(names)} caught in {time.monotonic() - began_s:.0f} s")
    return 1 if survivors else 0


def _caught_by_audit(name: str, jobs: int) -> Caught | None:
    """Plays seeds with a bug, and has all their journals audited together."""
    with tempfile.TemporaryDirectory() as folder:
        journals = Path(folder, "journals")
        run_seeds(0, AUDITED_SEEDS, jobs, mutation=name, journals=journals)
        broken = _audited(journals, Path(folder, "bronze"))
    for seed in range(AUDITED_SEEDS):
        if found := broken.get(cluster_of(seed)):
            invariant, _, what = found[0].partition(": ")
            return Caught(seed + 1, seed, Violation(invariant, what))
    return None


if __name__ == "__main__":
    sys.exit(main())
