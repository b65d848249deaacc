"""Measures the assignment of regions, beside HBase where its jars are on this machine.

``python -m benchmarks.regions`` runs all cases in about ten minutes, or a quarter of an hour more with HBase. Those of
``--short`` are small; with ``--full`` a million regions are a case, too. Progress goes to standard error, the table to
standard output, figures to ``build/regions.json``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.arena import say
from benchmarks.machine import machine
from benchmarks.regions import hbase
from benchmarks.regions.assigning import assigned
from benchmarks.regions.balancing import balanced
from benchmarks.regions.by_znodes import answered_by_znodes, beside_hbase
from benchmarks.regions.cases import crashed, failed_over, remembered, restarted
from benchmarks.regions.following import followed
from benchmarks.regions.plan import Shape, disk
from benchmarks.regions.real import Clusters, compared
from benchmarks.regions.reporting import reported
from benchmarks.regions.rolling import rolled
from benchmarks.regions.splitting import split_under_load
from benchmarks.regions.taking_over import taken_over
from benchmarks.results import Row, save, show

RESULTS: Final = Path("build/regions.json")
LOG: Final = "regions.log"
"""What the daemon logs, beside the figures."""
TITLE: Final = "assignment of regions"
CASES: Final = ("A1", "A1r", "A1z", "A2", "A3", "A4", "A6", "AF", "B1", "B2", "RP1", "SP1")
SHORT: Final = (Shape(10_000, 20),)
LONG: Final = (*SHORT, Shape(100_000, 100))
MILLION: Final = Shape(1_000_000, 200)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regions", description=__doc__)
    parser.add_argument("--short", action="store_true", help="10,000 regions alone")
    parser.add_argument("--full", action="store_true", help="a million regions, too")
    parser.add_argument("--case", choices=CASES, action="append", help="only these; A1 measures A5 as well")
    parser.add_argument("--without-peer", action="store_true", help="without HBase")
    return parser.parse_args(arguments)


async def run(cases: Sequence[str], shapes: Sequence[Shape], *, peer: bool) -> list[Row]:
    """Measures cases one after the other; saves the rows of each at once."""
    made: list[Row] = []

    def keep(rows: list[Row]) -> None:
        save(rows, machine(), RESULTS)
        made.extend(rows)

    for shape in shapes:
        async for rows in _of_shape(cases, shape, peer=peer and shape != MILLION):
            keep(rows)
    clusters = Clusters() if peer else None
    if "A1r" in cases:
        keep(await compared(clusters=clusters))
    if "A1z" in cases:
        keep(await answered_by_znodes())
        keep(await taken_over())
        if clusters is not None:
            keep(await beside_hbase(clusters))
    if "A2" in cases:
        keep(await crashed())
    if "AF" in cases:
        keep(await followed())
    if "B2" in cases:
        keep(await rolled())
    if "SP1" in cases:
        keep(await split_under_load(peer=peer))
    return made


async def _of_shape(cases: Sequence[str], shape: Shape, *, peer: bool) -> AsyncIterator[list[Row]]:
    """Measures the cases whose size is the shape, and yields the rows of each."""
    is_million = shape == MILLION
    if "A1" in cases:
        yield await assigned(shape, 1 if is_million else 3, peer=peer)
    if "A3" in cases:
        yield await failed_over(shape)
    if "A4" in cases and shape.regions > SHORT[0].regions:
        yield await remembered(shape)
    if "A6" in cases and not is_million:
        yield await restarted(shape)
    if "B1" in cases and shape in LONG[1:]:
        yield await balanced(shape, peer=peer)
    if "RP1" in cases:
        yield await reported(shape)


def main() -> int:
    """Exits with 0 where every goal is met, 1 where one is not."""
    chosen = parsed()
    shapes = SHORT if chosen.short else (*LONG, MILLION) if chosen.full else LONG
    lacking = None if chosen.without_peer else hbase.missing()
    if lacking is not None:
        say(f"without HBase, which needs {lacking}")
    peer = lacking is None and not chosen.without_peer
    logging.basicConfig(filename=disk() / LOG, filemode="w", level=logging.WARNING)
    rows = uvloop.run(run(chosen.case or CASES, shapes, peer=peer))
    show(rows, title=TITLE)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
