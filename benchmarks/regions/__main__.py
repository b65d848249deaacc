"""Measures the assignment of regions; HBase's published figures stand beside where there are some.

``python -m benchmarks.regions`` runs all cases in some minutes, with ``--short`` small ones, with ``--full`` a million
regions, too. Progress goes to standard error, the table to standard output, figures to ``build/regions.json``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.machine import machine
from benchmarks.regions.cases import Shape, assigned, crashed, failed_over, followed, remembered
from benchmarks.results import Row, save, show

RESULTS: Final = Path("build/regions.json")
TITLE: Final = "assignment of regions"
CASES: Final = ("A1", "A2", "A3", "A4", "A5")
SHORT: Final = (Shape(10_000, 20),)
LONG: Final = (*SHORT, Shape(100_000, 100))
MILLION: Final = Shape(1_000_000, 200)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regions", description=__doc__)
    parser.add_argument("--short", action="store_true", help="10,000 regions alone")
    parser.add_argument("--full", action="store_true", help="a million regions, too")
    parser.add_argument("--case", choices=CASES, action="append", help="only these")
    return parser.parse_args(arguments)


async def run(cases: Sequence[str], shapes: Sequence[Shape]) -> list[Row]:
    """Measures cases one after the other; saves the rows of each at once."""
    made: list[Row] = []

    def keep(rows: list[Row]) -> None:
        save(rows, machine(), RESULTS)
        made.extend(rows)

    for shape in shapes:
        if "A1" in cases:
            keep(await assigned(shape, 1 if shape == MILLION else 3))
        if "A3" in cases:
            keep(await failed_over(shape))
        if "A4" in cases and shape.regions > SHORT[0].regions:
            keep(await remembered(shape))
    if "A2" in cases:
        keep(await crashed())
    if "A5" in cases:
        keep(await followed())
    return made


def main() -> int:
    """Exits with 0 where every goal is met, 1 where one is not."""
    chosen = parsed()
    shapes = SHORT if chosen.short else (*LONG, MILLION) if chosen.full else LONG
    rows = uvloop.run(run(chosen.case or CASES, shapes))
    show(rows, title=TITLE)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
