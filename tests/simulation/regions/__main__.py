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

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.kit.simulation.command import Progress, caught_by_name, parser_of, print_failed, print_run, print_table
from tests.kit.simulation.seeds import Caught, Violation, in_child
from tests.simulation.regions.generate import generate
from tests.simulation.regions.journals import audited, cluster_of, spark_here
from tests.simulation.regions.mutations import MUTATIONS
from tests.simulation.regions.plan import RegionPlan, parse
from tests.simulation.regions.runner import BENCH, Totals, play_planted, run_seeds

AUDITED_SEEDS: Final = 20
"""Seeds that are played with a bug that the audit alone can see."""
MODULE = "tests.simulation.regions"
AUDITED_TOGETHER: Final = 500
"""Seeds whose journals are audited in one run: each is a folder of its own in what the pipeline writes."""
SHRUNK_MAX: Final = 3
"""Failing seeds that are shrunk; the rest is only named."""
SEEDS: Final = 300


def main() -> int:
    """Plays the requested runs; returns exit code 1 where one fails."""
    parser = parser_of(MODULE, __doc__)
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
    progress = Progress()

    def show(totals: Totals) -> None:
        progress.show(totals.seeds, totals.failed)

    totals = run_seeds(seeds.start, len(seeds), jobs, show, mutation=mutation, journals=journals)
    print(totals)
    again = MODULE + (f" --mutation {mutation}" if mutation else "")
    print_failed(
        again, totals.failed, lambda seed, invariant: BENCH.shrunk(generate(seed), invariant, mutation), SHRUNK_MAX
    )
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
    figures = f"{outcome.simulated_s:.1f} simulated seconds, {outcome.handles} events, digest {outcome.digest}"
    return print_run(plan, plan.seed, outcome.violation, outcome.trace if verbose else None, figures)


def _mutations(wanted: list[str], seeds: int, jobs: int, *, audits: bool) -> int:
    began_s = time.monotonic()
    names = [name for name in wanted if audits or name not in MUTATIONS.apart]
    alone = [name for name in names if name not in MUTATIONS.apart]
    found = caught_by_name(names, BENCH.catch_each(alone, seeds, jobs))
    found |= {name: _caught_by_audit(name, jobs) for name in names if name in MUTATIONS.apart}
    return print_table(names, found, seeds, began_s)


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
