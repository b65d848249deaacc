"""Compares the engine, the scheduler and the stores of procedures with HBase's own tools in the same run.

Runs all cases in about a quarter of an hour, with ``--short`` small ones in two minutes. ``--case S2`` runs one.
Progress goes to standard error, the table to standard output, figures to ``build/procedures.json``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.machine import machine
from benchmarks.procedures import calls, hbase, scheduler, steps, stores, terms
from benchmarks.procedures.plan import LONG, SHORT, Sizes
from benchmarks.results import PROCEDURES_RESULTS as RESULTS
from benchmarks.results import Row, save, show
from benchmarks.turns import Wrong
from testing.embedded.jars import JarsUnavailable
from testing.embedded.process import ProcessFailed

TITLE: Final = "procedures of regent beside HBase's own tools"
CASES: Final = ("S1", "S2", "S4", "W1", "F4", "T1c")

Measure = Callable[[Sizes, Path], Awaitable[list[Row]]]


def measures(*, peer: bool, revision: str | None = None) -> dict[str, Measure]:
    """Returns what measures each case, in the order of a run. ``revision``: of the daemon whose calls are compared."""
    found: dict[str, Measure] = {
        "S1": partial(scheduler.measure, peer=peer),
        "S2": partial(stores.measure, peer=peer),
        "S4": steps.measure,
        "W1": terms.plans,
        "F4": terms.failovers,
    }
    return found if revision is None else {**found, "T1c": partial(calls.measure, revision=revision)}


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.procedures", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes")
    parser.add_argument("--case", choices=CASES, action="append", help="only these")
    parser.add_argument("--since", metavar="REVISION", help="compare calls (T1c, R1c, P1c) with this revision's daemon")
    parser.add_argument("--without-peer", action="store_true", help="without HBase's tools, nothing is downloaded")
    return parser.parse_args(arguments)


async def run(cases: Sequence[str], sizes: Sizes, *, peer: bool, revision: str | None = None) -> list[Row]:
    """Measures cases one after the other; saves the rows of each at once."""
    made: list[Row] = []
    for name, measure in measures(peer=peer, revision=revision).items():
        if name in cases:
            with tempfile.TemporaryDirectory(prefix="procedures-", dir=_disk() if name == "S2" else None) as folder:
                rows = await measure(sizes, Path(folder))
            save(rows, machine(), RESULTS)
            made += rows
    return made


def _disk() -> Path:
    """Returns a folder on the project's disk, because temporary folders may be in memory."""
    RESULTS.parent.mkdir(exist_ok=True)
    return RESULTS.parent


def main() -> int:
    """Exits with 0 where every goal is met, 1 where one is not, 2 where a part is missing, failed, or ended wrongly."""
    chosen = parsed()
    try:
        if not chosen.without_peer:
            hbase.provide()
        rows = uvloop.run(
            run(
                chosen.case or CASES,
                SHORT if chosen.short else LONG,
                peer=not chosen.without_peer,
                revision=chosen.since,
            ),
        )
    except (JarsUnavailable, ProcessFailed, Wrong) as problem:
        print(problem, file=sys.stderr)
        return 2
    show(rows, title=TITLE)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
