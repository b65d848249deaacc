"""Measures what a part of the daemon costs at a broker's death: daemons with and without it take turns.

J is the journal; I is the domain of regions, which has a listener and a store here, and nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import rounds
from benchmarks.arena import say
from benchmarks.contestants import OURS
from benchmarks.plan import DEATH, Run, goal
from benchmarks.results import Row, Sample

ORDER: Final = (True, False, False, True)
"""With the part or without, each time on a fresh data set, so that a drift of the machine affects both."""
ROUNDS: Final = 5


class Part(NamedTuple):
    """A part of the daemon. ``settings``: those of a daemon with it, ``otherwise``: of one without it."""

    name: str
    settings: Mapping[str, object]
    otherwise: Mapping[str, object]


PARTS: Final = {
    "J": Part("its journal", {"journal.enabled": True}, {"journal.enabled": False}),
    "I": Part("idle regions", {"regions.host": "127.0.0.1", "regions.port": 0}, {}),
}
"""Parts by the names of their cases."""


async def cost(case: str, size: str, folder: Path) -> Row:
    """Measures a broker's death until all brokers have the change; the peer is the daemon without the part."""
    part = PARTS[case]
    told_s: dict[bool, list[float]] = {True: [], False: []}
    for number, has in enumerate(ORDER):
        say(f"{size}: regent {'with' if has else 'without'} {part.name}")
        run = Run(size, (DEATH,), rounds=ROUNDS, peer_rounds=-1)
        settings = part.settings if has else part.otherwise
        taken = await rounds.play(run, folder / str(number), (OURS,), settings=settings)
        told_s[has] += [turn.told_s for turn in taken.of(OURS, "broker death")]
    ours, peer = Sample.of(told_s[True]), Sample.of(told_s[False])
    return Row(
        case,
        size,
        f"broker death until all have the change, with {part.name}",
        "s",
        ours,
        peer,
        goal(case, size),
        peer_is=f"regent without {part.name}",
        note=f"{100 * (ours.median / peer.median - 1):+.1f} % with {part.name}",
    )
