"""Measures J, the cost of the journal at a broker's death: daemons with and without it take turns."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks import rounds
from benchmarks.arena import say
from benchmarks.contestants import OURS
from benchmarks.plan import DEATH, Run, goal
from benchmarks.results import Row, Sample

ORDER: Final = (True, False, False, True)
"""With the journal or without, each time on a fresh data set, so that a drift of the machine affects both."""
ROUNDS: Final = 5
WITHOUT: Final = "regent without its journal"


async def cost(size: str, folder: Path) -> Row:
    """Measures a broker's death until all brokers have the change; the peer is the daemon without its journal."""
    told_s: dict[bool, list[float]] = {True: [], False: []}
    for number, journal in enumerate(ORDER):
        say(f"{size}: regent {'with' if journal else 'without'} its journal")
        run = Run(size, (DEATH,), rounds=ROUNDS, peer_rounds=-1)
        taken = await rounds.play(run, folder / str(number), (OURS,), journal=journal)
        told_s[journal] += [turn.told_s for turn in taken.of(OURS, "broker death")]
    ours, peer = Sample.of(told_s[True]), Sample.of(told_s[False])
    return Row(
        "J",
        size,
        "broker death until all have the change, with the journal",
        "s",
        ours,
        peer,
        goal("J", size),
        peer_is=WITHOUT,
        note=f"{100 * (ours.median / peer.median - 1):+.1f} % with the journal",
    )
