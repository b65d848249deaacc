"""``python -m tests.simulation.kafka``: plays seeds, one seed, a story, or the planted bugs.

::

    --seeds 1000 --first 0        many seeds; a failing one is shrunk and printed as a story
    --seed 17 --verbose           one seed with everything that happened
    --story FILE                  a story, as the above prints it (those kept: tests/simulation/kafka/stories)
    --mutations [NAME ...]        planted bugs: a table of how many seeds it takes to catch each, and by what
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.kit.simulation.command import Progress, caught_by_name, parser_of, print_failed, print_run, print_table
from tests.kit.simulation.seeds import Caught, in_child
from tests.simulation.kafka.actions import known
from tests.simulation.kafka.generate import generate
from tests.simulation.kafka.mutations import MUTATIONS
from tests.simulation.kafka.plan import Plan, parse
from tests.simulation.kafka.runner import BENCH, play_planted, run_seeds

SHRUNK_MAX = 5
"""Failing seeds that are shrunk; the rest is only named."""
MUTATION_SEEDS = 300
"""Seeds that a planted bug may survive: all of them together take two cores about eight minutes at the most."""
SEEDS = 300
MODULE = "tests.simulation.kafka"
FIGURES = Path("build/simulation.json")
CAUGHT = Path("build/mutations.json")
STORIES = "tests/simulation/kafka/stories"


def main() -> int:
    """Plays the requested runs; returns exit code 1 where one fails."""
    given = parsed()
    if given.mutations is not None:
        names = given.mutations or [name for name in MUTATIONS if name not in MUTATIONS.apart]
        return _mutations(names, given.seeds or MUTATION_SEEDS, given.jobs, given.json or CAUGHT)
    if given.seed is not None or given.story is not None:
        return _one(
            generate(given.seed) if given.seed is not None else given.story, given.mutation, verbose=given.verbose
        )
    return _many(given.first, given.seeds or SEEDS, given.jobs, given.json or FIGURES)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line; unplayable arguments end with exit code 2 and the reason."""
    parser = parser_of(MODULE, __doc__)
    parser.add_argument("--seeds", type=_some, help=f"how many seeds, {SEEDS} if not given")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=_some, default=None, help="processes; one per core if not given")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--story", type=_story, metavar="FILE", help="a file with a story")
    parser.add_argument("--verbose", action="store_true", help="with everything that happened")
    parser.add_argument(
        "--mutations",
        nargs="*",
        choices=MUTATIONS,
        metavar="NAME",
        help="planted bugs, all that seeds catch if none is named",
    )
    parser.add_argument(
        "--mutation", choices=MUTATIONS, metavar="NAME", help="plants this bug while a seed or a story is played"
    )
    parser.add_argument("--json", type=Path, help="where the figures go as JSON")
    return parser.parse_args(arguments)


def _some(text: str) -> int:
    """Parses a number from 1 up."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 up")
    return int(text)


def _story(name: str) -> Plan:
    try:
        plan = parse(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{name} is no story as in {STORIES}: {error}") from None
    if strange := sorted({action.verb for action in plan.actions if not known(action.verb)}):
        raise argparse.ArgumentTypeError(f"{name} has verbs that the simulation does not know: {', '.join(strange)}")
    return plan


def _many(first: int, count: int, jobs: int | None, file: Path) -> int:
    progress = Progress()
    totals = run_seeds(first, count, jobs, lambda sums: progress.show(sums.seeds, sums.failed))
    print(totals.as_text())
    _write(file, totals.as_json())
    print_failed(MODULE, totals.failed, lambda seed, invariant: BENCH.shrunk(generate(seed), invariant), SHRUNK_MAX)
    if totals.rare:
        print(f"too rare: {', '.join(totals.rare)}")
    return 1 if totals.failed or (totals.rare and count >= SEEDS) else 0


def _one(plan: Plan, mutation: str | None, *, verbose: bool) -> int:
    outcome = in_child(play_planted, plan, mutation, verbose)
    figures = (
        f"{outcome.simulated_s:.1f} simulated seconds, {outcome.events} events, digest {outcome.digest}, "
        f"{dict(sorted(outcome.counts.items()))}"
    )
    return print_run(plan, plan.seed, outcome.violation, outcome.trace if verbose else None, figures)


def _mutations(names: list[str], seeds: int, jobs: int | None, file: Path) -> int:
    began_s = time.monotonic()
    found = caught_by_name(names, BENCH.catch_each(names, seeds, jobs))
    _write(file, json.dumps({name: _figures(found[name]) for name in names}, indent=2))
    return print_table(names, found, seeds, began_s)


def _figures(caught: Caught | None) -> dict[str, object]:
    if caught is None:
        return {"seeds": None}
    return {"seeds": caught.seeds, "caught_by": caught.violation.invariant, "what": caught.violation.what}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")
    print(f"the same as JSON: {file}")


if __name__ == "__main__":
    sys.exit(main())
